"""A result whose audio is put in after it was encoded is the one that has it all along."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingua_scheduler.messages.codec import NO_SOUND, SERVER_MESSAGES, Sound, with_sound
from lingua_scheduler.messages.shared import ExtraResult
from lingua_scheduler.messages.to_client import TranslationResult

pytestmark = pytest.mark.unit

JSON, MSGPACK = SERVER_MESSAGES
# What looks like the place of the audio and is somebody's words.
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
        session_id=session, utterance_index=1, job_id=job, text_asr=asr,
        text_translated=translated, tts_audio=audio, tts_format="pcm16", trace_id=asr,
        extra=ExtraResult(emotion=more) if more is not None else None, segments_meta=more,
        group_id=translated, seq=5, epoch="e1",
    )  # fmt: skip


def parts_of(message: TranslationResult, sound: Sound, *, is_binary: bool) -> tuple[bytes, ...]:
    encoded = SERVER_MESSAGES[is_binary].encode(msgspec.structs.replace(message, tts_audio=b""))
    return with_sound(encoded, sound, is_binary=is_binary)


@given(words=st.tuples(WORDS, WORDS, WORDS, WORDS), more=MORE, audio=SOUNDS)
@example(words=('"tts_audio":""',) * 4, more={"tts_audio": ""}, audio=b"")
@example(words=("\xa9tts_audio\xc4\x00",) * 4, more={"tts_audio": ""}, audio=b"\x00")
@settings(deadline=None)
def test_it_is_the_message_that_has_the_audio_all_along(
    words: tuple[str, str, str, str], more: Any, audio: bytes
) -> None:
    message, sound = result(words, more, audio), Sound(audio)
    assert b"".join(parts_of(message, sound, is_binary=False)) == JSON.encode(message)
    # MessagePack has several ways to write the length of bytes: it is the same to whoever reads it.
    joined = b"".join(parts_of(message, sound, is_binary=True))
    assert MSGPACK.decode(joined) == message
    assert msgspec.msgpack.decode(joined) == msgspec.msgpack.decode(MSGPACK.encode(message))


@pytest.mark.parametrize("is_binary", [False, True])
def test_the_audio_is_made_once_for_all_and_not_copied(is_binary: bool) -> None:
    sound = Sound(b"x" * 100_000)
    made = [
        parts_of(result((name, "j", "a", "b"), None, b""), sound, is_binary=is_binary)
        for name in ("one", "two")
    ]
    large = [[part for part in parts if len(part) > 90_000] for parts in made]
    assert len(large[0]) == len(large[1]) == 1
    assert large[0][0] is large[1][0]
    if is_binary:
        assert large[0][0] is sound.raw


def test_an_empty_audio_stands_where_it_is_looked_for() -> None:
    message = result(("s", "j", "a", "b"), {"tts_audio": ""}, b"")
    for codec, mark in zip(SERVER_MESSAGES, NO_SOUND, strict=True):
        encoded = codec.encode(message)
        # Before anything that a node may have put into it.
        assert encoded.index(mark) < encoded.index(b"pcm16")
