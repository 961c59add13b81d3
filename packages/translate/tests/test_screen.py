"""The screen: plain lines in a file, captions redrawn in place on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import termios
from typing import TYPE_CHECKING

import pytest

from lingua_translate import InterpretationReport, Rendition, TranslatedUtterance
from lingua_translate.growing_text import tail
from lingua_translate.screen import Screen, clock
from lingua_wire.errors import LinguaError
from lingua_wire.shared import Coverage, ServiceTimings, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

SAID = TranslatedUtterance(0, 61_234, 64_000, 63_600, text_asr="Good morning.")
GOOD = Rendition(
    "es",
    "Buenos días.",
    latency_ms=812,
    timings=ServiceTimings(asr_ms=200.4, nmt_ms=5, tts_ms=50),
    timeline=Timeline(place_ms=1, push_ms=1, accept_ms=9, settle_ms=2),
)


def in_file(act: Callable[[Screen], None]) -> list[str]:
    stream = io.StringIO()
    act(Screen(stream, {}, shows_times=True))
    return stream.getvalue().splitlines()


def on_terminal(act: Callable[[Screen], None], **environ: str) -> str:
    """Return all that is written to a real terminal of 40 columns."""
    main, other = pty.openpty()
    os.set_blocking(main, False)
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(other, "w") as stream:
        act(Screen(stream, {"TERM": "xterm", **environ}, shows_times=True))
        stream.flush()
        written = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(main, 65_536):
                written += part
    os.close(main)
    return written.decode()


def lines_left(written: str) -> list[str]:
    """Return the final text of the terminal: redrawn lines show their last text."""
    return [line.split("\r")[-1].removeprefix("\x1b[K") for line in written.split("\r\n")]


def test_in_a_file_every_line_says_when_and_in_which_language() -> None:
    def act(screen: Screen) -> None:
        screen.accepted(SAID)
        screen.partial(SAID, "Good")
        screen.rendered(SAID, GOOD)
        screen.rendered(SAID, Rendition("fr", reason="no_node", detail="none speaks it"))

    assert in_file(act) == [
        "1:01.2  Good morning.",
        "1:01.2 es  Buenos días.",
        "1:01.2 time  0.81 s after the voice · asr 200 · mt 5 · tts 50 · scheduler 4 ms",
        "1:01.2 fr  (missing: no_node: none speaks it)",
    ]


def test_silence_is_not_shown() -> None:
    assert (
        in_file(lambda screen: screen.rendered(SAID, Rendition("es", reason="silence_detected")))
        == []
    )


def test_on_a_terminal_partials_are_redrawn_in_place_and_give_way_to_the_result() -> None:
    def act(screen: Screen) -> None:
        for text in ("Good", "Good morning", "Good morning"):
            screen.partial(SAID, text)
        screen.rendered(SAID, GOOD)

    written = on_terminal(act)
    assert "\x1b[2m1:01.2   \x1b[0m\x1b[2mGood morning …\x1b[0m" in written
    assert lines_left(on_terminal(act, NO_COLOR="1")) == [
        "1:01.2   Good morning.",
        "  → es   Buenos días.",
        "         0.81 s after the voice · asr",
        "         200 · mt 5 · tts 50 ·",
        "         scheduler 4 ms",
        "",
    ]


def test_without_colours_nothing_but_the_clearing_of_a_line_is_controlled() -> None:
    def act(screen: Screen) -> None:
        screen.partial(SAID, "Good")
        screen.rendered(SAID, GOOD)
        screen.finish(None)

    assert on_terminal(act, NO_COLOR="1").replace("\x1b[K", "").count("\x1b") == 0


def test_a_partial_that_is_too_long_shows_its_end_and_stays_on_one_line() -> None:
    text = "one two three four five six seven eight nine ten eleven"
    written = on_terminal(lambda screen: screen.partial(SAID, text), NO_COLOR="1")
    shown = written.removeprefix("\r\x1b[K")
    assert "\n" not in written
    assert shown.startswith("1:01.2   …")
    assert shown.endswith("nine ten eleven …")
    assert len(shown) <= 39


def test_wide_letters_count_twice() -> None:
    assert tail("早上好" * 10, 11) == "…" + ("早上好" * 10)[-5:]
    said = TranslatedUtterance(0, text_asr="早" * 40)
    written = on_terminal(lambda screen: screen.rendered(said, Rendition("es", "x")), NO_COLOR="1")
    assert [line.count("早") for line in lines_left(written)[:3]] == [15, 15, 10]


def test_what_is_said_in_between_leaves_the_redrawn_line_below_it() -> None:
    def act(screen: Screen) -> None:
        screen.partial(SAID, "Good")
        screen.noticed("the session was lost")

    assert lines_left(on_terminal(act, NO_COLOR="1")) == [
        "(the session was lost)",
        "1:01.2   Good …",
    ]


def test_text_from_outside_cannot_control_the_terminal() -> None:
    said = TranslatedUtterance(0, text_asr="a\x1b[2Jb\rc")
    written = on_terminal(lambda screen: screen.rendered(said, GOOD), NO_COLOR="1")
    assert "\x1b" not in written
    assert lines_left(written)[0].endswith("a [2Jb c")


def test_the_end_says_what_became_of_the_speech_and_how_long_it_took() -> None:
    said = TranslatedUtterance(0, renditions={"es": GOOD})
    coverage = Coverage(admitted_ms=9, delivered_ms=6, silent_ms=1, failed_ms=2, skipped_ms=0)
    report = InterpretationReport(
        [said], coverage=coverage, lost_ms=5, error=LinguaError("unplugged")
    )
    assert in_file(lambda screen: screen.finish(report)) == [
        "speech: admitted 9 ms, delivered 6 ms, silent 1 ms, failed 2 ms, skipped 0 ms, lost 5 ms",
        (
            "p50 / p95: end of speech → result 0.81 s / 0.81 s, recognising 200 ms / 200 ms, "
            "translating 5 ms / 5 ms, speaking 50 ms / 50 ms, scheduler itself 4 ms / 4 ms"
        ),
        "it ended early: unplugged",
    ]


@pytest.mark.parametrize(
    ("at_ms", "shown"),
    [(0, "0:00.0"), (59_960, "1:00.0"), (61_234, "1:01.2"), (3_600_000, "60:00.0")],
)
def test_places_are_shown_as_people_read_them(at_ms: float, shown: str) -> None:
    assert clock(at_ms) == shown


def test_no_line_is_wider_than_the_terminal_and_texts_stand_below_each_other() -> None:
    coverage = Coverage(
        admitted_ms=29_930, delivered_ms=25_950, silent_ms=3980, failed_ms=0, skipped_ms=0
    )

    def act(screen: Screen) -> None:
        screen.rendered(SAID, Rendition("pt-BR", "Bom dia a todos os que estão aqui hoje."))
        screen.finish(InterpretationReport([SAID], coverage=coverage))

    shown = lines_left(on_terminal(act, NO_COLOR="1"))
    assert max(map(len, shown)) < 40
    assert shown[1:3] == ["  → pt-BR Bom dia a todos os que estão", "          aqui hoje."]
    assert shown[3:5] == [
        "speech:  admitted 29930 ms, delivered",
        "         25950 ms, silent 3980 ms,",
    ]


def test_what_the_terminal_itself_wrote_is_cleared_before_a_line() -> None:
    written = on_terminal(lambda screen: screen.line("stopping"))
    assert written == "\r\x1b[Kstopping\r\n"


def test_a_terminal_that_is_gone_is_written_to_no_more() -> None:
    main, other = pty.openpty()
    with os.fdopen(other, "w") as stream:
        screen = Screen(stream, {"TERM": "xterm"}, shows_times=True)
        os.close(main)
        screen.line("nobody sees this")
        screen.line("nor this")
