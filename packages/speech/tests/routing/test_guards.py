"""Detection of bad translations, and their repair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.routing import guards

pytestmark = pytest.mark.unit

EN_ES = ("en", "es")
WORDS = st.lists(st.sampled_from(["uno", "dos", "sol", "mar", "1987"]), max_size=30).map(" ".join)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("I was born in 1987.", "Nací en 1987."),
        ("It costs $1,234.50.", "Cuesta 1.234,50 dólares."),
        ("We need 2 000 chairs.", "Necesitamos 2000 sillas."),
        ("The train leaves at 3:30 pm.", "El tren sale a las 15:30."),
        ("The train leaves at 3 p.m.", "El tren sale a las 15:00."),
        ("I have 2 sons.", "Tengo dos hijos."),
        ("I have twenty-five books.", "Tengo 25 libros."),
        ("Very, very good.", "Muy, muy bueno."),
        ("Hi.", "Hola, ¿qué tal?"),
        ("Good morning, ladies and gentlemen.", "Buenos días."),
        ("Look at XQ1.", "Mire XQ1."),
        ("", ""),
        ("...", ""),
        ("我爱你们大家。", "I love you all."),
    ],
)
def test_a_good_translation_is_left_alone(source: str, output: str) -> None:
    assert guards.findings(source, output, EN_ES) == ()


@pytest.mark.parametrize(
    ("source", "output", "found"),
    [
        ("Hello.", "", guards.EMPTY),
        ("Hello.", "(-)", guards.EMPTY),
        ("The law was passed.", "La ley la ley la ley fue aprobada.", guards.LOOP),
        ("The law was passed.", "La ley fue fue aprobada.", guards.LOOP),
        ("He laughed.", "Se rio jajajajajajajajaja.", guards.LOOP),
        ("Yes.", "Sí, y además quiero decir que todo esto me parece muy bien hecho.", guards.LONG),
        ("One of the most difficult questions of our time is this one.", "Sí.", guards.SHORT),
        ("Write to XQ1.", "Escriba.", guards.SPANS),
        ("Write to XQ1.", "Escriba a XQ1 y XQ1.", guards.SPANS),
        ("I was born in 1987.", "Nací en 1978.", guards.NUMBERS),
        ("I was born in 1987.", "Nací hace mucho.", guards.NUMBERS),
        ("He was born long ago.", "Nació en 1990.", guards.NUMBERS),
        ("Where is the next station?", "Where is the next station?", guards.COPIED),
    ],
)
def test_a_bad_translation_is_found_out(source: str, output: str, found: str) -> None:
    assert found in guards.findings(source, output, EN_ES)


@pytest.mark.parametrize(
    ("source", "output", "changed"),
    [
        ("I saw Doctor Thompson.", "Vi al doctor Willoutt.", ("Thompson",)),
        ("The first was done by Priestley.", "El primero fue hecho por Jostle.", ("Priestley",)),
        ("And Mr. Johnson brings it.", "Y el señor. Genetn lo trae.", ("Johnson",)),
        ("It was done by Joseph Priestley.", "Lo hizo Jettt.", ("Joseph", "Priestley")),
        ("He lives in London.", "Vive en Londres.", ()),
        ("I know José.", "Conozco a Jose.", ()),
        ("She came on Monday.", "Vino el lunes.", ()),
        ("He lives in Germany.", "Vive en Alemania.", ("Germany",)),
        ("Write to XQ1, Anna.", "Escribe a XQ1, Ana.", ()),
        ("THIS IS VERY IMPORTANT.", "Esto es muy importante.", ()),
        ("Yes.", "Sí.", ()),
    ],
)
def test_a_name_must_be_there_or_something_like_it(
    source: str, output: str, changed: tuple[str, ...]
) -> None:
    assert guards.changed_names(source, output) == changed


def test_the_worse_weighs_more() -> None:
    order = [guards.EMPTY, guards.LOOP, guards.LONG, guards.SPANS, guards.NUMBERS, guards.COPIED]
    weights = [guards.weight((name,)) for name in order]
    assert weights == sorted(weights, reverse=True)
    assert guards.weight(()) == 0


def test_one_wrong_figure_is_put_right_and_more_are_not() -> None:
    assert guards.with_numbers("Born in 1987.", "Nació en 1978.", EN_ES) == "Nació en 1987."
    assert guards.with_numbers("It is 1,987.5 m.", "Son 1,978.5 m.", EN_ES) == "Son 1,987.5 m."
    two = "Entre 1 y 20."
    assert guards.with_numbers("Between 11 and 21.", two, EN_ES) == two
    assert guards.with_numbers("Born in 1987.", "Nació.", EN_ES) == "Nació."


@pytest.mark.parametrize(
    ("source", "output", "changed"),
    [
        ("火车五点钟出发。", "The train leaves at 5:00.", ((), ())),
        ("会议定于2026年11月17日举行。", "It is on 17 November 2026.", ((), ())),
        ("价格是3万元。", "The price is 30,000 yuan.", ((), ())),
        ("他有2.5亿美元。", "He has 250 million dollars.", ((), ())),
        ("我有28本书。", "I have 82 books.", (("28",), ("82",))),
        ("他生于1987年。", "He was born then.", (("1987",), ())),
    ],
)
def test_numbers_in_chinese_may_become_figures_and_months_become_words(
    source: str, output: str, changed: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert guards.changed_numbers(source, output, ("zh", "en")) == changed
    if changed == ((), ()):
        assert guards.with_numbers(source, output, ("zh", "en")) == output


@pytest.mark.parametrize(
    ("source", "output", "cut"),
    [
        ("The law.", "La ley, la ley, la ley fue hecha.", "La ley fue hecha."),
        ("No, no!", "¡No, no, no, no!", "¡No, no!"),
        ("Ha!", "¡Jajajajajajajajajajaja!", "¡Jajajajajajaja!"),
        ("Fine.", "Muy bien.", "Muy bien."),
    ],
)
def test_rounds_that_the_source_does_not_go_are_cut(source: str, output: str, cut: str) -> None:
    assert guards.without_loops(source, output) == cut


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("Let's " * 4, "Vamos " * 6),
        ("It's " * 16, "Es " * 29),
        ("You'll " * 13, "Usted " * 14),
    ],
)
def test_rounds_are_counted_and_not_the_parts_of_a_word(source: str, output: str) -> None:
    assert guards.LOOP in guards.findings(source, output, EN_ES)
    assert guards.repetition(guards.without_loops(source, output)) == guards.repetition(source)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("No decision has been made. ", "No se ha tomado ninguna decisión. "),
        ("I was made to wait for over 30 minutes. ", "Me hizo esperar más de 30 minutos. "),
        ("no, ", "de ninguna manera, "),
    ],
)
def test_what_the_source_says_again_may_be_longer_in_the_other_language(
    source: str, output: str
) -> None:
    assert guards.repetition(source * 4) == guards.repetition(output * 4) == 3
    assert guards.LOOP not in guards.findings(source * 4, output * 4, EN_ES)


@pytest.mark.parametrize(
    ("sources", "outputs", "text"),
    [
        (
            ("dame la carta", "yo quiero"),
            ("give me the letter I", "I want to"),
            "give me the letter I want to",
        ),
        (("para adentro los", "precios"), ("to in the", "The Prices"), "to in the Prices"),
        (("no no", "no no"), ("no no", "no no"), "no no no no"),
        (("Yo. ", "Yo quiero."), ("I.", "I want."), "I. I want."),
        (("a", "b", "c"), ("no", "no", "no"), "no"),
        (("a", "b"), ("", "x"), "x"),
        ((), (), ""),
    ],
)
def test_where_a_sentence_was_cut_no_word_is_doubled(
    sources: tuple[str, ...], outputs: tuple[str, ...], text: str
) -> None:
    assert guards.joined(sources, outputs) == text


@given(WORDS, WORDS)
def test_after_the_cut_nothing_is_repeated_more_than_in_the_source(src: str, out: str) -> None:
    cut = guards.without_loops(src, out)
    assert guards.repetition(cut) <= guards.repetition(src)
    assert guards.repetition(out) > guards.repetition(src) or cut == out


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_two_texts_can_be_compared_and_repaired(source: str, output: str) -> None:
    assert set(guards.findings(source, output, EN_ES)) <= set(guards.REMARKS)
    assert isinstance(guards.without_loops(source, output), str)
    assert isinstance(guards.with_numbers(source, output, EN_ES), str)
