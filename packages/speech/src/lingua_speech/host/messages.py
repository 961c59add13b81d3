"""The messages between a node and its worker processes, and their frames.

A frame is 4 bytes of length, little-endian, and one message in MessagePack. The node sends
`LoadEngines`, `EngineCall`, `CancelCall` and `CloseEngines`; the worker sends `EngineLoading`,
`EnginesLoaded`, `PartialText`, `CallDone` and `CallFailed`. The types of a call's arguments and
result depend on the engine's role: `ARGUMENTS` and `RESULTS` validate them on each side. Nothing
here does input or output.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec.msgpack import Decoder, Encoder

from lingua_cli.logs import error_text
from lingua_speech.engine import (
    About,
    EngineError,
    Hint,
    ModelMissing,
    Rendered,
    Role,
    Sound,
    SpeechSpan,
    Stopped,
    Transcript,
)
from lingua_speech.plugins import Spec  # noqa: TC001 `LoadEngines` is read by it
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGE_CHARS_MAX: Final = 500
HEADER: Final = struct.Struct("<I")
# The exit status of a worker process that ran out of memory.
EXIT_MEMORY: Final = 71
# Most frames are smaller and arrive in one read.
SCRATCH_BYTES: Final = 64 * 1024

Part = TypeVar("Part")


class FrameTooLarge(LinguaError):
    """A frame exceeds the limit of both sides."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"a frame of {size} bytes; at most {FRAME_BYTES_MAX} are allowed")


class EngineFault(msgspec.Struct, frozen=True, array_like=True):
    """An error as a worker process reports it to the node."""

    kind: Literal["engine", "missing", "stopped", "config"]
    # The path of the setting for a ConfigError, otherwise the error code.
    code: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> EngineFault:
        """Describe an error; a foreign one may quote speech, so only its place is reported."""
        match error:
            case Stopped():
                return cls("stopped", error.code, error.message)
            case ModelMissing():
                return cls("missing", error.code, _safe(error.message))
            case EngineError():
                return cls("engine", _safe(error.code), _safe(error.message))
            case ConfigError():
                return cls("config", _safe(error.path), _safe(error.problem))
        return cls("engine", "PROCESSING_ERROR", _safe(error_text(error)))

    def error(self) -> EngineError | ConfigError:
        """Return the error that the node raises."""
        match self.kind:
            case "stopped":
                return Stopped()
            case "missing":
                return ModelMissing(self.message)
            case "config":
                return ConfigError(self.code, self.message)
        return EngineError(self.code, self.message)


def _safe(text: str) -> str:
    return text[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()


class LoadEngines(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """The first frame: the engines and limits of the process."""

    specs: tuple[Spec, ...]
    # 0: no limit.
    memory_mb: int
    partial_ms: int


class EngineCall(msgspec.Struct, Generic[Part], frozen=True, array_like=True, tag="call"):
    """Call one engine; the arguments are those of its role's method, without the watch."""

    id: int
    index: int
    arguments: Part


class CancelCall(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """The answer to a call is no longer needed."""

    id: int


class CloseEngines(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Close the engines and end the process."""


class EngineLoading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    """The engine being loaded now; sent first, so that it is known if loading ends the process."""

    index: int


class EnginesLoaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """Loading has ended; by index, the loaded engines and the errors of the others."""

    abouts: dict[int, About]
    faults: dict[int, EngineFault]
    load_s: float


class PartialText(msgspec.Struct, frozen=True, array_like=True, tag="partial"):
    """The text that an engine has so far."""

    id: int
    text: str


class CallDone(msgspec.Struct, Generic[Part], frozen=True, array_like=True, tag="done"):
    """An engine's answer."""

    id: int
    result: Part


class CallFailed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """A call ended with an error; the process continues."""

    id: int
    fault: EngineFault


ToWorker = LoadEngines | EngineCall[msgspec.Raw] | CancelCall | CloseEngines
FromWorker = EngineLoading | EnginesLoaded | PartialText | CallDone[msgspec.Raw] | CallFailed

TO_WORKER: Final[Decoder[ToWorker]] = Decoder(ToWorker)
FROM_WORKER: Final[Decoder[FromWorker]] = Decoder(FromWorker)

ARGUMENTS: Final[dict[Role, Decoder[Any]]] = {
    "asr": Decoder(tuple[Sound, Hint]),
    "mt": Decoder(tuple[str, str, str]),
    "tts": Decoder(tuple[str, str]),
    "vad": Decoder(tuple[Sound]),
    "lid": Decoder(tuple[str, tuple[str, ...]]),
    "file": Decoder(tuple[bytes]),
}
RESULTS: Final[dict[Role, Decoder[Any]]] = {
    "asr": Decoder(Transcript),
    "mt": Decoder(str | Rendered),
    "tts": Decoder(Sound),
    "vad": Decoder(tuple[SpeechSpan, ...]),
    "lid": Decoder(dict[str, float]),
    "file": Decoder(Sound),
}

_encoder = Encoder()


def frame(message: msgspec.Struct) -> bytearray:
    """Return a message as a frame; raises TypeError for a value that cannot be encoded."""
    buffer = bytearray(HEADER.size)
    _encoder.encode_into(message, buffer, HEADER.size)
    size = len(buffer) - HEADER.size
    if size > FRAME_BYTES_MAX:
        raise FrameTooLarge(size)
    HEADER.pack_into(buffer, 0, size)
    return buffer


class FrameAssembler:
    """Assembles whole frames from chunks; long ones are received into their final buffer."""

    def __init__(self, deliver: Callable[[memoryview], None]) -> None:
        # Called with each whole frame, which is valid during that call only.
        self._deliver = deliver
        # Holds incoming bytes while no long frame is open, and how many are not processed yet.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._held = 0
        # The long frame being received, and how many of its bytes have arrived.
        self._body: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._body is not None:
            return self._body[self._filled :]
        return self._scratch[self._held :]

    def arrived(self, count: int) -> None:
        """Process this many bytes written into `space`; raises `FrameTooLarge`."""
        if self._body is None:
            self._held += count
            self._process_held()
            return
        self._filled += count
        if self._filled == len(self._body):
            whole, self._body = self._body, None
            self._deliver(whole)

    def _process_held(self) -> None:
        at, end = 0, self._held
        while end - at >= HEADER.size:
            (size,) = HEADER.unpack_from(self._scratch, at)
            if size > FRAME_BYTES_MAX:
                raise FrameTooLarge(size)
            at += HEADER.size
            if size > end - at:
                self._open(size, self._scratch[at:end])
                at = end
            else:
                self._deliver(self._scratch[at : at + size])
                at += size
        # Less than a header remains.
        rest = bytes(self._scratch[at:end])
        self._scratch[: len(rest)] = rest
        self._held = len(rest)

    def _open(self, size: int, begin: memoryview) -> None:
        self._body = memoryview(bytearray(size))
        self._body[: len(begin)] = begin
        self._filled = len(begin)
