"""Terms of a glossary: which are found, and that they pass any translator."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engine import Rendered
from lingua_speech.glossary import mask, restore, translate_with_terms
from lingua_speech.routing import guards
from lingua_speech.routing.protected import Masked
from lingua_wire.shared import Term

pytestmark = pytest.mark.unit


def terms(**called: str | None) -> list[Term]:
    """Return terms, `_` for a space, with their Spanish translations."""
    return [
        Term(term=name.replace("_", " "), translations={"es": said} if said else None)
        for name, said in called.items()
    ]


def through(text: str, *given: Term) -> str:
    """Return a text with its terms translated and nothing else changed."""
    masked = mask(text, given, "es")
    return restore(masked.text, masked)


LEDGER = terms(ledger="libro mayor")[0]


def test_a_term_is_out_of_sight_and_comes_back_as_it_is_called() -> None:
    masked = mask("The ledger, the ledger!", [LEDGER], "es")
    assert masked == Masked("The XQ1, the XQ2!", ("libro mayor", "libro mayor"))
    assert restore("¡El XQ2, el XQ1!", masked) == "¡El libro mayor, el libro mayor!"


def test_without_a_translation_it_is_kept() -> None:
    assert mask("Ask Acme Cloud.", terms(Acme_Cloud=None), "es").kept == ("Acme Cloud",)
    assert mask("Ask the ledger.", [LEDGER], "fr").kept == ("ledger",)


def test_a_text_without_a_term_is_the_same_text() -> None:
    text = "Nothing of it: XQ1, cafe\u0301."
    assert mask(text, [LEDGER], "es") == (text, ())
    assert mask(text, [], "es") == (text, ())


@pytest.mark.parametrize(
    "text",
    ["The ledgers are new.", "A subledger.", "led ger", "ledger_2", "ledger2", "Señorledger"],
)
def test_only_whole_words_are_meant(text: str) -> None:
    assert mask(text, [LEDGER], "es").kept == ()


@pytest.mark.parametrize(
    ("text", "became"),
    [
        ("(ledger)", "(libro mayor)"),
        ("“ledger”, ledger; ledger's", "“libro mayor”, libro mayor; libro mayor's"),
        ("general-ledger.", "general-libro mayor."),
        ("ledger/ledger", "Libro mayor/libro mayor"),
    ],
)
def test_punctuation_ends_a_word(text: str, became: str) -> None:
    assert through(text, LEDGER).casefold() == became.casefold()


@pytest.mark.parametrize(
    ("term", "found", "not_found"),
    [
        ("ledger", ["ledger", "Ledger", "LEDGER"], []),
        ("IT", ["IT"], ["it", "It"]),
        ("Apple", ["Apple", "APPLE"], ["apple", "aPPle"]),
        ("Acme Cloud", ["Acme Cloud", "ACME CLOUD", "Acme cloud"], ["acme cloud"]),
        ("iPhone", ["iPhone", "IPHONE", "Iphone"], ["iphone"]),
        ("straße", ["straße", "Straße"], []),
        ("Élan", ["Élan", "ÉLAN", "E\u0301lan"], ["élan", "Elan"]),
    ],
)
def test_a_small_term_means_any_case_and_capitals_mean_themselves(
    term: str, found: list[str], not_found: list[str]
) -> None:
    one = Term(term=term, translations={"es": "X1"})
    assert [mask(f"so {text}.", [one], "es").kept for text in found] == [("X1",)] * len(found)
    assert [mask(f"so {text}.", [one], "es").kept for text in not_found] == [()] * len(not_found)


def test_what_is_kept_has_the_case_of_the_glossary_if_it_says_one() -> None:
    assert mask("ACME and Ledger", terms(Acme=None, ledger=None), "es").kept == ("Acme", "Ledger")


def test_of_several_that_fit_the_longest_is_meant_and_the_first_in_the_text() -> None:
    known = terms(table="tabla", round_table="mesa redonda", round_table_talks="coloquios")
    assert mask("The round table.", known, "es").kept == ("mesa redonda",)
    assert mask("round table talks", known, "es").kept == ("coloquios",)
    assert mask("A Round\n Table, a table", known, "es").kept == ("mesa redonda", "tabla")
    crossing = terms(big_round="1a", round_table="2b")
    assert mask("big round table", crossing, "es") == ("XQ1 table", ("1a",))


def test_if_the_longer_one_has_another_case_the_shorter_one_is_meant() -> None:
    known = terms(IT="informática", IT_Crowd="Los informáticos", crowd="público")
    assert mask("The IT crowd", known, "es").kept == ("informática", "público")


@pytest.mark.parametrize(
    ("term", "text", "masked"),
    [
        ("云", "我用阿克梅云服务", "我用阿克梅 XQ1 服务"),
        ("阿克梅云", "我用阿克梅云服务", "我用 XQ1 服务"),
        ("Acme", "我用Acme云", "我用 XQ1 云"),
        ("東京", "東京は大きい", "XQ1 は大きい"),
        ("서울", "서울은 크다", "XQ1 은 크다"),
        ("กรุงเทพ", "ไปกรุงเทพวันนี้", "ไป XQ1 วันนี้"),
        ("москва", "Москва — столица", "XQ1 — столица"),
    ],
)
def test_scripts_without_spaces_have_words_too(term: str, text: str, masked: str) -> None:
    assert mask(text, [Term(term=term)], "es").text == masked


def test_signs_mean_nothing_but_themselves() -> None:
    known = [Term(term="C++"), Term(term=".NET"), Term(term="a.b (c)"), Term(term="R&D")]
    kept = mask("C++, .NET, axb (c), a.b (c) and r&d or R&D", known, "es").kept
    assert kept == ("C++", ".NET", "a.b (c)", "R&D")


def test_what_looks_like_a_stand_in_stays_what_it_is() -> None:
    masked = mask("XQ2 has the ledger, xq1 too", [LEDGER], "es")
    assert masked == ("XQ1 has the XQ2, XQ3 too", ("XQ2", "libro mayor", "xq1"))
    assert restore("XQ1, XQ2, XQ3, XQ9", masked) == "XQ2, libro mayor, xq1, XQ9"


@pytest.mark.parametrize(
    ("text", "became"),
    [
        ("XQ1 está aquí.", "Libro mayor está aquí."),
        ("Sí. XQ1 está aquí.", "Sí. Libro mayor está aquí."),
        ("¿XQ1 está aquí?", "¿Libro mayor está aquí?"),
        ("«XQ1» está aquí.", "«Libro mayor» está aquí."),
        ("El XQ1, el xq1.", "El libro mayor, el libro mayor."),
    ],
)
def test_a_sentence_begins_with_a_capital(text: str, became: str) -> None:
    assert restore(text, Masked("", ("libro mayor",))) == became


def test_a_name_with_its_own_case_begins_a_sentence_as_it_is() -> None:
    assert restore("XQ1 es nuevo.", Masked("", ("iPhone",))) == "iPhone es nuevo."


def asked(text: str, known: list[Term], *answers: str | Rendered) -> tuple[Rendered, list[str]]:
    """Return the result of a translator with these answers, and the texts it received."""
    questions: list[str] = []

    async def ask(words: str) -> str | Rendered:
        questions.append(words)
        return answers[len(questions) - 1]

    return asyncio.run(translate_with_terms(text, known, "es", ask)), questions


def test_a_translator_never_sees_a_term() -> None:
    done, questions = asked("The ledger.", [LEDGER], Rendered("El XQ1.", "e:en>es", ("x",)))
    assert (done, questions) == (Rendered("El libro mayor.", "e:en>es", ("x",)), ["The XQ1."])


def test_without_terms_it_is_just_asked() -> None:
    assert asked("XQ1 cafe\u0301", [], "b") == (Rendered("b"), ["XQ1 cafe\u0301"])
    assert asked("XQ1 cafe\u0301", [LEDGER], "b") == (Rendered("b"), ["XQ1 cafe\u0301"])


def test_one_that_changes_stand_ins_is_asked_without_and_that_is_told() -> None:
    done, questions = asked("The ledger.", [LEDGER], "El QX 1.", "El libro.")
    assert questions == ["The XQ1.", "The ledger."]
    assert done == Rendered("El libro.", "", (guards.SPANS,))


WORDS = st.text("abAB云 '-.ß1", min_size=1, max_size=6).filter(lambda word: word.strip(" '-."))


@given(st.text("abAB云 '-.ß1XQ\n", max_size=60), st.lists(WORDS, max_size=6, unique=True))
def test_kept_terms_change_nothing_but_spaces_and_case(text: str, found: list[str]) -> None:
    known = [Term(term=" ".join(word.split())) for word in found]
    became = through(text, *known)
    squeezed = ("".join(one.split()).casefold() for one in (became, text))
    assert next(squeezed) == next(squeezed)
