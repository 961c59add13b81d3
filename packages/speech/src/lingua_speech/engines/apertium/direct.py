"""One direct direction: running programs with rules between them, one sentence at a time.

The programs of a mode are cut into segments at the places where rules edit the stream: after the
analyser and the tagger, before transfer and before the generator. They are started at the first
use, and restarted once if they hang or die. Used by the engine, which splits texts into sentences.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from lingua_speech.engine import EngineError
from lingua_speech.engines.apertium import protection, stream
from lingua_speech.engines.apertium.pipeline import PipelineLost, ProcessPipeline
from lingua_speech.engines.apertium.tagging import restrict_to_allowed, with_all_readings

if TYPE_CHECKING:
    from lingua_speech.engines.apertium.modes import Mode
    from lingua_speech.engines.apertium.sentence_rules import SentenceRules
    from lingua_speech.engines.apertium.stream import Units
    from lingua_speech.engines.apertium.tagging import Allowed

# A full stop that the tagger needs and the sentence lacks; the empty blank marks it as added.
ADDED_STOP: Final = ".[]"
MARK = re.compile(r"(?<![^\W_])[*@#~](?=\w)")
ENDS = (".", "!", "?", "…", ":", ";")

Stage = Literal["analysed", "tagged", "bilingual", "target", ""]


class DirectTranslator:
    """Translates sentences in one direction with the programs of its mode."""

    def __init__(self, mode: Mode, timeout_s: float) -> None:
        self._mode = mode
        self._timeout_s = timeout_s
        # The running segments of programs, each with the stage of the rules that follow it.
        self._segments: list[tuple[ProcessPipeline, Stage]] = []
        # How often the programs were started, for tests and measurements.
        self.starts = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the running processes."""
        return tuple(pid for pipeline, _ in self._segments for pid in pipeline.pids)

    def translate(self, sentence: str, rules: SentenceRules) -> str:
        """Translate one sentence; raises `EngineError`."""
        text, kept = protection.protect(sentence)
        edited = rules.before(text)
        if not any(character.isalnum() for character in edited):
            return sentence
        answer = self._run_with_retry(edited, rules)
        return protection.restore(rules.after(answer), kept)

    def _run_with_retry(self, text: str, rules: SentenceRules) -> str:
        try:
            return self._run(text, rules)
        except PipelineLost:
            self.close()
        try:
            return self._run(text, rules)
        except PipelineLost as error:
            self.close()
            direction = ">".join(self._mode.direction)
            raise EngineError("PROCESSING_ERROR", f"apertium {direction}: {error}") from error

    def _run(self, text: str, rules: SentenceRules) -> str:
        if not self._segments:
            self._start()
        added = not text.rstrip().endswith(ENDS)
        data = stream.escape(text.rstrip()) + (ADDED_STOP if added else "[]")
        allowed: Allowed = {}
        for pipeline, stage in self._segments:
            data = pipeline.ask(data.encode("utf-8", "replace")).decode("utf-8", "replace")
            if not stage:
                continue
            units = stream.read(data)
            if stage == "tagged":
                units = restrict_to_allowed(units, allowed)
            edited: Units = getattr(rules, stage)(units)
            if stage == "analysed":
                edited, allowed = with_all_readings(units, edited)
            data = stream.write(without_marks(edited) if stage == "target" else edited)
        return _plain(data, added)

    def _start(self) -> None:
        self.starts += 1
        for steps, stage in segments(self._mode):
            pipeline = ProcessPipeline(steps, self._mode.environment, self._timeout_s)
            self._segments.append((pipeline, stage))

    def close(self) -> None:
        """End the programs; the next sentence restarts them."""
        for pipeline, _ in self._segments:
            pipeline.close()
        self._segments = []


Segment = tuple[list[tuple[str, ...]], Stage]


def segments(mode: Mode) -> list[Segment]:
    """Cut the programs of a mode at the places where rules edit the stream."""
    found: list[Segment] = []
    steps: list[tuple[str, ...]] = []
    for index, step in enumerate(mode.steps):
        steps.append(_flushing(step))
        stage = _stage_after(mode, index)
        if stage:
            found.append((steps, stage))
            steps = []
    return [*found, (steps, "")] if steps else found


def _stage_after(mode: Mode, index: int) -> Stage:
    program = mode.steps[index][0].rpartition("/")[2]
    following = mode.steps[index + 1] if index + 1 < len(mode.steps) else ()
    if "$1" in following:
        return "target"
    named: dict[str, Stage] = {"apertium-tagger": "tagged", "lrx-proc": "bilingual"}
    return named.get(program, "analysed" if index == 0 else "")


def _flushing(step: tuple[str, ...]) -> tuple[str, ...]:
    """Return a step that flushes at NUL; with `-n` for `$1`, unknown words are not marked."""
    arguments = ["-n" if word == "$1" else word for word in step[1:] if word != "$2"]
    return (step[0], "-z", *arguments)


def without_marks(units: Units) -> Units:
    """Keep words without a translation as they are, without Apertium's mark."""
    return [
        _unmarked(unit) if unit.parts and unit.parts[0].startswith("@") else unit for unit in units
    ]


def _unmarked(unit: stream.LexicalUnit) -> stream.LexicalUnit:
    word = stream.lemma(unit.parts[0][1:]).replace("#", "")
    return stream.LexicalUnit(unit.blank, (f"*{word}",))


def _plain(answer: str, added: bool) -> str:
    """Return the output of the stream as plain text."""
    text = answer.replace("[]", "").rstrip()
    if added and text.endswith("."):
        text = text[:-1].rstrip()
    return MARK.sub("", stream.unescape(text)).strip()
