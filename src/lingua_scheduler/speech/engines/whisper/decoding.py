"""From the hidden states of a sound to tokens: which language, then word by word the likeliest.

Greedy: the likeliest token each time, with no look ahead. Whisper, hearing less than the 30 s it
was taught with, likes to say a text again instead of ending it: so it also ends where the end was
probable and what follows is a beginning that was there already, when it goes round in circles, or
when more was said than can be said in the time. People repeat themselves, too: none of this counts
before there is as much text as the sound should hold. What it is worth the caller judges.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lingua_scheduler.speech.engines.whisper import guards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lingua_scheduler.speech.engines.whisper.network import Memory, Network, Value
    from lingua_scheduler.speech.engines.whisper.tokens import Task, Vocabulary
    from lingua_scheduler.speech.sound import Samples

Cut = Literal["", "repetition_cut", "length_cut"]

# After a full stop within a text the end is mostly less probable than 0.03; at its end more than
# 0.1, also where saying it again is more probable still (40 recordings looked at).
LOG_END_AFTER_SENTENCE = log(0.08)
LOG_END_ANYWHERE = log(0.25)
# So many tokens make a beginning that can be known again.
BEGINNING = 3


class Opening(NamedTuple):
    """The decoder once it has heard the sound and been told language and task."""

    language: str
    task: Task
    # Scores after the start token (of languages, of no speech) and after the last one.
    at_start: Samples
    scores: Samples
    memory: Memory
    # How many tokens there are up to the start token.
    length: int


class Said(NamedTuple):
    """What was decoded; the mean is of the logarithms of the tokens' probabilities."""

    tokens: list[int]
    mean_log: float
    cut: Cut


class Decoder:
    """Decodes with one network and its vocabulary."""

    def __init__(self, network: Network, vocabulary: Vocabulary) -> None:
        self._network = network
        self._vocabulary = vocabulary
        self._mask_first, self._mask_later = vocabulary.masks(network.vocabulary)

    def open(self, hidden: Value, language: str, before: Sequence[int] = ()) -> Opening:
        """Begin a transcript in a language (which may be a guess), after a text said before."""
        words = self._vocabulary
        told = (words.languages[language], words.tasks["transcribe"], words.no_times)
        prompt = [words.before, *before] if before else []
        scores, memory = self._network.begin(hidden, [*prompt, words.start, *told])
        at = len(prompt)
        return Opening(language, "transcribe", scores[at], scores[-1], memory, at + 1)

    def turn(self, opening: Opening, language: str, task: Task) -> Opening:
        """Return the opening with another language or task; the sound is not heard again."""
        if (language, task) == (opening.language, opening.task):
            return opening
        words = self._vocabulary
        memory = self._network.shortened(opening.memory, opening.length)
        scores = opening.scores
        for token in (words.languages[language], words.tasks[task], words.no_times):
            scores, memory = self._network.step(memory, token)
        return opening._replace(language=language, task=task, scores=scores, memory=memory)

    def languages(self, opening: Opening, candidates: Iterable[str]) -> dict[str, float]:
        """Return how probable each language is, if it must be one of these."""
        names = list(candidates)
        scores = opening.at_start[[self._vocabulary.languages[name] for name in names]]
        parts = np.exp(scores - scores.max())
        return dict(zip(names, (parts / parts.sum()).tolist(), strict=True))

    def no_speech(self, opening: Opening) -> float:
        """Return how probable the network finds it that nothing is said."""
        scores = opening.at_start
        return float(np.exp(scores[self._vocabulary.no_speech] - _log_sum(scores)))

    def say(self, opening: Opening, room: guards.Room, tell: Callable[[list[int]], None]) -> Said:
        """Decode as much as there is room for; `tell` is called with all tokens after each."""
        memory = opening.memory
        scores = opening.scores + self._mask_first
        text = _Text(self._vocabulary.sentence_ends, self._vocabulary.small)
        tokens = text.tokens
        while True:
            token = int(scores.argmax())
            total = _log_sum(scores)
            end = float(scores[self._vocabulary.end]) - total
            if token == self._vocabulary.end:
                return Said(tokens, (text.logs + end) / (len(tokens) + 1), "")
            if end > (LOG_END_AFTER_SENTENCE if text.is_after_sentence else LOG_END_ANYWHERE):
                text.note_possible_end()
            text.add(token, float(scores[token]) - total)
            if len(tokens) >= room.enough and (said := text.cut_where_said_before(room.enough)):
                return said
            if len(tokens) >= room.most:
                return Said(tokens, text.mean_log, "length_cut")
            tell(tokens)
            scores, memory = self._network.step(memory, token)
            scores = scores + self._mask_later


class _Text:
    """What was decoded so far, and where it might have ended."""

    def __init__(self, sentence_ends: frozenset[int], small: Mapping[int, int]) -> None:
        self.tokens: list[int] = []
        # Sum of the logarithms of their probabilities.
        self.logs = 0.0
        self._sentence_ends = sentence_ends
        # Tokens -> the same in small letters, where that is another: "Unless", "unless".
        self._small = small
        # How the sentences begin, and where the latest did.
        self._beginnings: set[tuple[int, ...]] = set()
        self._sentence_at = 0
        # How many tokens there were where it might have ended, and their sum; 0: nowhere yet.
        self._possible_end = 0
        self._logs_there = 0.0

    @property
    def mean_log(self) -> float:
        return self.logs / len(self.tokens)

    @property
    def is_after_sentence(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self._sentence_ends

    def add(self, token: int, log_probability: float) -> None:
        # Known from here on, so that none is taken for a repeat of itself.
        if len(self.tokens) == self._sentence_at + BEGINNING:
            self._beginnings.add(self._alike(self._sentence_at))
        if self.is_after_sentence:
            self._sentence_at = len(self.tokens)
        self.tokens.append(token)
        self.logs += log_probability

    def _alike(self, start: int) -> tuple[int, ...]:
        """Return the tokens from there on as they are compared."""
        return tuple(self._small.get(token, token) for token in self.tokens[start:])

    def note_possible_end(self) -> None:
        self._possible_end, self._logs_there = len(self.tokens), self.logs

    def cut_where_said_before(self, enough: int) -> Said | None:
        """Return the text as it was before it began to repeat itself, or None."""
        tokens, end = self.tokens, max(self._possible_end, 1)
        is_anew = len(tokens) == end + BEGINNING and self._alike(end) in self._beginnings
        if is_anew and end >= enough:
            return Said(tokens[:end], self._logs_there / end, "")
        if once := guards.said_anew(tokens):
            return Said(tokens[:once], self.mean_log, "")
        if repeated := guards.repeated(tokens):
            return Said(tokens[:-repeated], self.mean_log, "repetition_cut")
        return None


def _log_sum(scores: Samples) -> float:
    top = scores.max()
    return float(top + np.log(np.exp(scores - top).sum()))
