"""Cutting texts into sentences, and reading options."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.extras import install_command
from lingua_scheduler.speech.engine import ModelMissing
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.engines.sentences import is_speakable, plain, split
from lingua_scheduler.speech.engines.stitching import stitched

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("Hello", ["Hello"]),
        ("Hello. How are you? Fine!", ["Hello.", "How are you?", "Fine!"]),
        ("Mr. Smith met Dr. J. Brown. He left.", ["Mr. Smith met Dr. J. Brown.", "He left."]),
        ("It costs 3.50 euros. Really.", ["It costs 3.50 euros.", "Really."]),
        ("Well... yes. No", ["Well... yes.", "No"]),
        ("¿Qué? «Nada.» Bueno.", ["¿Qué?", "«Nada.»", "Bueno."]),
        ("你好。世界！", ["你好。", "世界！"]),  # noqa: RUF001
        ("La Sra. Pérez vino. Se fue.", ["La Sra. Pérez vino.", "Se fue."]),
    ],
)
def test_a_text_is_cut_where_its_sentences_end(text, parts):
    assert split(text) == parts


@given(st.text(), st.integers(min_value=1, max_value=60))
def test_no_piece_is_too_long_and_no_letter_is_lost(text, longest):
    clean = plain(text)
    pieces = split(clean, longest)
    assert all(0 < len(piece) <= longest for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(clean.split())


def test_a_long_sentence_is_cut_at_a_comma_before_it_is_cut_at_a_space():
    text = "one two three four, five six seven eight nine"
    assert split(text, 30) == ["one two three four,", "five six seven eight nine"]
    assert split("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_plain_text_has_no_control_characters_and_single_spaces():
    assert plain("a\x00b\x1b[1m\u202e  c\r\n\td\ud800e") == "a b [1m c d e"
    assert plain("cafe\u0301") == "café"
    joined = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # Persian needs its joiner
    assert plain(joined) == joined


def test_only_what_has_a_letter_or_a_digit_can_be_said():
    assert is_speakable("¡5!")
    assert is_speakable("你")
    assert not is_speakable("... — «»")


def test_stitching_drops_silence_and_puts_pauses_between():
    loud = b"\x00\x20" * 1_600
    sound = stitched([bytes(32_000) + loud + bytes(32_000), bytes(100), loud], 16_000)
    # 100 ms each, 40 ms of edge on two sides of the first, 250 ms between.
    assert sound.duration_ms == pytest.approx(100 + 80 + 250 + 100, abs=1)
    assert stitched([], 8_000).pcm == b""


@pytest.mark.parametrize("text", ["en", "en-", "-es", "en-pt-br", ">es", ""])
def test_a_direction_that_is_none_is_refused(text):
    with pytest.raises(ConfigError):
        reading.direction(text)


def test_directions_lists_and_families_are_read():
    assert reading.direction("en>pt-BR") == ("en", "pt-br")
    assert reading.pairs({"pairs": "en-es+es-en"}, "pairs") == (("en", "es"), ("es", "en"))
    others, voices = reading.family({"voice.es": "a", "rate": "1", "voice": "b"}, "voice")
    assert (others, voices) == ({"rate": "1", "voice": "b"}, {"es": "a"})


@pytest.mark.parametrize("value", ["", "x", "nan", "11", "-1", "1.5"])
def test_a_number_out_of_its_bounds_is_refused(value):
    with pytest.raises(ConfigError):
        reading.whole({"beam": value}, "beam", 0, 10)


def test_a_library_that_is_not_there_is_told_with_the_way_to_get_it():
    with pytest.raises(ModelMissing, match=re.escape(install_command("piper"))):
        reading.library("no_such_library_at_all", extra="piper")


def test_a_folder_must_be_there_with_its_files(tmp_path):
    with pytest.raises(ConfigError, match="FOLDER"):
        reading.folder({"model": ""}, "model")
    with pytest.raises(ModelMissing, match="nothing is fetched from a hub"):
        reading.folder({"model": "large-v3"}, "model")
    with pytest.raises(ModelMissing, match=r"no model\.bin"):
        reading.folder({"model": str(tmp_path)}, "model", "model.bin")


@pytest.mark.parametrize("piece", ["a. ", "a! ", "Mr. ", ".", "x"])
def test_the_work_grows_with_the_text_and_not_with_its_square(piece: str) -> None:
    # Half a million signs: read anew for each mark it would take hours.
    text = piece * (500_000 // len(piece))
    assert "".join(split(text)).replace(" ", "") == text.replace(" ", "")
