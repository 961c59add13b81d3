"""Where a sentence ended within speech that goes on."""

from __future__ import annotations

import pytest

from lingua_speech.engine import HeardWord
from lingua_speech.listening.agreement import Agreement, as_heard
from lingua_speech.listening.ear import Ear
from lingua_speech.listening.sentence_ends import SentenceEnds, is_sentence_end
from listening.sounds import RATE, noise, voice

pytestmark = pytest.mark.unit

WORDS = ["Good", "morning", "everybody.", "The", "meeting"]


def ear_of(*parts: bytes) -> Ear:
    ear = Ear(RATE)
    ear.add(b"".join(parts))
    return ear


def test_the_end_is_the_quiet_place_after_the_last_word() -> None:
    ear = ear_of(noise(200), voice(1300), noise(200), voice(900))
    ends = SentenceEnds()
    ends.hear(2, 1000)
    ends.hear(3, 1600)
    ends.hear(5, 2400)
    end = ends.latest(WORDS, 3, ear)
    assert end is not None
    assert end.words == 3
    assert end.at_ms == pytest.approx(1600, abs=40)


def test_an_end_is_found_that_became_clear_after_its_word_was_stable() -> None:
    ear = ear_of(noise(200), voice(1300), noise(200), voice(900))
    ends, agreement = SentenceEnds(), Agreement()
    hearings = (("good morning everybody", 1600), ("good morning everybody and", 2000))
    for text, upto_ms in hearings:
        so_far = agreement.hear([HeardWord(word, 0.6) for word in text.split()], is_quiet=False)
        ends.hear(len((*so_far.stable, *so_far.unstable)), upto_ms)
    assert "everybody" in agreement.stable
    heard = [HeardWord(word, 0.6) for word in WORDS]
    so_far = agreement.hear(heard, is_quiet=False)
    said = (*so_far.stable, *so_far.unstable)
    ends.hear(len(said), 2400)
    assert ends.latest(said, len(so_far.stable), ear) is None
    end = ends.latest(as_heard(said, heard), len(so_far.stable), ear)
    assert end is not None
    assert end.words == 3
    assert end.at_ms == pytest.approx(1600, abs=40)


def test_without_a_quiet_place_there_is_no_end() -> None:
    ear = ear_of(noise(200), voice(2400))
    ends = SentenceEnds()
    ends.hear(3, 1600)
    ends.hear(5, 2400)
    assert ends.latest(WORDS, 3, ear) is None


def test_a_sentence_that_is_not_stable_or_that_nothing_follows_has_not_ended() -> None:
    ear = ear_of(noise(200), voice(1300), noise(200), voice(900))
    ends = SentenceEnds()
    ends.hear(3, 1600)
    assert ends.latest(WORDS[:3], 3, ear) is None
    ends.hear(5, 2400)
    assert ends.latest(WORDS, 2, ear) is None


def test_a_quiet_place_that_is_far_from_the_word_is_not_taken() -> None:
    # The pause is at the beginning, the sentence ends near the end.
    ear = ear_of(noise(200), voice(200), noise(200), voice(3000))
    words = [
        "A",
        "very",
        "long",
        "sentence",
        "with",
        "a",
        "great",
        "many",
        "words",
        "in",
        "it.",
        "Now",
    ]
    ends = SentenceEnds()
    ends.hear(12, 3500)
    assert ends.latest(words, 11, ear) is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("end.", True),
        ('end."', True),
        ("what?", True),
        ("Mr.", False),
        ("so...", False),
        ("a", False),
    ],
)
def test_what_ends_a_sentence(word: str, expected: bool) -> None:
    assert is_sentence_end(word) is expected
