"""Whisper's vocabulary: texts to tokens and back, on a small vocabulary."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engines.whisper.tokens import Vocabulary, byte_letters

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.unit


# Merges in order of rank: each is a pair of earlier tokens.
MERGES = [" t", "he", " the", "re", "in", "ó", " m", "an"]


@pytest.fixture(name="words", scope="module")
def small_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Return a vocabulary of all bytes, a few merges and the special tokens."""
    folder = tmp_path_factory.mktemp("vocabulary")
    letters = byte_letters()
    names = [letters[byte] for byte in range(256)]
    names += ["".join(letters[byte] for byte in merge.encode()) for merge in MERGES]
    names.append("<|endoftext|>")
    vocabulary = {name: number for number, name in enumerate(names)}
    steering = ["startoftranscript", "en", "translate", "transcribe", "startofprev"]
    steering += ["nocaptions", "notimestamps"]
    added = {f"<|{name}|>": len(names) + at for at, name in enumerate(steering)}
    rules = {
        "lang_to_id": {"<|en|>": added["<|en|>"]},
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
    }
    for name, content in (("vocab", vocabulary), ("added_tokens", added)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "generation_config.json").write_text(json.dumps(rules))
    return Vocabulary(folder)


@given(text=st.text(max_size=60))
def test_any_text_survives_the_way_to_tokens_and_back(words: Vocabulary, text: str) -> None:
    assert words.text(words.encode(text)) == text


def test_pairs_are_merged_in_the_order_of_their_rank(words: Vocabulary) -> None:
    assert [words.text([token]) for token in words.encode(" then re")] == [" the", "n", " ", "re"]


def test_half_a_character_at_the_end_is_not_shown(words: Vocabulary) -> None:
    tokens = words.encode("ñ")
    assert len(tokens) == 2
    assert words.text(tokens[:1]) == ""


def test_steering_and_suppressed_tokens_cannot_be_said(words: Vocabulary) -> None:
    first, later = words.masks(words.no_times + 10)
    assert np.flatnonzero(np.isinf(later)).tolist()[:2] == [1, 2]
    assert np.isinf(later[words.end + 1 :]).all()
    assert later[words.end] == 0
    assert np.isinf(first[3])
    assert later[3] == 0


def test_a_word_is_as_probable_as_its_least_probable_token(words: Vocabulary) -> None:
    tokens = [*words.encode("ab"), *words.encode(" ba")]
    logs = [math.log(0.9)] * (len(tokens) - 1) + [math.log(0.5)]
    assert [(one.text, round(one.probability, 3)) for one in words.words(tokens, logs)] == [
        ("ab", 0.9),
        ("ba", 0.5),
    ]
