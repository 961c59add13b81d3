"""Every message encoded and decoded in both forms, and bytes that are not a message.

Samples are generated from the types, within their bounds, so that a new field is tested without a
change here.
"""

from __future__ import annotations

import base64
import json
import typing
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from lingua_wire import codec as codecs
from lingua_wire.codec import (
    ASSIGNMENTS,
    CLIENT_MESSAGES,
    JSON_PROTOCOL,
    MSGPACK_PROTOCOL,
    NODE_MESSAGES,
    SERVER_MESSAGES,
    Codec,
    form_of,
)
from lingua_wire.errors import InvalidMessage
from lingua_wire.from_client import AudioChunk, ClientMessage, Utterance, WebrtcOffer
from lingua_wire.from_node import JobResult, NodeMessage
from lingua_wire.shared import DEPTH_MAX, ErrorDetail, check_plain
from lingua_wire.to_client import ErrorMessage, ServerMessage, TranslationResult
from lingua_wire.to_node import SchedulerToNode

pytestmark = pytest.mark.unit

PAIRS: list[tuple[Any, tuple[Codec[Any], Codec[Any]]]] = [
    (ClientMessage, CLIENT_MESSAGES),
    (NodeMessage, NODE_MESSAGES),
    (ServerMessage, SERVER_MESSAGES),
    (SchedulerToNode, ASSIGNMENTS),
]
EVERY = [(struct, pair) for union, pair in PAIRS for struct in typing.get_args(union)]
CODECS = [codec for _, pair in PAIRS for codec in pair]
AUDIO = bytes(range(256))

# Values that are passed on without being interpreted.
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def samples(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return values of a type, within its bounds."""
    match kind:
        case inspect.StructType():
            fields = {field.name: samples_of(field) for field in kind.fields}
            return st.builds(kind.cls, **fields)
        case inspect.UnionType():
            return st.one_of(*(samples(each) for each in kind.types))
        case inspect.VarTupleType():
            return st.lists(samples(kind.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            return st.dictionaries(samples(kind.key_type), samples(kind.value_type), max_size=3)
        case inspect.IntType():
            return st.integers(
                -(2**53) if kind.ge is None else kind.ge, 2**53 if kind.le is None else kind.le
            )
        case inspect.StrType():
            return st.text(max_size=min(kind.max_length or 24, 24))
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
    return SIMPLE[type(kind)]


SIMPLE: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.NoneType: st.none(),
    inspect.BoolType: st.booleans(),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BytesType: st.binary(max_size=40),
    inspect.AnyType: PLAIN,
}


def samples_of(field: inspect.Field) -> st.SearchStrategy[Any]:
    """Return values of a field; often its default, so that its absence is tested, too."""
    values = samples(field.type)
    return values if field.required else st.just(field.default) | values


@cache
def messages(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    return samples(inspect.type_info(struct))


@pytest.mark.parametrize(
    ("struct", "pair"), EVERY, ids=lambda value: getattr(value, "__name__", "")
)
@settings(max_examples=12)
@given(data=st.data())
def test_every_message_comes_back_from_its_bytes_as_it_was_and_says_no_more_than_it_must(
    struct: type[msgspec.Struct], pair: tuple[Codec[Any], Codec[Any]], data: st.DataObject
) -> None:
    message = data.draw(messages(struct))
    for codec in pair:
        encoded = codec.encode(message)
        again = codec.decode(encoded)
        assert type(again) is struct
        assert again == message
        written = loosely(codec, encoded)
        assert written.pop("type") == struct.__struct_config__.tag
        for field in msgspec.structs.fields(struct):
            value = getattr(message, field.name)
            is_left_out = not field.required and value == field.default
            assert (field.name not in written) == is_left_out


def loosely(codec: Codec[Any], data: bytes) -> dict[str, Any]:
    """Decode a message of any type."""
    found: dict[str, Any] = (msgspec.msgpack if codec.is_binary else msgspec.json).decode(data)
    return found


def test_audio_is_base64_in_json_and_raw_in_messagepack() -> None:
    chunk = AudioChunk(session_id="s", seq=1, is_final=False, payload=AUDIO)
    as_json, as_msgpack = (codec.encode(chunk) for codec in CLIENT_MESSAGES)
    assert json.loads(as_json)["payload"] == base64.b64encode(AUDIO).decode()
    assert msgspec.msgpack.decode(as_msgpack)["payload"] == AUDIO
    assert AUDIO in as_msgpack
    assert len(as_msgpack) < len(AUDIO) + 80


def test_a_message_read_in_one_form_can_be_written_in_the_other() -> None:
    utterance = Utterance(
        session_id="s",
        utterance_index=0,
        src_lang="zh",
        tgt_lang="en",
        audio=AUDIO,
        audio_format="pcm16",
        sample_rate=16_000,
    )
    as_json, as_msgpack = CLIENT_MESSAGES
    assert as_msgpack.decode(as_msgpack.encode(as_json.decode(as_json.encode(utterance)))) == (
        utterance
    )


def test_a_socket_speaks_messagepack_only_if_that_was_agreed() -> None:
    assert [form_of(name) for name in (None, JSON_PROTOCOL, "x", MSGPACK_PROTOCOL)] == [0, 0, 0, 1]
    for _, (as_json, as_msgpack) in PAIRS:
        assert not as_json.is_binary
        assert as_msgpack.is_binary
    assert codecs.SUBPROTOCOLS == (JSON_PROTOCOL, MSGPACK_PROTOCOL)


def is_message_or_invalid(codec: Codec[Any], data: bytes) -> None:
    try:
        message = codec.decode(data)
    except InvalidMessage:
        return
    # A decoded message can be encoded in either form.
    codecs.encode_json(message)
    codecs.encode_msgpack(message)


@settings(max_examples=300)
@given(data=st.binary(max_size=200), codec=st.sampled_from(CODECS))
def test_bytes_of_any_kind_are_a_message_or_invalid(data: bytes, codec: Codec[Any]) -> None:
    is_message_or_invalid(codec, data)


@settings(max_examples=300)
@given(value=PLAIN, codec=st.sampled_from(CODECS))
def test_values_of_any_shape_are_a_message_or_invalid(value: Any, codec: Codec[Any]) -> None:
    is_message_or_invalid(codec, codec.encode(value))


@settings(max_examples=200)
@given(data=st.data(), case=st.sampled_from(EVERY), form=st.sampled_from((0, 1)))
def test_a_message_with_a_field_of_any_shape_is_a_message_or_invalid(
    data: st.DataObject, case: Any, form: int
) -> None:
    struct, codec = case[0], case[1][form]
    fields = loosely(codec, codec.encode(data.draw(messages(struct))))
    fields[data.draw(st.sampled_from(["type", *struct.__struct_fields__]))] = data.draw(PLAIN)
    is_message_or_invalid(codec, codec.encode(fields))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `type`"),
        (b'{"type":"nobody"}', "Invalid value 'nobody'"),
        (b'{"type":"room_leave","room_code":"\xff"}', "UnicodeDecodeError"),
        (b'{"type":"webrtc_offer","room_code":"1","to":"x","sdp":' + b"[" * 9999, "RecursionError"),
        (b'{"type":"room_leave","room_code":"' + b"1" * 129 + b'"}', "length <= 128"),
    ],
    ids=lambda value: None,
)
def test_bytes_that_are_not_a_message_are_refused_with_the_reason(
    data: bytes, problem: str
) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        CLIENT_MESSAGES[0].decode(data)


def test_a_problem_quotes_no_more_than_a_line_of_what_came_in() -> None:
    with pytest.raises(InvalidMessage) as refused:
        CLIENT_MESSAGES[0].decode(json.dumps({"type": "x" * 100_000}).encode())
    assert len(str(refused.value)) <= 300


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"k": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**64 - 1,
        -(2**63),
        1.5,
        "x",
        b"x",
        [],
        {},
        [{"a": [None]}],
        nested(DEPTH_MAX),
    ],
    ids=str,
)
def test_a_plain_value_can_be_passed_on_in_both_forms(value: Any) -> None:
    check_plain(value)
    relayed = ErrorMessage(code="X", message="m", details=value)
    for codec in SERVER_MESSAGES:
        codec.decode(codec.encode(relayed))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**64, "exceeds 64 bits"),
        (-(2**63) - 1, "exceeds 64 bits"),
        ([{"a": [2**70]}], "exceeds 64 bits"),
        ({1: "x"}, "a key that is not text"),
        ([{None: "x"}], "a key that is not text"),
        (msgspec.msgpack.Ext(5, b"x"), "unknown type: Ext"),
        (nested(DEPTH_MAX + 1), f"deeper than {DEPTH_MAX}"),
    ],
    ids=lambda value: None,
)
def test_a_value_that_cannot_be_passed_on_is_refused_where_it_comes_in(
    value: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        check_plain(value)
    with pytest.raises(ValueError, match=problem):
        WebrtcOffer(room_code="1", to="x", sdp=value)
    with pytest.raises(ValueError, match=problem):
        ErrorDetail(code="X", details=value)
    with pytest.raises(ValueError, match=problem):
        JobResult(job_id="j", success=True, segments_meta=value)


def test_a_message_packs_an_extension_nobody_can_read_and_is_refused() -> None:
    packed = msgspec.msgpack.encode(
        {"type": "webrtc_offer", "room_code": "1", "to": "x", "sdp": msgspec.msgpack.Ext(5, b"x")}
    )
    with pytest.raises(InvalidMessage, match="unknown type: Ext"):
        CLIENT_MESSAGES[1].decode(packed)


def test_an_empty_translation_still_has_its_texts_and_audio() -> None:
    """Existing peers read these fields without checking that they are present."""
    result = TranslationResult(
        session_id="s",
        utterance_index=0,
        job_id="j",
        text_asr="",
        text_translated="",
        tts_audio=b"",
        tts_format="pcm16",
        trace_id="t",
    )
    assert json.loads(SERVER_MESSAGES[0].encode(result)) == {
        "type": "translation_result",
        "session_id": "s",
        "utterance_index": 0,
        "job_id": "j",
        "text_asr": "",
        "text_translated": "",
        "tts_audio": "",
        "tts_format": "pcm16",
        "trace_id": "t",
    }
