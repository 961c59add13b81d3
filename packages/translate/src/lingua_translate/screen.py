"""Live captions on a stream: for people on a terminal, plain lines elsewhere.

On a terminal the last line is redrawn in place, grey: what is being recognised. Above it stand the
finished utterances: when, what was said, what it became in each language, how long it took. It is
a `TranslationListener`; it measures nothing. Colours only on a terminal, and not with NO_COLOR.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, TextIO

from lingua_cli.terminal import discard
from lingua_translate.report import STAGES, quantile
from lingua_wire.captions import clean, columns, filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_translate.report import InterpretationReport, Rendition, TranslatedUtterance

COLUMNS_DEFAULT, COLUMNS_MIN = 80, 20
COLOURS: Final = {"said": "1", "good": "32", "bad": "31", "note": "2", "wait": "33"}
# Where texts begin, after the times and languages.
MARGIN: Final = 9
CLEAR_LINE: Final = "\r\x1b[K"
STAGE_NAMES: Final = {
    "total": "end of speech → result",
    "asr": "recognising",
    "mt": "translating",
    "tts": "speaking",
    "scheduler": "scheduler itself",
}


class Screen:
    """Shows events as they happen."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str], *, shows_times: bool) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and environ.get("TERM") != "dumb"
        self._has_colours = self._is_terminal and not environ.get("NO_COLOR")
        # Whether latencies are shown: the source comes at the pace of speech.
        self._shows_times = shows_times
        # The text on the line that is redrawn; empty: the cursor is at the start of a new line.
        self._pending = ""
        # The utterance whose text was printed last.
        self._shown: TranslatedUtterance | None = None

    # Listener

    def accepted(self, utterance: TranslatedUtterance) -> None:
        """Show that an utterance is being translated."""
        self._redraw(f"{clock(utterance.start_ms)}  …")

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """Show the text recognised so far, the end of it if it is long."""
        if not utterance.renditions:
            self._redraw(f"{clock(utterance.start_ms)}  {clean(text)} …")

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Print an utterance in one language."""
        at = clock(utterance.start_ms)
        if rendition.is_silent:
            self._erase()
            return
        if self._shown is not utterance:
            self._shown = utterance
            if utterance.text_asr:
                self._paragraph(at, utterance.text_asr, "said")
        name = f"{at} {rendition.target}" if not self._is_terminal else f"  → {rendition.target}"
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
        """Print one line above the one that is redrawn."""
        pending = self._pending
        self._erase()
        # The terminal itself may have written there: ^C.
        start = CLEAR_LINE if self._is_terminal else ""
        self._put(f"{start}{self._coloured(text, tone)}\n")
        if pending:
            self._redraw(pending)

    def waiting(self, text: str) -> None:
        """Show, on a terminal, what is being done."""
        self._redraw(text)

    def finish(self, report: InterpretationReport | None) -> None:
        """End the line that is redrawn, and print the account of the speech."""
        self._erase()
        if report is not None:
            for label, text, tone in closing_lines(report):
                self._paragraph(label, text, tone)

    def _paragraph(self, label: str, text: str, tone: str) -> None:
        """Print a label and a text beside it, which does not run below the label."""
        margin = max(MARGIN, columns(label) + 1)
        if not self._is_terminal:
            gap = " " if label.endswith(":") else "  "
            self.line(f"{label}{gap}{clean(text)}", tone)
            return
        lines = filled(clean(text), max(COLUMNS_MIN, self._columns() - margin - 1)) or [""]
        self._erase()
        for number, line in enumerate(lines):
            head = label if not number else ""
            gap = " " * (margin - columns(head))
            self._put(f"{self._coloured(head, 'note')}{gap}{self._coloured(line, tone)}\n")

    def _redraw(self, text: str) -> None:
        if not self._is_terminal:
            return
        self._pending = text
        shown = tail(text, self._columns() - 1)
        self._put(f"{CLEAR_LINE}{self._coloured(shown, 'note')}")

    def _erase(self) -> None:
        if self._pending:
            self._put(CLEAR_LINE)
            self._pending = ""

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
        try:
            columns_now = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            return COLUMNS_DEFAULT
        # A terminal may not know its width, and reports 0.
        return max(COLUMNS_MIN, columns_now or COLUMNS_DEFAULT)

    def _coloured(self, text: str, tone: str) -> str:
        if not self._has_colours or tone not in COLOURS or not text:
            return text
        return f"\x1b[{COLOURS[tone]}m{text}\x1b[0m"


def clock(at_ms: float) -> str:
    """Return a position in the audio in readable form."""
    minutes, seconds = divmod(at_ms / 1000, 60)
    return f"{int(minutes)}:{seconds:04.1f}" if seconds < 59.95 else f"{int(minutes) + 1}:00.0"


def tail(text: str, width: int) -> str:
    """Return the end of a text that fits into so many columns."""
    if columns(text) <= width:
        return text
    used, start = 1, len(text)
    while start and used + columns(text[start - 1]) <= width:
        start -= 1
        used += columns(text[start])
    return f"…{text[start:]}"


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
