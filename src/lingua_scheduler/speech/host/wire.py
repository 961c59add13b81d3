"""What goes between a node and its worker processes, and how it is framed.

A frame is 4 bytes of length, little-endian, and one message in MessagePack. Down go `Load`, `Call`,
`Cancel` and `Close`; up come `Loading`, `Loaded`, `Partial`, `Done` and `Failed`. What a call takes
and gives depends on the engine's role: `ARGUMENTS` and `RESULTS` read that, so that neither side
takes the other's word for a type. Nothing here does input or output.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec.msgpack import Decoder, Encoder

from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.logs import error_text
from lingua_scheduler.speech.engine import (
    About,
    EngineError,
    Heard,
    Hint,
    ModelMissing,
    Rendered,
    Role,
    Sound,
    Span,
    Stopped,
)
from lingua_scheduler.speech.plugins import Spec  # noqa: TC001 `Load` is read by it

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGE_CHARS_MAX: Final = 500
HEADER: Final = struct.Struct("<I")
# The status of a worker process that ended because memory did.
EXIT_MEMORY: Final = 71
# Most frames are smaller and are read in one go.
SCRATCH_BYTES: Final = 64 * 1024

Part = TypeVar("Part")


class FrameTooLarge(LinguaError):
    """A frame is longer than either side may send."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"a frame of {size} bytes; at most {FRAME_BYTES_MAX} are allowed")


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error on its way from a worker process to the node."""

    kind: Literal["engine", "missing", "stopped", "config"]
    # ConfigError: where the setting is. Otherwise the error's code.
    code: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """Describe an error; what is no `LinguaError` may quote speech and is told by its place."""
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


class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """The first frame: what the process shall be."""

    specs: tuple[Spec, ...]
    # 0: as much as there is.
    memory_mb: int
    partial_ms: int


class Call(msgspec.Struct, Generic[Part], frozen=True, array_like=True, tag="call"):
    """Ask one engine; the arguments are those of its role's method, without the watch."""

    id: int
    index: int
    arguments: Part


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Nobody wants that answer any more."""

    id: int


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Close the engines and end."""


class Loading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    """Which engine is being loaded now: known even if that ends the process."""

    index: int


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """Every spec was tried; by index, what came of it."""

    abouts: dict[int, About]
    faults: dict[int, Fault]
    load_s: float


class Partial(msgspec.Struct, frozen=True, array_like=True, tag="partial"):
    """What an engine knows so far."""

    id: int
    text: str


class Done(msgspec.Struct, Generic[Part], frozen=True, array_like=True, tag="done"):
    """An engine's answer."""

    id: int
    result: Part


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """An engine's call ended without an answer; the process goes on."""

    id: int
    fault: Fault


Down = Load | Call[msgspec.Raw] | Cancel | Close
Up = Loading | Loaded | Partial | Done[msgspec.Raw] | Failed

DOWN: Final[Decoder[Down]] = Decoder(Down)
UP: Final[Decoder[Up]] = Decoder(Up)

ARGUMENTS: Final[dict[Role, Decoder[Any]]] = {
    "asr": Decoder(tuple[Sound, Hint]),
    "mt": Decoder(tuple[str, str, str]),
    "tts": Decoder(tuple[str, str]),
    "vad": Decoder(tuple[Sound]),
    "lid": Decoder(tuple[str, tuple[str, ...]]),
    "file": Decoder(tuple[bytes]),
}
RESULTS: Final[dict[Role, Decoder[Any]]] = {
    "asr": Decoder(Heard),
    "mt": Decoder(str | Rendered),
    "tts": Decoder(Sound),
    "vad": Decoder(tuple[Span, ...]),
    "lid": Decoder(dict[str, float]),
    "file": Decoder(Sound),
}

_encoder = Encoder()


def frame(message: msgspec.Struct) -> bytearray:
    """Return a message ready to be sent; TypeError if something in it cannot be."""
    buffer = bytearray(HEADER.size)
    _encoder.encode_into(message, buffer, HEADER.size)
    size = len(buffer) - HEADER.size
    if size > FRAME_BYTES_MAX:
        raise FrameTooLarge(size)
    HEADER.pack_into(buffer, 0, size)
    return buffer


class Assembler:
    """Makes whole frames of what arrives in pieces; long ones are received where they stay."""

    def __init__(self, deliver: Callable[[memoryview], None]) -> None:
        # Told each whole frame; it is valid during that call only.
        self._deliver = deliver
        # Whatever arrives while no long frame is open, and how much of it is not yet taken.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._held = 0
        # The frame that did not fit into what had arrived, and how much of it is there.
        self._body: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Return where the next bytes belong; never empty."""
        if self._body is not None:
            return self._body[self._filled :]
        return self._scratch[self._held :]

    def arrived(self, count: int) -> None:
        """Take so many bytes as written into `space`; raises `FrameTooLarge`."""
        if self._body is None:
            self._held += count
            self._take_held()
            return
        self._filled += count
        if self._filled == len(self._body):
            whole, self._body = self._body, None
            self._deliver(whole)

    def _take_held(self) -> None:
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
        # Less than a header is left.
        rest = bytes(self._scratch[at:end])
        self._scratch[: len(rest)] = rest
        self._held = len(rest)

    def _open(self, size: int, begin: memoryview) -> None:
        self._body = memoryview(bytearray(size))
        self._body[: len(begin)] = begin
        self._filled = len(begin)
