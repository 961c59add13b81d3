"""From the hidden states of a sound to tokens: which language, then word by word the likeliest.

Greedy: the likeliest token each time, with no look ahead. It ends at the end token, or where that
is probable after a sentence: Whisper, hearing less than the 30 s it was taught with, likes to say
a text again instead of ending it. It also ends when it goes round in circles, or when more was
said than can be said in the time. What the tokens are worth is judged by the caller (`guards.py`).
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lingua_scheduler.speech.engines.whisper import guards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lingua_scheduler.speech.engines.whisper.network import Memory, Network, Value
    from lingua_scheduler.speech.engines.whisper.tokens import Task, Vocabulary
    from lingua_scheduler.speech.sound import Samples

Cut = Literal["", "repetition_cut", "length_cut"]

# After a full stop within a text the end is less probable than 0.03; at its end more than 0.1,
# also where saying it again is more probable still (40 recordings looked at).
LOG_END_AFTER_SENTENCE = log(0.08)


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

    def say(self, opening: Opening, limit: int, tell: Callable[[list[int]], None]) -> Said:
        """Decode up to so many tokens; `tell` is called with all of them after each."""
        memory = opening.memory
        scores = opening.scores + self._mask_first
        tokens: list[int] = []
        logs = 0.0
        while True:
            token = int(scores.argmax())
            total = _log_sum(scores)
            if token == self._vocabulary.end or self._may_end(tokens, scores, total):
                # Of the end that was chosen, not of what would have gone on.
                logs += float(scores[self._vocabulary.end]) - total
                return Said(tokens, logs / (len(tokens) + 1), "")
            logs += float(scores[token]) - total
            tokens.append(token)
            if once := guards.said_anew(tokens):
                return Said(tokens[:once], logs / len(tokens), "")
            repeated = guards.repeated(tokens)
            if repeated or len(tokens) >= limit:
                mean = logs / len(tokens)
                del tokens[len(tokens) - repeated :]
                return Said(tokens, mean, "repetition_cut" if repeated else "length_cut")
            tell(tokens)
            scores, memory = self._network.step(memory, token)
            scores = scores + self._mask_later

    def _may_end(self, tokens: list[int], scores: Samples, total: float) -> bool:
        """Tell whether a sentence has ended here and, probably enough, the text with it."""
        words = self._vocabulary
        if not tokens or tokens[-1] not in words.sentence_ends:
            return False
        return float(scores[words.end]) - total > LOG_END_AFTER_SENTENCE


def _log_sum(scores: Samples) -> float:
    top = scores.max()
    return float(top + np.log(np.exp(scores - top).sum()))
