"""Live captions on a stream: for people on a terminal, plain lines elsewhere.

On a terminal the last lines are redrawn in place: what is being said and its translations. Words
that may still change are grey, those that stay are not. Above them stand the finished utterances:
when, what was said, what it became in each language, how long it took. It is a
`TranslationListener`; it measures nothing. Colours only on a terminal, and not with NO_COLOR.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, TextIO

from lingua_cli.terminal import discard
from lingua_translate.growing_text import (
    ToneSpan,
    growing_line,
    growing_words,
    split_text,
    tail,
)
from lingua_translate.report import STAGES, quantile
from lingua_wire.captions import clean, columns, filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_translate.report import InterpretationReport, Rendition, TranslatedUtterance

COLUMNS_DEFAULT, COLUMNS_MIN = 80, 20
ROWS_DEFAULT, ROWS_MIN = 24, 2
COLOURS: Final = {"said": "1", "good": "32", "bad": "31", "note": "2", "wait": "33"}
# Where texts begin, after the times and languages.
MARGIN: Final = 9
CLEAR_LINE: Final = "\r\x1b[K"
LINE_UP: Final = "\x1b[A"
# Utterances that are redrawn: the one being spoken, and the one before it until its outcome.
OPEN_MAX: Final = 2
STAGE_NAMES: Final = {
    "total": "end of speech → result",
    "asr": "recognising",
    "mt": "translating",
    "tts": "speaking",
    "scheduler": "scheduler itself",
}


class Screen:
    """Shows events as they happen."""

    def __init__(
        self,
        stream: TextIO,
        environ: Mapping[str, str],
        *,
        shows_times: bool,
        prints_partials: bool = False,
    ) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and environ.get("TERM") != "dumb"
        self._has_colours = self._is_terminal and not environ.get("NO_COLOR")
        # Whether latencies are shown: the source comes at the pace of speech.
        self._shows_times = shows_times
        # Whether partial texts are printed as lines where there is no terminal.
        self._prints_partials = prints_partials
        # What is being done, as long as no utterance is open.
        self._doing = ""
        # Utterances that are spoken or translated now, oldest first, and their text so far.
        self._open: list[tuple[TranslatedUtterance, str]] = []
        # How many lines are redrawn; 0: the cursor is at the start of a new line.
        self._drawn = 0
        # The utterance whose text was printed last, and the partial text of each language.
        self._shown: TranslatedUtterance | None = None
        self._printed: dict[str, str] = {}

    @property
    def shows_partials(self) -> bool:
        """Tell whether partial texts are shown at all."""
        return self._is_terminal or self._prints_partials

    # Listener

    def accepted(self, utterance: TranslatedUtterance) -> None:
        """Show that an utterance is being translated."""
        if not any(one is utterance for one, _ in self._open):
            self._begin(utterance, "")

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """Show the text so far, the end of it if it is long."""
        if utterance.renditions:
            return
        if self._is_terminal:
            self._begin(utterance, text)
        elif self._prints_partials:
            self._print_partial(utterance, text)

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Print an utterance in one language."""
        # An outcome replaces the texts so far of everything that was said up to it.
        self._open = [one for one in self._open if one[0].start_ms > utterance.start_ms]
        at = clock(utterance.start_ms)
        if rendition.is_silent:
            self._redraw()
            return
        if self._shown is not utterance:
            self._shown = utterance
            if utterance.text_asr:
                self._paragraph(at, utterance.text_asr, "said")
        name = f"{at} {rendition.target}" if not self._is_terminal else arrow(rendition.target)
        if rendition.reason:
            detail = f": {rendition.detail}" if rendition.detail else ""
            self._paragraph(name, f"(missing: {rendition.reason}{detail})", "bad")
        elif rendition.target and rendition.text:
            self._paragraph(name, rendition.text, "good")
        if self._shows_times and (took := delays(rendition)):
            self._paragraph("" if self._is_terminal else f"{at} time", took, "note")

    def noticed(self, what: str) -> None:
        """Print a notice."""
        self.line(f"({clean(what)})", "wait")

    # For other callers

    def line(self, text: str, tone: str = "plain") -> None:
        """Print one line above those that are redrawn."""
        # The terminal itself may have written there: ^C.
        start = CLEAR_LINE if self._is_terminal and not self._drawn else ""
        self._put(f"{self._erased()}{start}{self._coloured(text, tone)}\n{self._lines()}")

    def waiting(self, text: str) -> None:
        """Show, on a terminal, what is being done."""
        self._doing = text
        self._redraw()

    def finish(self, report: InterpretationReport | None) -> None:
        """End the lines that are redrawn, and print the account of the speech."""
        self._doing, self._open = "", []
        self._redraw()
        if report is not None:
            for label, text, tone in closing_lines(report):
                self._paragraph(label, text, tone)

    def _begin(self, utterance: TranslatedUtterance, text: str) -> None:
        """Show the newest text of an utterance below those that were spoken before it."""
        others = [one for one in self._open if one[0] is not utterance]
        self._open = [*others, (utterance, text)][-OPEN_MAX:]
        self._doing = ""
        self._redraw()

    def _print_partial(self, utterance: TranslatedUtterance, text: str) -> None:
        at = clock(utterance.start_ms)
        for target, stable, unstable in texts_so_far(utterance, text):
            words = growing_words(stable, unstable)
            label = f"{at} {target} so far" if target else f"{at} so far"
            if words and self._printed.get(target) != f"{at} {words}":
                self._printed[target] = f"{at} {words}"
                self.line(f"{label}  {words}")

    def _paragraph(self, label: str, text: str, tone: str) -> None:
        """Print a label and a text beside it, which does not run below the label."""
        margin = max(MARGIN, columns(label) + 1)
        if not self._is_terminal:
            gap = " " if label.endswith(":") else "  "
            self.line(f"{label}{gap}{clean(text)}", tone)
            return
        lines = filled(clean(text), max(COLUMNS_MIN, self._columns() - margin - 1)) or [""]
        printed = self._erased()
        for number, line in enumerate(lines):
            head = label if not number else ""
            gap = " " * (margin - columns(head))
            printed += f"{self._coloured(head, 'note')}{gap}{self._coloured(line, tone)}\n"
        self._put(printed + self._lines())

    # The lines that are redrawn

    def _redraw(self) -> None:
        if text := self._erased() + self._lines():
            self._put(text)

    def _erased(self) -> str:
        """Return what erases the redrawn lines; the cursor is then where they began."""
        drawn, self._drawn = self._drawn, 0
        return CLEAR_LINE + (LINE_UP + CLEAR_LINE) * (drawn - 1) if drawn else ""

    def _lines(self) -> str:
        """Return what draws them: each within one row, and no more than there are rows."""
        if not self._is_terminal:
            return ""
        width = self._columns() - 1
        drawn = [self._drawn_line(line) for line in self._open_lines(width)]
        if not drawn and self._doing:
            drawn = [self._coloured(tail(clean(self._doing), width), "note")]
        drawn = drawn[-max(1, self._rows() - 1) :]
        self._drawn = len(drawn)
        return CLEAR_LINE + "\n".join(drawn) if drawn else ""

    def _open_lines(self, width: int) -> list[list[ToneSpan]]:
        lines = []
        for utterance, text in self._open:
            for target, stable, unstable in texts_so_far(utterance, text):
                label = arrow(target) if target else clock(utterance.start_ms)
                margin = max(MARGIN, columns(label) + 1)
                lines.append(growing_line(label, margin, split_text(stable, unstable), width))
        return lines

    def _drawn_line(self, spans: list[ToneSpan]) -> str:
        return "".join(self._coloured(span.text, span.tone) for span in spans)

    def _put(self, text: str) -> None:
        """Write; a closed terminal shows nothing more, but the files are still written."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            discard(self._stream)

    def _columns(self) -> int:
        """Return the current width: the window may have changed."""
        return max(COLUMNS_MIN, self._size().columns or COLUMNS_DEFAULT)

    def _rows(self) -> int:
        return max(ROWS_MIN, self._size().lines or ROWS_DEFAULT)

    def _size(self) -> os.terminal_size:
        """Return the size of the terminal; 0 where it does not know it."""
        try:
            return os.get_terminal_size(self._stream.fileno())
        except OSError:
            return os.terminal_size((0, 0))

    def _coloured(self, text: str, tone: str) -> str:
        if not self._has_colours or tone not in COLOURS or not text:
            return text
        return f"\x1b[{COLOURS[tone]}m{text}\x1b[0m"


def arrow(target: str) -> str:
    """Return the label of a translation on a terminal."""
    return f"  → {target}"


def texts_so_far(utterance: TranslatedUtterance, text: str) -> list[tuple[str, str, str]]:
    """Return the language (empty: what was said), the firm and the loose text of each line."""
    so_far = utterance.so_far
    if so_far is None:
        return [("", "", text)]
    return [
        ("", so_far.stable, so_far.unstable),
        *(
            (target, one.stable, one.unstable)
            for target, one in so_far.translations.items()
            if one.text.strip()
        ),
    ]


def clock(at_ms: float) -> str:
    """Return a position in the audio in readable form."""
    minutes, seconds = divmod(at_ms / 1000, 60)
    return f"{int(minutes)}:{seconds:04.1f}" if seconds < 59.95 else f"{int(minutes) + 1}:00.0"


def delays(rendition: Rendition) -> str:
    """Return the latencies in one line; empty if they are not known."""
    parts = [f"{name} {ms:.0f}" for name, ms in rendition.stages_ms().items()]
    if rendition.latency_ms is not None:
        parts.insert(0, f"{rendition.latency_ms / 1000:.2f} s after the voice")
    return f"{' · '.join(parts)} ms" if rendition.stages_ms() else "".join(parts)


def closing_lines(report: InterpretationReport) -> list[tuple[str, str, str]]:
    """Return the account of the speech and the latencies: labels, texts and tones."""
    lines = []
    coverage = report.coverage
    if coverage is not None:
        parts = ("admitted", "delivered", "silent", "failed", "skipped")
        said = ", ".join(f"{name} {getattr(coverage, f'{name}_ms')} ms" for name in parts)
        is_good = not (coverage.failed_ms or coverage.skipped_ms or report.lost_ms)
        lost = f", lost {report.lost_ms:.0f} ms" if report.lost_ms else ""
        lines.append(("speech:", f"{said}{lost}", "good" if is_good else "bad"))
    values = report.latencies_ms()
    shown = [
        f"{STAGE_NAMES[name]} {_ms(name, quantile(values[name], 0.5))}"
        f" / {_ms(name, quantile(values[name], 0.95))}"
        for name in ("total", *STAGES)
        if values[name]
    ]
    if shown:
        lines.append(("p50 / p95:", ", ".join(shown), "note"))
    if report.error is not None:
        lines.append(("it ended early:", str(report.error), "bad"))
    return lines


def _ms(name: str, value: float) -> str:
    return f"{value / 1000:.2f} s" if name == "total" else f"{value:.0f} ms"
