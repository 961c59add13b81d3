"""Messages to bytes and back: JSON in text frames, or MessagePack in binary frames.

Audio is base64 inside JSON and raw bytes inside MessagePack; the structs are the same. Decoders are
built once, because building one costs more than a thousand messages.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import Generic, TypeVar

import msgspec

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.messages.from_client import ClientMessage
from lingua_scheduler.messages.from_node import NodeMessage
from lingua_scheduler.messages.to_client import ServerMessage
from lingua_scheduler.messages.to_node import SchedulerToNode

JSON_PROTOCOL = "lingua.v1.json"
MSGPACK_PROTOCOL = "lingua.v1.msgpack"
SUBPROTOCOLS = (JSON_PROTOCOL, MSGPACK_PROTOCOL)

Message = TypeVar("Message")

encode_json = msgspec.json.Encoder().encode
encode_msgpack = msgspec.msgpack.Encoder().encode


class Codec(Generic[Message]):
    """How one direction of one socket reads its messages, in one of the two forms."""

    __slots__ = ("_decode", "encode", "is_binary")

    def __init__(self, messages: object, *, is_binary: bool) -> None:
        # Messages of this form travel in binary frames.
        self.is_binary = is_binary
        if is_binary:
            self._decode = msgspec.msgpack.Decoder(messages).decode
            self.encode = encode_msgpack
        else:
            self._decode = msgspec.json.Decoder(messages).decode
            self.encode = encode_json

    def decode(self, data: bytes) -> Message:
        """Return the message, or raise `InvalidMessage` saying what is wrong with it."""
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except msgspec.DecodeError as error:
            raise InvalidMessage(str(error)) from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise InvalidMessage(f"cannot be read: {type(error).__name__}") from None


class Sound:
    """Audio as it goes over the wire in each form, made once for all who get it."""

    __slots__ = ("_parts", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._parts: list[tuple[bytes, ...] | None] = [None, None]

    def parts(self, *, is_binary: bool) -> tuple[bytes, ...]:
        """Return what stands in a message in place of empty audio."""
        known = self._parts[is_binary]
        if known is None:
            if is_binary:
                # MessagePack's `bin 32`.
                known = (b"\xc6" + len(self.raw).to_bytes(4, "big"), self.raw)
            else:
                known = (b'"', b2a_base64(self.raw, newline=False), b'"')
            self._parts[is_binary] = known
        return known


# How an empty `tts_audio` stands in a message. Neither can be part of a text: there quotation marks
# are escaped, or bytes are UTF-8.
NO_SOUND = (b'"tts_audio":""', b"\xa9tts_audio\xc4\x00")
EMPTY_SOUND_BYTES = 2


def with_sound(encoded: bytes, sound: Sound, *, is_binary: bool) -> tuple[bytes, ...]:
    """Return the parts of a message that was encoded without its audio, and the audio in between.

    The audio is not copied: a result for a whole room is in memory once.
    """
    at = encoded.index(NO_SOUND[is_binary]) + len(NO_SOUND[is_binary])
    return (
        encoded[: at - EMPTY_SOUND_BYTES], *sound.parts(is_binary=is_binary), encoded[at:]
    )  # fmt: skip


CLIENT_MESSAGES: tuple[Codec[ClientMessage], Codec[ClientMessage]] = (
    Codec(ClientMessage, is_binary=False),
    Codec(ClientMessage, is_binary=True),
)
NODE_MESSAGES: tuple[Codec[NodeMessage], Codec[NodeMessage]] = (
    Codec(NodeMessage, is_binary=False),
    Codec(NodeMessage, is_binary=True),
)
# The other way round: what a client and a node read.
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
