"""Frames: whole ones are assembled from any chunks, and both sides decode their messages."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engine import (
    METHODS,
    About,
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    SpeechSpan,
    Stopped,
    Transcript,
)
from lingua_speech.host import messages
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

SOUND = Sound(b"\x00\x01" * 40_000, 16_000)


def fed(stream: bytes, sizes: list[int]) -> list[bytes]:
    """Feed a stream in chunks of these sizes, the rest at once; return the frames."""
    frames: list[bytes] = []
    assembler = messages.FrameAssembler(lambda whole: frames.append(bytes(whole)))
    at = 0
    for size in [*sizes, len(stream)]:
        left = min(size, len(stream) - at)
        while left:
            space = assembler.space()
            count = min(left, len(space))
            space[:count] = stream[at : at + count]
            assembler.arrived(count)
            at, left = at + count, left - count
    return frames


@given(
    bodies=st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), max_size=6),
    sizes=st.lists(st.integers(1, 70_000), max_size=12),
)
def test_frames_come_out_whole_however_they_arrive(bodies: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(messages.HEADER.pack(len(body)) + body for body in bodies)
    assert fed(stream, sizes) == bodies


def test_a_frame_that_arrives_byte_by_byte_is_one_frame() -> None:
    stream = bytes(messages.frame(messages.CancelCall(7))) * 3
    frames = fed(stream, [1] * len(stream))
    assert [messages.TO_WORKER.decode(frame) for frame in frames] == [messages.CancelCall(7)] * 3


def test_a_frame_longer_than_allowed_is_refused_before_it_is_read() -> None:
    with pytest.raises(messages.FrameTooLarge):
        fed(messages.HEADER.pack(messages.FRAME_BYTES_MAX + 1), [])


def test_a_message_longer_than_allowed_is_not_framed() -> None:
    with pytest.raises(messages.FrameTooLarge):
        messages.frame(messages.PartialText(1, "x" * (messages.FRAME_BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "message",
    [
        messages.LoadEngines(
            (Spec("asr", "whisper", {"model": "base"}), Spec("vad", "silero")), 512, 100
        ),
        messages.CancelCall(3),
        messages.CloseEngines(),
    ],
)
def test_what_goes_down_is_read_as_it_was(message: msgspec.Struct) -> None:
    assert messages.TO_WORKER.decode(messages.frame(message)[4:]) == message


@pytest.mark.parametrize(
    "message",
    [
        messages.EngineLoading(1),
        messages.EnginesLoaded(
            {0: About(engine="a")}, {1: messages.EngineFault("missing", "M", "x")}, 0.5
        ),
        messages.PartialText(4, "so far"),
        messages.CallFailed(4, messages.EngineFault("engine", "CODE", "why")),
    ],
)
def test_what_comes_up_is_read_as_it_was(message: msgspec.Struct) -> None:
    assert messages.FROM_WORKER.decode(messages.frame(message)[4:]) == message


ASKED: dict[str, tuple[object, ...]] = {
    "asr": (SOUND, Hint(language="en", allowed=("en", "es"))),
    "mt": ("a text", "en", "es"),
    "tts": ("un texto", "es"),
    "vad": (SOUND,),
    "lid": ("a text", ("en", "es")),
    "file": (b"fLaC",),
}
ANSWERED: dict[str, object] = {
    "asr": Transcript(text="a text", language="en", scores={"en": 0.9}, confidence=0.5),
    "mt": "un texto",
    "tts": SOUND,
    "vad": (SpeechSpan(0, 100), SpeechSpan(200, 300)),
    "lid": {"en": 0.75, "es": 0.25},
    "file": SOUND,
}


@pytest.mark.parametrize("role", METHODS)
def test_what_is_asked_of_a_role_and_answered_keeps_its_types(role: str) -> None:
    call = messages.TO_WORKER.decode(messages.frame(messages.EngineCall(1, 0, ASKED[role]))[4:])
    assert isinstance(call, messages.EngineCall)
    assert messages.ARGUMENTS[role].decode(call.arguments) == ASKED[role]  # type: ignore[index]
    done = messages.FROM_WORKER.decode(messages.frame(messages.CallDone(1, ANSWERED[role]))[4:])
    assert isinstance(done, messages.CallDone)
    assert messages.RESULTS[role].decode(done.result) == ANSWERED[role]  # type: ignore[index]


@pytest.mark.parametrize(
    "error",
    [
        EngineError("LANG_PAIR_UNSUPPORTED", "en to xx"),
        ModelMissing("lingua models install x"),
        Stopped(),
        ConfigError("engines", "no such option"),
    ],
)
def test_an_error_is_the_same_on_the_other_side(error: EngineError | ConfigError) -> None:
    raised = messages.EngineFault.of(error).error()
    assert type(raised) is type(error)
    assert str(raised) == str(error)


def test_an_error_of_a_library_is_told_without_what_it_quotes() -> None:
    fault = messages.EngineFault.of(ValueError("the speaker said: hello"))
    assert fault.code == "PROCESSING_ERROR"
    assert "ValueError" in fault.message
    assert "hello" not in fault.message


def test_an_error_that_is_no_text_can_still_be_sent() -> None:
    fault = messages.EngineFault.of(EngineError("CODE", "\ud800" + "x" * 10_000))
    sent = messages.FROM_WORKER.decode(messages.frame(messages.CallFailed(1, fault))[4:])
    assert isinstance(sent, messages.CallFailed)
    assert len(sent.fault.message) <= messages.MESSAGE_CHARS_MAX
