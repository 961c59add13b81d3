"""One direct direction: running programs with rules between them, one sentence at a time.

The programs of a mode are cut into stretches at the places where rules may look at the stream:
behind the analyser and the tagger, before transfer and before the generator. Started when first
asked, started again once if they hung or died. Used by the engine, which cuts texts into sentences.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from lingua_scheduler.speech.engine import EngineError
from lingua_scheduler.speech.engines.apertium import protection, stream
from lingua_scheduler.speech.engines.apertium.pipeline import Pipeline, PipelineLost
from lingua_scheduler.speech.engines.apertium.tagging import held_to, whole_again

if TYPE_CHECKING:
    from lingua_scheduler.speech.engines.apertium.edits import Edits, Units
    from lingua_scheduler.speech.engines.apertium.modes import Mode
    from lingua_scheduler.speech.engines.apertium.tagging import Allowed

# A full stop that the tagger needs and the sentence did not have; the blank marks it as ours.
ADDED_STOP: Final = ".[]"
MARK = re.compile(r"(?<![^\W_])[*@#~](?=\w)")
ENDS = (".", "!", "?", "…", ":", ";")

Stage = Literal["analysed", "tagged", "bilingual", "target", ""]


class Line:
    """A direction that can be asked."""

    def __init__(self, mode: Mode, timeout_s: float) -> None:
        self._mode = mode
        self._timeout_s = timeout_s
        # The running stretches of programs, each with the place of rules behind it.
        self._stretches: list[tuple[Pipeline, Stage]] = []
        # How often the programs were started, for whoever watches.
        self.starts = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the processes that run now."""
        return tuple(pid for pipeline, _ in self._stretches for pid in pipeline.pids)

    def translate(self, sentence: str, edits: Edits) -> str:
        """Return one sentence in the other language; raises `EngineError`."""
        text, kept = protection.protect(sentence)
        edited = edits.before(text)
        if not any(character.isalnum() for character in edited):
            return sentence
        answer = self._ask_again_once(edited, edits)
        return protection.restore(edits.after(answer), kept)

    def _ask_again_once(self, text: str, edits: Edits) -> str:
        try:
            return self._ask(text, edits)
        except PipelineLost:
            self.close()
        try:
            return self._ask(text, edits)
        except PipelineLost as error:
            self.close()
            direction = ">".join(self._mode.direction)
            raise EngineError("PROCESSING_ERROR", f"apertium {direction}: {error}") from error

    def _ask(self, text: str, edits: Edits) -> str:
        if not self._stretches:
            self._start()
        added = not text.rstrip().endswith(ENDS)
        data = stream.escape(text.rstrip()) + (ADDED_STOP if added else "[]")
        allowed: Allowed = {}
        for pipeline, stage in self._stretches:
            data = pipeline.ask(data.encode("utf-8", "replace")).decode("utf-8", "replace")
            if not stage:
                continue
            units = stream.read(data)
            if stage == "tagged":
                units = held_to(units, allowed)
            edited: Units = getattr(edits, stage)(units)
            if stage == "analysed":
                edited, allowed = whole_again(units, edited)
            data = stream.write(without_marks(edited) if stage == "target" else edited)
        return _plain(data, added)

    def _start(self) -> None:
        self.starts += 1
        for steps, stage in stretches(self._mode):
            pipeline = Pipeline(steps, self._mode.environment, self._timeout_s)
            self._stretches.append((pipeline, stage))

    def close(self) -> None:
        """End the programs; the next sentence starts them again."""
        for pipeline, _ in self._stretches:
            pipeline.close()
        self._stretches = []


Stretch = tuple[list[tuple[str, ...]], Stage]


def stretches(mode: Mode) -> list[Stretch]:
    """Cut a mode's programs at the places where rules look at the stream."""
    found: list[Stretch] = []
    steps: list[tuple[str, ...]] = []
    for index, step in enumerate(mode.steps):
        steps.append(_flushing(step))
        stage = _stage_behind(mode, index)
        if stage:
            found.append((steps, stage))
            steps = []
    return [*found, (steps, "")] if steps else found


def _stage_behind(mode: Mode, index: int) -> Stage:
    program = mode.steps[index][0].rpartition("/")[2]
    following = mode.steps[index + 1] if index + 1 < len(mode.steps) else ()
    if "$1" in following:
        return "target"
    named: dict[str, Stage] = {"apertium-tagger": "tagged", "lrx-proc": "bilingual"}
    return named.get(program, "analysed" if index == 0 else "")


def _flushing(step: tuple[str, ...]) -> tuple[str, ...]:
    """Return a step that flushes at NUL; `$1` asks the generator for no marks at unknown words."""
    arguments = ["-n" if word == "$1" else word for word in step[1:] if word != "$2"]
    return (step[0], "-z", *arguments)


def without_marks(units: Units) -> Units:
    """Say words that have no translation as they are, without Apertium's mark for it."""
    return [_said(unit) if unit.parts and unit.parts[0].startswith("@") else unit for unit in units]


def _said(unit: stream.Piece) -> stream.Piece:
    word = stream.lemma(unit.parts[0][1:]).replace("#", "")
    return stream.Piece(unit.blank, (f"*{word}",))


def _plain(answer: str, added: bool) -> str:
    """Return the stream's text as people read it."""
    text = answer.replace("[]", "").rstrip()
    if added and text.endswith("."):
        text = text[:-1].rstrip()
    return MARK.sub("", stream.unescape(text)).strip()
