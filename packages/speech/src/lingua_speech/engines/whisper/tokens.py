"""Whisper's vocabulary: tokens <-> text, and the special tokens that control decoding.

Texts are encoded as byte pairs, as in GPT-2. A token's number is also its rank among the merges, so
the vocabulary alone is enough to split a text into tokens.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import pairwise
from math import exp
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from lingua_speech.engine import HeardWord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lingua_speech.sound import Samples

Task = Literal["transcribe", "translate"]

# A word with the space before it, a number, punctuation, or spaces.
PIECES: Final = re.compile(r" ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
FORBIDDEN: Final = np.float32(-np.inf)
# Including the Chinese and Japanese marks.
SENTENCE_ENDS: Final = tuple(mark.encode() for mark in ".?!…\u3002\uff1f\uff01")


class Vocabulary:
    """The tokens of one model directory."""

    def __init__(self, directory: Path) -> None:
        words: dict[str, int] = _json(directory, "vocab.json")
        added: dict[str, int] = _json(directory, "added_tokens.json")
        rules = _json(directory, "generation_config.json")
        letters = {letter: byte for byte, letter in byte_letters().items()}
        # Number of every text token -> its bytes, and the reverse.
        self._bytes = {
            number: bytes(letters[letter] for letter in word)
            for word, number in words.items()
            if word not in added and not word.startswith("<|")
        }
        self._numbers = {piece: number for number, piece in self._bytes.items()}
        special = {**added, **{word: n for word, n in words.items() if word.startswith("<|")}}
        self.start = special["<|startoftranscript|>"]
        self.end = special["<|endoftext|>"]
        self.before = special["<|startofprev|>"]
        self.no_times = special["<|notimestamps|>"]
        # Named nospeech in large-v3, nocaptions in the other sizes.
        self.no_speech = special.get("<|nospeech|>", special.get("<|nocaptions|>", self.before + 1))
        self.tasks: dict[Task, int] = {
            "transcribe": special["<|transcribe|>"],
            "translate": special["<|translate|>"],
        }
        self.languages = {name[2:-2]: number for name, number in rules["lang_to_id"].items()}
        # Tokens with capitals -> their lower-case form, where there is one.
        self.lower_case = {
            number: self._numbers[piece.lower()]
            for number, piece in self._bytes.items()
            if piece.lower() != piece and piece.lower() in self._numbers
        }
        # Tokens that end a sentence.
        self.sentence_ends = frozenset(
            number for number, piece in self._bytes.items() if piece.endswith(SENTENCE_ENDS)
        )
        self._suppressed: list[int] = rules.get("suppress_tokens") or []
        self._suppressed_first: list[int] = rules.get("begin_suppress_tokens") or []

    def masks(self, size: int) -> tuple[Samples, Samples]:
        """Return the values to add to the scores of the first token and of later tokens."""
        later = np.zeros(size, np.float32)
        later[self._suppressed] = FORBIDDEN
        later[self.end + 1 :] = FORBIDDEN
        first = later.copy()
        first[self._suppressed_first] = FORBIDDEN
        return first, later

    def bytes_of(self, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens as bytes; the last character may be incomplete."""
        return b"".join(self._bytes.get(token, b"") for token in tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; an incomplete character at its end is dropped."""
        return self.bytes_of(tokens).decode("utf-8", "ignore")

    def words(self, tokens: Sequence[int], logs: Sequence[float]) -> list[HeardWord]:
        """Return the words of tokens, each as probable as its least probable token.

        `logs` are the logarithms of the tokens' probabilities.
        """
        found: list[tuple[bytes, float]] = []
        for token, log in zip(tokens, logs, strict=True):
            piece = self._bytes.get(token, b"")
            if not found or piece.startswith(b" "):
                found.append((piece, log))
            else:
                before, least = found[-1]
                found[-1] = (before + piece, min(least, log))
        named = ((piece.decode("utf-8", "ignore").strip(), log) for piece, log in found)
        return [HeardWord(text, exp(log)) for text, log in named if text]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        found: list[int] = []
        for piece in PIECES.findall(text):
            found += self._merged(piece.encode())
        return found

    def _merged(self, piece: bytes) -> list[int]:
        parts = [piece[at : at + 1] for at in range(len(piece))]
        while len(parts) > 1:
            ranks = [self._numbers.get(a + b, -1) for a, b in pairwise(parts)]
            known = [rank for rank in ranks if rank >= 0]
            if not known:
                break
            at = ranks.index(min(known))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._numbers[part] for part in parts]


@lru_cache(maxsize=1)
def byte_letters() -> dict[int, str]:
    """Return byte -> the letter that represents it in the vocabulary."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    return letters | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


def _json(directory: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / name).read_text("utf-8"))
    return loaded
