"""Audio that is inserted into an encoded result gives the same message as encoding it whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingua_wire.codec import EMPTY_AUDIO, SERVER_MESSAGES, EncodedAudio, with_audio
from lingua_wire.shared import ExtraResult
from lingua_wire.to_client import TranslationResult

pytestmark = pytest.mark.unit

JSON, MSGPACK = SERVER_MESSAGES
# Texts that look like the place of the audio.
LOOKALIKES = [
    '"tts_audio":""',
    '\\"tts_audio\\":\\"\\"',
    ',"tts_audio":"",',
    "tts_audio",
    "\xa9tts_audio\xc4\x00",
    '"',
    "\\",
    "\x00",
    "\u2028",
]
WORDS = st.lists(st.sampled_from(LOOKALIKES) | st.text(max_size=6), max_size=4).map("".join)
SOUNDS = st.binary(max_size=300) | st.sampled_from([b"\x00" * 70_000, bytes(range(256)) * 300])
MORE = st.none() | st.dictionaries(st.just("tts_audio"), st.just("") | WORDS, max_size=1)


def result(words: tuple[str, str, str, str], more: Any, audio: bytes) -> TranslationResult:
    session, job, asr, translated = words
    return TranslationResult(
        session_id=session,
        utterance_index=1,
        job_id=job,
        text_asr=asr,
        text_translated=translated,
        tts_audio=audio,
        tts_format="pcm16",
        trace_id=asr,
        extra=ExtraResult(emotion=more) if more is not None else None,
        segments_meta=more,
        group_id=translated,
        seq=5,
        epoch="e1",
    )


def parts_of(
    message: TranslationResult, audio: EncodedAudio, *, is_binary: bool
) -> tuple[bytes, ...]:
    encoded = SERVER_MESSAGES[is_binary].encode(msgspec.structs.replace(message, tts_audio=b""))
    return with_audio(encoded, audio, is_binary=is_binary)


@given(words=st.tuples(WORDS, WORDS, WORDS, WORDS), more=MORE, audio=SOUNDS)
@example(words=('"tts_audio":""',) * 4, more={"tts_audio": ""}, audio=b"")
@example(words=("\xa9tts_audio\xc4\x00",) * 4, more={"tts_audio": ""}, audio=b"\x00")
def test_inserted_audio_gives_the_same_message(
    words: tuple[str, str, str, str], more: Any, audio: bytes
) -> None:
    message, encoded = result(words, more, audio), EncodedAudio(audio)
    assert b"".join(parts_of(message, encoded, is_binary=False)) == JSON.encode(message)
    # MessagePack can encode the length of bytes in several ways: all decode to the same message.
    joined = b"".join(parts_of(message, encoded, is_binary=True))
    assert MSGPACK.decode(joined) == message
    assert msgspec.msgpack.decode(joined) == msgspec.msgpack.decode(MSGPACK.encode(message))


@pytest.mark.parametrize("is_binary", [False, True])
def test_audio_is_encoded_once_for_all_receivers_and_not_copied(is_binary: bool) -> None:
    audio = EncodedAudio(b"x" * 100_000)
    made = [
        parts_of(result((name, "j", "a", "b"), None, b""), audio, is_binary=is_binary)
        for name in ("one", "two")
    ]
    large = [[part for part in parts if len(part) > 90_000] for parts in made]
    assert len(large[0]) == len(large[1]) == 1
    assert large[0][0] is large[1][0]
    if is_binary:
        assert large[0][0] is audio.raw


def test_empty_audio_is_found_before_the_values_of_a_node() -> None:
    message = result(("s", "j", "a", "b"), {"tts_audio": ""}, b"")
    for codec, mark in zip(SERVER_MESSAGES, EMPTY_AUDIO, strict=True):
        encoded = codec.encode(message)
        assert encoded.index(mark) < encoded.index(b"pcm16")
