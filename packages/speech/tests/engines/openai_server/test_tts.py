"""Speech synthesis by a server: samples, WAV files, long texts."""

from __future__ import annotations

import pytest

from engines.openai_server.server_engines import connected_engine
from engines.watches import StopAfter
from lingua_speech.engine import EngineError, Sound, Stopped, Unwatched
from lingua_speech.engines.openai_server.tts import wav

pytestmark = pytest.mark.unit


def test_a_text_is_spoken_as_bare_samples(api):
    voice = connected_engine("tts", api, languages="es+en", voice="nova", **{"voice.en": "echo"})
    sound = voice.speak("Buenos días.", "es-mx", Unwatched())
    assert (sound.sample_rate, sound.duration_ms) == (24_000, 120)
    voice.speak("Good day.", "en", Unwatched())
    assert [fields["voice"] for _, fields in api.requests] == ["nova", "echo"]
    assert api.requests[0][1]["response_format"] == "pcm"
    assert voice.about().languages == ("es", "en")


@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_text_is_spoken_as_a_wav_file_even_if_it_was_streamed(api, size):
    api.wav_size = size
    voice = connected_engine("tts", api, languages="es", format="wav")
    assert voice.speak("Buenos días.", "es", Unwatched()).duration_ms == 120


def test_a_long_text_is_spoken_in_pieces_that_the_api_takes(api):
    text = "One more sentence of this long story. " * 200
    voice = connected_engine("tts", api, languages="en")
    sound = voice.speak(text, "en", Unwatched())
    assert len(api.requests) > 4
    assert " ".join(fields["input"] for _, fields in api.requests) == text.strip()
    assert sound.duration_ms > 10 * (len(text) - 200)
    with pytest.raises(Stopped):
        voice.speak(text, "en", StopAfter(3))


def test_nothing_is_not_spoken_and_other_languages_are_refused(api):
    voice = connected_engine("tts", api, languages="en")
    assert voice.speak("...", "en", Unwatched()) == Sound(b"", 24_000)
    with pytest.raises(EngineError, match="'de'"):
        voice.speak("Hallo", "de", Unwatched())
    assert api.requests == []


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"ID3" * 50, b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd"]
)
def test_what_is_no_wav_file_is_an_error(content):
    with pytest.raises(EngineError, match="not a WAV file"):
        wav(content)
