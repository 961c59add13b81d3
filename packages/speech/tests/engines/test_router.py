"""The router: the best route, other routes after a failure, and spans that must be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.watches import StopAfter
from lingua_speech.engine import (
    About,
    EngineError,
    ModelMissing,
    Rendered,
    Stopped,
    Unwatched,
    Watch,
)
from lingua_speech.engines.router import Router, make
from lingua_speech.glossary import translate_with_terms
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_speech.routing import guards, table
from lingua_wire.errors import ConfigError
from lingua_wire.shared import Term

pytestmark = pytest.mark.speech

WATCH = Unwatched()
NEEDED = ("bergamot-eng-por", "apertium", "apertium-eng-spa", "apertium-spa-por")


class Says:
    """A translator with prepared answers, which records its requests."""

    def __init__(self, does: Callable[[str], str], *pairs: tuple[str, str]) -> None:
        self._does = does
        self._pairs = pairs or (("en", "es"),)
        self.asked: list[str] = []
        self.is_closed = False

    def about(self) -> About:
        return About(engine="says", licence="MIT", pairs=self._pairs)

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        self.asked.append(text)
        return self._does(text)

    def close(self) -> None:
        self.is_closed = True


def refuse(text: str) -> str:
    raise EngineError("PROCESSING_ERROR", "it does not work")


def marked(text: str) -> str:
    return f"<{text}>"


def routed(*does: Callable[[str], str], tries: int = 3) -> Router:
    """Return a router of several translators from English to Spanish, in order of preference."""
    return Router({f"e{at}": Says(one) for at, one in enumerate(does)}, (), tries)


def said(router: Router, text: str = "Good morning, friends.") -> Rendered:
    return router.translate(text, "en", "es", WATCH)


def test_the_first_way_is_taken_if_nothing_is_wrong_with_it() -> None:
    done = said(routed(marked, refuse), "One two. Three four!")
    assert done == Rendered("<One two.> <Three four!>", "e0:en>es", ())


def test_a_way_that_fails_is_followed_by_the_next() -> None:
    done = said(routed(refuse, marked))
    assert done == Rendered("<Good morning, friends.>", "e1:en>es", (guards.FALLBACK,))


def test_if_all_fail_that_is_the_error() -> None:
    with pytest.raises(EngineError, match="it does not work"):
        said(routed(refuse, refuse))


def test_not_more_ways_are_tried_than_allowed() -> None:
    with pytest.raises(EngineError):
        said(routed(refuse, marked, tries=1))


@pytest.mark.parametrize("bad", ["", "sol sol sol sol sol sol sol", "x" * 400, "Sí 7.", "ok " * 50])
def test_what_cannot_be_right_is_followed_by_the_next_way(bad: str) -> None:
    done = said(routed(lambda _: bad, marked))
    assert done.text == "<Good morning, friends.>"
    assert done.remarks == (guards.FALLBACK,)


def test_of_bad_ones_the_least_bad_is_taken_and_told() -> None:
    done = said(routed(lambda _: "", lambda _: "Nací en 1978, mi amigo."))
    assert done.text == "Nací en 1978, mi amigo."
    assert done.remarks == (guards.FALLBACK, guards.NUMBERS)


def test_a_way_that_keeps_a_name_is_preferred_to_one_that_invents_another() -> None:
    done = said(routed(lambda _: "Es Willoutt.", lambda _: "Es Thompson."), "It is Thompson.")
    assert done == Rendered("Es Thompson.", "e1:en>es", (guards.FALLBACK,))


def test_if_all_call_it_otherwise_that_is_its_name_there() -> None:
    done = said(routed(lambda _: "Es Alemania.", lambda _: "Alemania."), "It is Germany.")
    assert done == Rendered("Es Alemania.", "e0:en>es", ())
    alone = said(routed(lambda _: "Es Alemania."), "It is Germany.")
    assert alone.remarks == (guards.NAMES,)


def test_what_was_measured_to_be_best_is_taken_where_it_is_there_and_as_long_as_it_works() -> None:
    """With the table of the package: OPUS for French, and the routes after it."""
    pair = ("en", "fr")
    text = "Good morning, friends."

    def ask(**does: Callable[[str], str]) -> Rendered:
        engines = {name: Says(one, pair) for name, one in does.items()}
        return Router(engines, table.load(), 3).translate(text, *pair, WATCH)

    assert ask(apertium=marked).route == "apertium:en>fr"
    assert ask(apertium=marked, opus=marked) == Rendered(f"<{text}>", "opus:en>fr", ())
    fallen = Rendered(f"<{text}>", "apertium:en>fr", (guards.FALLBACK,))
    assert ask(apertium=marked, opus=refuse) == fallen
    assert ask(apertium=marked, opus=lambda _: "oui oui oui oui oui oui oui") == fallen


class Doubts(Says):
    """A translator that always reports uncertainty."""

    def translate(self, text: str, source: str, target: str, watch: Watch) -> Rendered:
        return Rendered(f"({text})", remarks=(guards.UNSURE,))


def test_who_is_not_sure_lets_another_do_it_and_that_is_no_failure() -> None:
    engines = {"a": Doubts(marked), "b": Says(marked)}
    assert said(Router(engines, (), 3)) == Rendered("<Good morning, friends.>", "b:en>es", ())


def test_who_is_not_sure_is_better_than_who_is_wrong() -> None:
    engines = {"a": Doubts(marked), "b": Says(lambda _: "")}
    done = said(Router(engines, (), 3))
    assert done.text == "(Good morning, friends.)"
    assert done.remarks == (guards.UNSURE,)


def test_a_circle_that_all_go_is_cut() -> None:
    done = said(routed(lambda _: "la ley la ley la ley"))
    assert done.text == "la ley"
    assert {guards.LOOP, guards.REPAIRED} <= set(done.remarks)


def test_what_nobody_can_say_is_copied() -> None:
    done = said(routed(lambda _: "()"), "Brrr grrr.")
    assert done.text == "Brrr grrr."
    assert {guards.EMPTY, guards.COPIED} <= set(done.remarks)


def test_protected_pieces_are_never_shown_to_an_engine() -> None:
    engine = Says(marked)
    text = "Write to bob@example.com or see https://example.com/x?y=1."
    done = Router({"e": engine}, (), 3).translate(text, "en", "es", WATCH)
    assert engine.asked == ["Write to XQ1 or see XQ2."]
    assert done.text == f"<{text}>"


def test_protected_pieces_come_through_an_engine_that_loses_them() -> None:
    done = said(routed(lambda text: text.replace("XQ1", "QX 1")), "Write to bob@example.com now.")
    assert done.text == "Write to bob@example.com now."
    assert guards.REPAIRED in done.remarks
    assert guards.SPANS not in done.remarks


def test_a_wrong_figure_is_put_right() -> None:
    done = said(routed(lambda _: "Nací en 1978."), "I was born in 1987.")
    assert done == Rendered("Nací en 1987.", "e0:en>es", (guards.REPAIRED,))


def test_a_way_over_another_language_is_several_steps() -> None:
    engines = {"a": Says(marked, ("en", "pt")), "b": Says(str.upper, ("pt", "es"))}
    router = Router(engines, (), 3)
    assert set(router.about().pairs) == {("en", "pt"), ("pt", "es"), ("en", "es")}
    assert said(router, "Good day.") == Rendered("<GOOD DAY.>", "a:en>pt b:pt>es", ())


def test_a_measured_way_is_preferred() -> None:
    engines = {"a": Says(marked), "b": Says(str.upper)}
    score = table.Score(
        direction="en>es",
        route="b:en>es",
        set="everyday",
        sentences=1,
        chrf=1.0,
        bleu=1.0,
        p50_ms=1.0,
        p95_ms=1.0,
        date="2026-11-17",
    )
    assert said(Router(engines, (score,), 3), "Good day.").route == "b:en>es"


def test_a_telephone_is_translated_by_what_is_best_for_telephones() -> None:
    engines = {"a": Says(marked), "b": Says(str.upper)}
    scores = tuple(
        table.Score(
            direction="en>es",
            route=f"{name}:en>es",
            set=kind,
            sentences=1,
            chrf=chrf,
            bleu=1.0,
            p50_ms=1.0,
            p95_ms=1.0,
            date="2026-11-17",
        )
        for name, kind, chrf in [
            ("a", "everyday", 60.0),
            ("b", "everyday", 50.0),
            ("a", "prompts", 50.0),
            ("b", "prompts", 60.0),
        ]
    )
    router = Router(engines, scores, 3)
    assert said(router, "Good day.").route == "a:en>es"
    assert said(router, "Press one. Good day.").route == "b:en>es"


def test_it_stops_when_nobody_wants_it_and_closes_all() -> None:
    engines = {"a": Says(marked), "b": Says(marked)}
    router = Router(engines, (), 3)
    with pytest.raises(Stopped):
        router.translate("One. Two. Three.", "en", "es", StopAfter(2))
    router.close()
    assert all(engine.is_closed for engine in engines.values())


def test_nothing_gives_nothing_and_other_languages_are_refused() -> None:
    router = routed(marked)
    assert said(router, " \n ") == Rendered("", "", ())
    assert said(router, "...").text == "..."
    assert router.translate("Hi.", "en-us", "es-mx", WATCH).text == "<Hi.>"
    with pytest.raises(EngineError, match="no route from 'en' to 'de'"):
        router.translate("Hi.", "en", "de", WATCH)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"use": ""}, "must name other translators"),
        ({"use": "router"}, "must name other translators"),
        ({"use": "apertium+apertium"}, "must name other translators"),
        ({"use": "nobody"}, "no engine 'nobody'"),
        ({"use": "whisper"}, "whisper is for asr"),
        ({"tries": "0"}, "tries"),
        ({"scores": "/nothing.tsv"}, "cannot read"),
        ({"beam": "2"}, "unknown option 'beam'"),
        ({"use": "bergamot", "bergamot.beam": "2"}, "unknown option 'beam'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make(options)


def test_without_any_translator_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    with pytest.raises(ModelMissing, match="lingua models install bergamot-eng-por"):
        make({"use": "bergamot"})


# With the installed translators


@pytest.fixture(name="router", scope="module")
def real_router() -> Iterator[Router]:
    for name in NEEDED:
        default_store().install(name)
    engine = make({"use": "bergamot+apertium", "apertium.pairs": "en-es+es-en+pt-es+es-pt"})
    yield engine
    engine.close()


def test_real_translators_make_all_directions_between_them(router: Router) -> None:
    assert set(router.about().pairs) == {
        (one, other) for one in ("en", "es", "pt") for other in ("en", "es", "pt") if one != other
    }


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("pt", "The law was passed by a large majority.", "lei foi aprovada"),
        ("es", "Where is the nearest pharmacy?", "farmacia"),
        ("es", "Please send the 3 reports of 1987 to bob@example.com.", "bob@example.com"),
        ("pt", "Ask @maria_99 about ticket 8837261 😀", "@maria_99"),
    ],
)
def test_real_translators_say_it(router: Router, target: str, text: str, words: str) -> None:
    done = router.translate(text, "en", target, WATCH)
    assert words in done.text
    assert guards.changed_numbers(text, done.text, ("en", target)) == ((), ())


@pytest.fixture(name="whole", scope="module")
def default_router() -> Iterator[Router]:
    for name in (*NEEDED, "apertium-fra-spa"):
        default_store().install(name)
    engine = make({})
    yield engine
    engine.close()


LEDGER = Term(
    term="ledger", translations={"es": "libro mayor", "pt": "livro-razão", "fr": "grand livre"}
)
TERMED = [
    "The ledger is on the table.",
    "We met at the house of Acme Cloud and paid 4512 dollars for the ledger.",
    "Ledger entries must be checked every Monday. Acme Cloud, please write to bob@example.com!",
    "Press one to open the ledger.",
    "Acme Cloud's customers do not want a ledger, they want Acme Cloud.",
    "ledger",
]


@pytest.mark.parametrize("target", ["es", "pt", "fr"])
@pytest.mark.parametrize("text", TERMED)
def test_terms_come_through_all_translators_and_languages_on_the_way(
    whole: Router, text: str, target: str
) -> None:
    async def ask(words: str) -> Rendered:
        return whole.translate(words, "en", target, WATCH)

    known = [LEDGER, Term(term="Acme Cloud")]
    done = asyncio.run(translate_with_terms(text, known, target, ask))
    said = str(LEDGER.said_in(target))
    assert done.text.lower().count(said) == text.lower().count("ledger")
    assert done.text.count("Acme Cloud") == text.count("Acme Cloud")
    assert "XQ" not in done.text
    assert guards.SPANS not in done.remarks


def test_terms_come_back_from_other_languages(whole: Router) -> None:
    async def ask(words: str) -> Rendered:
        return whole.translate(words, "es", "en", WATCH)

    known = [Term(term="libro mayor", translations={"en": "ledger"})]
    done = asyncio.run(translate_with_terms("El libro mayor está en la mesa.", known, "en", ask))
    assert "ledger" in done.text.lower()


def test_in_a_worker_process_the_way_and_remarks_come_with_the_text() -> None:
    async def scenario() -> Rendered:
        pool = WorkerPool([Spec.parse("mt=router:use=bergamot")], WorkerPoolRules())
        try:
            await pool.start()
            done: Rendered = await pool.call(0, "Good morning.", "en", "pt", timeout_s=20)
            return done
        finally:
            await pool.close()

    assert asyncio.run(scenario()) == Rendered("Bom dia.", "bergamot:en>pt", ())


ODD = [
    "x",
    "https://example.com/a?b=1&c=2",
    "bob@example.com",
    "@maria_99 #yes 12",
    "😀😀😀 12 😀",
    "Это русский текст 15.",
    "我爱你。",
    "the the the the the the the the",
    "12 34 56 78 90",
    "def f(x): return x**2  # code 7",
    "a" * 900,
    "word " * 200,
    "ha " * 60,
    "NULL\0byte 5",
    "Pay $1,234.50 by 12/05/2024 at 3:30 pm, or call +1 555 123 4567.",
    "\\0 <s> </s> >>es<< XQ1",
    "THIS IS SHOUTED 3 TIMES",
    "no no no no no",
    "XQ1 XQ2 XQ99",
    "1.5 million in 2,000 days",
]


@pytest.mark.parametrize("target", ["es", "pt"])
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_not_said_more_often_than_they_were_and_keep_their_figures(
    router: Router, text: str, target: str
) -> None:
    done = router.translate(text, "en", target, WATCH)
    assert guards.repetition(done.text) <= guards.repetition(text)
    changed = any(guards.changed_numbers(text, done.text, ("en", target)))
    assert not changed or guards.NUMBERS in done.remarks
    assert done.text
