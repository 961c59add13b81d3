"""Words on the screen that become firm, and the outcome that replaces them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from lingua_client import Partial
from lingua_translate import Rendition, TranslatedUtterance
from lingua_translate.screen import Screen
from lingua_wire.captions import columns
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import PartialResult
from terminal_picture import picture
from test_screen import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

Texts = tuple[str, str]


def spoken(start_ms: float, said: Texts, **translations: Texts) -> TranslatedUtterance:
    """Return an utterance with its text so far: firm and loose words."""
    utterance = TranslatedUtterance(0, start_ms)
    update(utterance, said, **translations)
    return utterance


def update(utterance: TranslatedUtterance, said: Texts, **translations: Texts) -> None:
    parts = tuple(
        PartialTranslation(tgt_lang=code, stable=firm, unstable=loose)
        for code, (firm, loose) in translations.items()
    )
    utterance.so_far = Partial(
        PartialResult(
            session_id="s1",
            utterance_index=0,
            revision=1,
            start_ms=0,
            upto_ms=500,
            stable=said[0],
            unstable=said[1],
            translations=parts,
        )
    )


def show(screen: Screen, utterance: TranslatedUtterance) -> None:
    assert utterance.so_far is not None
    screen.partial(utterance, utterance.so_far.text)


def end(screen: Screen, utterance: TranslatedUtterance, text_asr: str, *texts: Rendition) -> None:
    utterance.so_far, utterance.text_asr = None, text_asr
    for one in texts:
        utterance.renditions[one.target] = one
        screen.rendered(utterance, one)


def test_grey_words_become_firm_and_the_outcome_replaces_the_lines() -> None:
    said = spoken(1200, ("", "Good mor"))

    def begin(screen: Screen) -> None:
        show(screen, said)

    def grow(screen: Screen) -> None:
        begin(screen)
        update(said, ("Good", " morning every"), es=("Buenos", " días"))
        show(screen, said)

    def finish(screen: Screen) -> None:
        grow(screen)
        end(screen, said, "Good morning.", Rendition("es", "Buenos días."))

    assert picture(on_terminal(begin)) == ["<0:01.2   Good mor …>"]
    assert picture(on_terminal(grow)) == [
        "<0:01.2   >Good< morning every …>",
        "<  → es   >Buenos< días …>",
    ]
    assert picture(on_terminal(finish)) == [
        "<0:01.2>   Good morning.",
        "<  → es>   Buenos días.",
        "",
    ]


def test_an_utterance_that_waits_for_its_outcome_stays_while_the_next_is_spoken() -> None:
    first, second = spoken(0, ("One", ""), es=("Uno", "")), spoken(3000, ("", "Tw"))

    def both(screen: Screen) -> None:
        show(screen, first)
        screen.accepted(first)
        show(screen, second)

    def one_left(screen: Screen) -> None:
        both(screen)
        end(screen, first, "One.", Rendition("es", "Uno."), Rendition("fr", "Un."))

    assert picture(on_terminal(both, NO_COLOR="1")) == [
        "0:00.0   One …",
        "  → es   Uno …",
        "0:03.0   Tw …",
    ]
    assert picture(on_terminal(one_left, NO_COLOR="1")) == [
        "0:00.0   One.",
        "  → es   Uno.",
        "  → fr   Un.",
        "0:03.0   Tw …",
    ]


def test_an_outcome_replaces_texts_whose_number_was_only_probable() -> None:
    never = spoken(1000, ("", "hm"))
    real = TranslatedUtterance(0, 2000)

    def act(screen: Screen) -> None:
        show(screen, never)
        end(screen, real, "Hello.", Rendition("es", "Hola."))

    assert picture(on_terminal(act, NO_COLOR="1")) == ["0:02.0   Hello.", "  → es   Hola.", ""]


def test_silence_erases_what_was_heard() -> None:
    said = spoken(0, ("", "hm"), es=("", "eh"))

    def act(screen: Screen) -> None:
        show(screen, said)
        end(screen, said, "", Rendition("es", reason="silence_detected"))

    assert picture(on_terminal(act)) == [""] * 2


def test_a_notice_stands_above_all_lines_that_are_redrawn() -> None:
    said = spoken(0, ("One", " two"), es=("Uno", " dos"))

    def act(screen: Screen) -> None:
        show(screen, said)
        screen.noticed("connected again")

    assert picture(on_terminal(act, NO_COLOR="1")) == [
        "(connected again)",
        "0:00.0   One two …",
        "  → es   Uno dos …",
    ]


@pytest.mark.parametrize("text", ["word " * 40, "早上好大家" * 20])
def test_each_line_stays_within_one_row_however_long_its_text_is(text: str) -> None:
    def act(screen: Screen) -> None:
        for length in range(0, len(text), 7):
            show(screen, spoken(0, (text[:length], text[length:]), es=(text, "")))

    shown = picture(on_terminal(act, NO_COLOR="1"))
    assert len(shown) == 2 * 2
    assert max(map(columns, shown)) <= 39


def test_no_more_lines_are_redrawn_than_the_terminal_has() -> None:
    many = {f"l{number}": ("x", "") for number in range(60)}

    def act(screen: Screen) -> None:
        said = spoken(0, ("One", ""), **many)
        show(screen, said)
        show(screen, said)

    shown = picture(on_terminal(act, NO_COLOR="1"))
    assert len(shown) == 23
    assert shown[-1] == "  → l59  x …"


def test_text_from_outside_cannot_control_the_terminal_while_it_grows() -> None:
    def act(screen: Screen) -> None:
        show(screen, spoken(0, ("a\x1b[2J", "\rb"), es=("\n", "\x1b[31mc")))

    assert picture(on_terminal(act, NO_COLOR="1")) == [
        "0:00.0   a [2J b …",
        "  → es   [31mc …",
    ]


def lines_in_file(act: Callable[[Screen], None], *, prints_partials: bool) -> list[str]:
    stream = io.StringIO()
    act(Screen(stream, {}, shows_times=False, prints_partials=prints_partials))
    return stream.getvalue().splitlines()


def test_in_a_file_texts_so_far_are_lines_of_their_own_if_they_are_wanted() -> None:
    def act(screen: Screen) -> None:
        said = spoken(1200, ("", "Good"))
        show(screen, said)
        show(screen, said)
        update(said, ("Good", " mor"), es=("Buenos", ""))
        show(screen, said)
        end(screen, said, "Good morning.", Rendition("es", "Buenos días."))

    assert lines_in_file(act, prints_partials=True) == [
        "0:01.2 so far  [Good]",
        "0:01.2 so far  Good [mor]",
        "0:01.2 es so far  Buenos",
        "0:01.2  Good morning.",
        "0:01.2 es  Buenos días.",
    ]
    assert lines_in_file(act, prints_partials=False) == [
        "0:01.2  Good morning.",
        "0:01.2 es  Buenos días.",
    ]
