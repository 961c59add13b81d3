"""Messages to bytes and back: JSON in text frames, or MessagePack in binary frames.

Audio is base64 in JSON and raw bytes in MessagePack; the structs are the same. Decoders are built
once, because building one costs more than decoding a thousand messages.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from lingua_wire.errors import InvalidMessage
from lingua_wire.from_client import ClientMessage
from lingua_wire.from_node import NodeMessage
from lingua_wire.to_client import ServerMessage
from lingua_wire.to_node import SchedulerToNode

if TYPE_CHECKING:
    from collections.abc import Callable

JSON_PROTOCOL = "lingua.v1.json"
MSGPACK_PROTOCOL = "lingua.v1.msgpack"
SUBPROTOCOLS = (JSON_PROTOCOL, MSGPACK_PROTOCOL)

Message = TypeVar("Message")

encode_json = msgspec.json.Encoder().encode
encode_msgpack = msgspec.msgpack.Encoder().encode
# What reading a message may raise.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Codec(Generic[Message]):
    """Encodes and decodes the messages of one direction of a socket, in one of the two forms."""

    __slots__ = ("encode", "is_binary", "read")

    def __init__(self, messages: object, *, is_binary: bool) -> None:
        # Messages of this form are sent in binary frames.
        self.is_binary = is_binary
        # What `decode` uses: raises one of `UNREADABLE`. For callers that handle every frame.
        self.read: Callable[[bytes], Message]
        if is_binary:
            self.read = msgspec.msgpack.Decoder(messages).decode
            self.encode = encode_msgpack
        else:
            self.read = msgspec.json.Decoder(messages).decode
            self.encode = encode_json

    def decode(self, data: bytes) -> Message:
        """Return the message, or raise `InvalidMessage` with the reason."""
        try:
            return self.read(data)
        except UNREADABLE as error:
            raise refusal_of(error) from None


def refusal_of(error: Exception) -> InvalidMessage:
    """Return what is wrong with a message that could not be read."""
    if isinstance(error, msgspec.DecodeError):
        return InvalidMessage(str(error))
    return InvalidMessage(f"cannot be read: {type(error).__name__}")


class EncodedAudio:
    """Audio as it is sent in each form, encoded once for all its receivers."""

    __slots__ = ("_parts", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._parts: list[tuple[bytes, ...] | None] = [None, None]

    def parts(self, *, is_binary: bool) -> tuple[bytes, ...]:
        """Return the bytes that replace the empty audio of a message."""
        known = self._parts[is_binary]
        if known is None:
            if is_binary:
                # MessagePack's `bin 32`.
                known = (b"\xc6" + len(self.raw).to_bytes(4, "big"), self.raw)
            else:
                known = (b'"', b2a_base64(self.raw, newline=False), b'"')
            self._parts[is_binary] = known
        return known


# An empty `tts_audio` in a message, in each form. Neither can occur within a text: there quotation
# marks are escaped, or bytes are UTF-8.
EMPTY_AUDIO = (b'"tts_audio":""', b"\xa9tts_audio\xc4\x00")
EMPTY_AUDIO_BYTES = 2


def with_audio(encoded: bytes, audio: EncodedAudio, *, is_binary: bool) -> tuple[bytes, ...]:
    """Return the parts of a message that was encoded without its audio, with the audio inserted.

    The audio is not copied: a result for a whole room is in memory once.
    """
    at = encoded.index(EMPTY_AUDIO[is_binary]) + len(EMPTY_AUDIO[is_binary])
    head, tail = encoded[: at - EMPTY_AUDIO_BYTES], encoded[at:]
    return (head, *audio.parts(is_binary=is_binary), tail)


CLIENT_MESSAGES: tuple[Codec[ClientMessage], Codec[ClientMessage]] = (
    Codec(ClientMessage, is_binary=False),
    Codec(ClientMessage, is_binary=True),
)
NODE_MESSAGES: tuple[Codec[NodeMessage], Codec[NodeMessage]] = (
    Codec(NodeMessage, is_binary=False),
    Codec(NodeMessage, is_binary=True),
)
# The opposite direction: what clients and nodes read.
SERVER_MESSAGES: tuple[Codec[ServerMessage], Codec[ServerMessage]] = (
    Codec(ServerMessage, is_binary=False),
    Codec(ServerMessage, is_binary=True),
)
ASSIGNMENTS: tuple[Codec[SchedulerToNode], Codec[SchedulerToNode]] = (
    Codec(SchedulerToNode, is_binary=False),
    Codec(SchedulerToNode, is_binary=True),
)


def form_of(subprotocol: str | None) -> int:
    """Return which of a pair of codecs a socket uses: 0 is JSON, 1 is MessagePack."""
    return 1 if subprotocol == MSGPACK_PROTOCOL else 0
