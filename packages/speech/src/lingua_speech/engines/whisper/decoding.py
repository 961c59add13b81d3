"""Decoding of a sound's hidden states: first the language, then the most probable tokens.

The search is greedy: the most probable token each time, without lookahead. With less sound than the
30 s of its training, Whisper tends to repeat a text instead of ending it. So decoding also ends
where the end was probable and the text then begins again, when the text loops, or when it has more
tokens than can be spoken in the time. People repeat themselves as well, so none of this applies
before the text is as long as the sound suggests. The caller judges the quality of the result.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lingua_speech.engines.whisper import guards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lingua_speech.engines.whisper.network import DecoderCache, Value, WhisperNetwork
    from lingua_speech.engines.whisper.tokens import Task, Vocabulary
    from lingua_speech.sound import Samples

Cut = Literal["", "repetition_cut", "length_cut"]

# The probability of the end after a full stop, measured on 40 recordings: mostly below 0.03 within
# a text, above 0.1 at its end, even where a repetition is still more probable.
LOG_END_AFTER_SENTENCE = log(0.08)
LOG_END_ANYWHERE = log(0.25)
# Known tokens are not taken if the mean logarithm of their probabilities is lower.
KNOWN_LOG = -1.5
# The number of tokens by which the beginning of a sentence is recognised.
BEGINNING = 3


class DecodingStart(NamedTuple):
    """The decoder after the sound and the tokens of language and task."""

    language: str
    task: Task
    # Scores after the start token (languages, no speech) and after the last token.
    at_start: Samples
    scores: Samples
    cache: DecoderCache
    # The number of tokens up to and including the start token.
    length: int
    # The first tokens of the text, if they are known, and the logarithms of their probabilities.
    known: tuple[int, ...] = ()
    known_logs: tuple[float, ...] = ()

    @property
    def is_known_improbable(self) -> bool:
        """Tell whether this sound hardly begins with the known tokens."""
        count = len(self.known)
        return bool(count) and sum(self.known_logs) / count < KNOWN_LOG


class DecodedText(NamedTuple):
    """The decoded tokens, and the mean of the logarithms of their probabilities."""

    tokens: list[int]
    mean_log: float
    cut: Cut
    # The logarithm of the probability of each token.
    logs: list[float]


class Decoder:
    """Decodes with one network and its vocabulary."""

    def __init__(self, network: WhisperNetwork, vocabulary: Vocabulary) -> None:
        self._network = network
        self._vocabulary = vocabulary
        self._mask_first, self._mask_later = vocabulary.masks(network.vocabulary)

    def start(
        self,
        hidden: Value,
        language: str,
        before: Sequence[int] = (),
        known: Sequence[int] = (),
    ) -> DecodingStart:
        """Begin a transcript in a (perhaps guessed) language, after the tokens of a context.

        The `known` tokens begin the text; they need a single step.
        """
        vocabulary = self._vocabulary
        steering = (
            vocabulary.languages[language],
            vocabulary.tasks["transcribe"],
            vocabulary.no_times,
        )
        prompt = [vocabulary.before, *before] if before else []
        scores, cache = self._network.begin(hidden, [*prompt, vocabulary.start, *steering, *known])
        at = len(prompt)
        first = at + len(steering)
        logs = (
            float(row[token]) - _log_sum(row)
            for row, token in zip(scores[first:], known, strict=False)
        )
        return DecodingStart(
            language=language,
            task="transcribe",
            at_start=scores[at],
            scores=scores[-1],
            cache=cache,
            length=at + 1,
            known=tuple(known),
            known_logs=tuple(logs),
        )

    def switch(self, start: DecodingStart, language: str, task: Task) -> DecodingStart:
        """Return the start with another language or task; the sound is not processed again."""
        if (language, task) == (start.language, start.task):
            return start
        vocabulary = self._vocabulary
        cache = self._network.truncated(start.cache, start.length)
        scores = start.scores
        for token in (vocabulary.languages[language], vocabulary.tasks[task], vocabulary.no_times):
            scores, cache = self._network.step(cache, token)
        return start._replace(
            language=language, task=task, scores=scores, cache=cache, known=(), known_logs=()
        )

    def languages(self, start: DecodingStart, candidates: Iterable[str]) -> dict[str, float]:
        """Return the probability of each language, given that it is one of these."""
        names = list(candidates)
        scores = start.at_start[[self._vocabulary.languages[name] for name in names]]
        parts = np.exp(scores - scores.max())
        return dict(zip(names, (parts / parts.sum()).tolist(), strict=True))

    def no_speech(self, start: DecodingStart) -> float:
        """Return the network's probability of no speech."""
        scores = start.at_start
        return float(np.exp(scores[self._vocabulary.no_speech] - _log_sum(scores)))

    def decode(
        self, start: DecodingStart, budget: guards.TokenBudget, report: Callable[[list[int]], None]
    ) -> DecodedText:
        """Decode within a budget; `report` is called with all tokens after each new one."""
        cache = start.cache
        scores = start.scores + (self._mask_later if start.known else self._mask_first)
        text = _Text(self._vocabulary.sentence_ends, self._vocabulary.lower_case)
        for token, log_probability in zip(start.known, start.known_logs, strict=True):
            text.add(token, log_probability)
        tokens = text.tokens
        while True:
            token = int(scores.argmax())
            total = _log_sum(scores)
            end = float(scores[self._vocabulary.end]) - total
            if token == self._vocabulary.end:
                mean_log = (sum(text.logs) + end) / (len(tokens) + 1)
                return DecodedText(tokens, mean_log, "", text.logs)
            if end > (LOG_END_AFTER_SENTENCE if text.is_after_sentence else LOG_END_ANYWHERE):
                text.note_possible_end()
            text.add(token, float(scores[token]) - total)
            if len(tokens) >= budget.enough and (
                decoded := text.cut_before_repetition(budget.enough)
            ):
                return decoded
            if len(tokens) >= budget.most:
                return DecodedText(tokens, text.mean_log, "length_cut", text.logs)
            report(tokens)
            scores, cache = self._network.step(cache, token)
            scores = scores + self._mask_later


class _Text:
    """The tokens decoded so far, and where the text might have ended."""

    def __init__(self, sentence_ends: frozenset[int], lower_case: Mapping[int, int]) -> None:
        self.tokens: list[int] = []
        # The logarithms of their probabilities.
        self.logs: list[float] = []
        self._sentence_ends = sentence_ends
        # Token -> its lower-case form, where that is another token: "Unless", "unless".
        self._lower_case = lower_case
        # The beginnings of the sentences, and the index of the latest one.
        self._beginnings: set[tuple[int, ...]] = set()
        self._sentence_at = 0
        # The number of tokens at the last possible end; 0: no possible end yet.
        self._possible_end = 0

    @property
    def mean_log(self) -> float:
        return sum(self.logs) / len(self.tokens)

    @property
    def is_after_sentence(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self._sentence_ends

    def add(self, token: int, log_probability: float) -> None:
        # Added only now, so that no beginning counts as a repetition of itself.
        if len(self.tokens) == self._sentence_at + BEGINNING:
            self._beginnings.add(self._alike(self._sentence_at))
        if self.is_after_sentence:
            self._sentence_at = len(self.tokens)
        self.tokens.append(token)
        self.logs.append(log_probability)

    def _alike(self, start: int) -> tuple[int, ...]:
        """Return the tokens from an index on, in lower case for comparison."""
        return tuple(self._lower_case.get(token, token) for token in self.tokens[start:])

    def note_possible_end(self) -> None:
        self._possible_end = len(self.tokens)

    def cut_before_repetition(self, enough: int) -> DecodedText | None:
        """Return the text up to where it began to repeat itself, or None if it does not."""
        tokens, end = self.tokens, max(self._possible_end, 1)
        is_repeated = len(tokens) == end + BEGINNING and self._alike(end) in self._beginnings
        if is_repeated and end >= enough:
            logs = self.logs[:end]
            return DecodedText(tokens[:end], sum(logs) / end, "", logs)
        if once := guards.repeated_whole(tokens):
            return DecodedText(tokens[:once], self.mean_log, "", self.logs[:once])
        if repeated := guards.repeated(tokens):
            kept = len(tokens) - repeated
            return DecodedText(tokens[:kept], self.mean_log, "repetition_cut", self.logs[:kept])
        return None


def _log_sum(scores: Samples) -> float:
    top = scores.max()
    return float(top + np.log(np.exp(scores - top).sum()))
