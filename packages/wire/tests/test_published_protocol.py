"""The published protocol, repeated by hand: every message, every field, and whether it is optional.

An example of each message as existing clients and nodes write it must be decoded, and our messages
must be what they expect. Additions are allowed, but never required.
"""

from __future__ import annotations

import base64
import json
import typing
from typing import Any

import msgspec
import pytest

from lingua_wire.codec import (
    ASSIGNMENTS,
    CLIENT_MESSAGES,
    NODE_MESSAGES,
    SERVER_MESSAGES,
    Codec,
)
from lingua_wire.errors import InvalidMessage
from lingua_wire.from_client import ClientMessage
from lingua_wire.from_node import NodeMessage
from lingua_wire.to_client import ServerMessage
from lingua_wire.to_node import SchedulerToNode

pytestmark = pytest.mark.unit

Fields = dict[str, str]

# Type -> its fields; a question mark means optional.
FROM_CLIENT: Fields = {
    "session_init": "client_version platform src_lang tgt_lang dialect? features? pairing_code? "
    "tenant_id? mode? lang_a? lang_b? auto_langs? enable_streaming_asr? "
    "partial_update_interval_ms? trace_id?",
    "audio_chunk": "session_id seq is_final payload? client_timestamp_ms?",
    "utterance": "session_id utterance_index manual_cut src_lang tgt_lang dialect? features? audio "
    "audio_format sample_rate mode? lang_a? lang_b? auto_langs? enable_streaming_asr? "
    "partial_update_interval_ms? trace_id? pipeline?",
    "client_heartbeat": "session_id timestamp",
    "session_close": "session_id reason",
    "tts_started": "session_id trace_id group_id ts_start_ms",
    "tts_play_ended": "session_id trace_id group_id ts_end_ms",
    "room_create": "client_ts display_name? preferred_lang?",
    "room_join": "room_code display_name? preferred_lang?",
    "room_leave": "room_code",
    "room_raw_voice_preference": "room_code target_session_id receive_raw_voice",
    "webrtc_offer": "room_code to sdp",
    "webrtc_answer": "room_code to sdp",
    "webrtc_ice": "room_code to candidate",
}
TO_CLIENT: Fields = {
    "session_init_ack": "session_id assigned_node_id? message trace_id protocol_version? "
    "use_binary_frame? negotiated_codec? negotiated_audio_format? negotiated_sample_rate? "
    "negotiated_channel_count?",
    "translation_result": "session_id utterance_index job_id text_asr text_translated tts_audio "
    "tts_format extra? trace_id group_id? part_index? service_timings? network_timings? "
    "scheduler_sent_at_ms? asr_quality_level? reason_codes? quality_score? rerun_count? "
    "segments_meta?",
    "asr_partial": "session_id utterance_index job_id text is_final trace_id",
    "missing_result": "session_id utterance_index reason created_at_ms trace_id?",
    "ui_event": "trace_id session_id job_id utterance_index event elapsed_ms? status error_code? "
    "hint?",
    "server_heartbeat": "session_id timestamp",
    "session_close_ack": "session_id",
    "error": "code message details?",
    "room_create_ack": "room_code room_id?",
    "room_members": "room_code members",
    "room_error": "code message?",
    "room_expired": "room_code message",
    "webrtc_offer": "room_code to sdp",
    "webrtc_answer": "room_code to sdp",
    "webrtc_ice": "room_code to candidate",
    "backpressure": "action resume_after_ms? message?",
}
FROM_NODE: Fields = {
    "node_register": "node_id? version capability_schema_version? platform hardware "
    "installed_models installed_services? capability_by_type features_supported "
    "advanced_features? accept_public_jobs language_capabilities?",
    "node_heartbeat": "node_id timestamp resource_usage installed_models? installed_services "
    "capability_by_type rerun_metrics? asr_metrics? processing_metrics? language_capabilities?",
    "job_ack": "job_id attempt_id node_id session_id trace_id",
    "job_started": "job_id attempt_id node_id session_id trace_id",
    "asr_partial": "job_id node_id session_id utterance_index text is_final trace_id",
    "job_result": "job_id attempt_id node_id session_id utterance_index success text_asr? "
    "text_translated? tts_audio? tts_format? extra? processing_time_ms? error? trace_id group_id? "
    "part_index? node_completed_at_ms? asr_quality_level? reason_codes? quality_score? "
    "rerun_count? segments_meta?",
    "node_error": "node_id code message details?",
}
TO_NODE: Fields = {
    "node_register_ack": "node_id message status",
    "error": "code message details?",
    "job_assign": "job_id attempt_id session_id utterance_index src_lang tgt_lang dialect? "
    "features? pipeline audio audio_format sample_rate mode? lang_a? lang_b? auto_langs? "
    "enable_streaming_asr? partial_update_interval_ms? trace_id group_id? part_index? "
    "context_text? padding_ms? is_manual_cut? is_pause_triggered? is_timeout_triggered? "
    "is_max_duration_triggered? turn_id?",
    "job_cancel": "job_id trace_id? reason?",
    "node_status": "node_id status reason? timestamp",
    "node_control": "command reason?",
}
# Sent by nodes and never used: ignored like any unknown field.
NOT_READ = {"rerun_metrics", "asr_metrics", "processing_metrics"}

CATALOGUE: dict[str, tuple[Fields, Any, Codec[Any]]] = {
    "from client": (FROM_CLIENT, ClientMessage, CLIENT_MESSAGES[0]),
    "to client": (TO_CLIENT, ServerMessage, SERVER_MESSAGES[0]),
    "from node": (FROM_NODE, NodeMessage, NODE_MESSAGES[0]),
    "to node": (TO_NODE, SchedulerToNode, ASSIGNMENTS[0]),
}
INBOUND = ("from client", "from node")
OUTBOUND = ("to client", "to node")

FEATURES = {"emotion_detection": True, "persona_adaptation": True}
SERVICES = [
    {"service_id": "faster-whisper-vad", "type": "asr", "device": "gpu", "status": "running",
     "version": "2.0.0", "model_id": "m", "engine": "ct2", "mem_mb": 3000, "warmup_ms": 10},
    {"service_id": "piper-tts", "type": "tts", "device": "cpu", "status": "error",
     "last_error": "no voice"},
]  # fmt: skip
READY = [
    {"type": "asr", "ready": True, "ready_impl_ids": ["faster-whisper-vad"]},
    {"type": "tts", "ready": False, "reason": "no_running_impl"},
    {"type": "punctuation", "ready": True},
]
LANGUAGES = {
    "asr_languages": ["zh", "en"], "tts_languages": ["en"], "semantic_languages": ["zh", "en"],
    "semantic_core_ready": True, "nmt_capabilities": [{"model_id": "m2m", "languages": ["zh"]}],
    "supported_language_pairs": [{"src": "zh", "tgt": "en"}],
}  # fmt: skip
TIMINGS = {"asr_ms": 320.5, "nmt_ms": 200.0, "tts_ms": 150.0, "total_ms": 700.25}
EXTRA = {
    "emotion": "calm", "speech_rate": 1.5, "voice_style": {"pitch": "low"},
    "service_timings": TIMINGS, "language_probability": 0.97,
    "language_probabilities": {"zh": 0.97, "en": 0.03}, "reason": "ASR_EMPTY",
}  # fmt: skip
IN_ROOM = {"room_code": "483920", "to": "s-0A1B2C3D"}
SDP = {"type": "offer", "sdp": "v=0\r\no=- 46117 2 IN IP4 127.0.0.1\r\n"}
ABOUT_JOB = {
    "job_id": "job-4F5E6D7C", "attempt_id": 1, "node_id": "node-9A8B7C6D",
    "session_id": "s-0A1B2C3D", "trace_id": "7c0f6e2e-8a53-4dbb-a2b0-6a3cb0f4c6a1",
}  # fmt: skip
SPOKEN = {"session_id": "s-0A1B2C3D", "utterance_index": 3}

# A complete message of each type, as existing peers write it.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "from client": [
        {"type": "session_init", "client_version": "web-2.1.0", "platform": "android",
         "src_lang": "auto", "tgt_lang": "en", "dialect": "sichuan", "features": FEATURES,
         "pairing_code": "123456", "tenant_id": "acme", "mode": "two_way_auto", "lang_a": "zh",
         "lang_b": "en", "auto_langs": ["zh", "en"], "enable_streaming_asr": True,
         "partial_update_interval_ms": 500, "trace_id": "t-1"},
        {"type": "audio_chunk", "session_id": "s-0A1B2C3D", "seq": 17, "is_final": True,
         "payload": "AAECAw==", "client_timestamp_ms": 1767225600123},
        {"type": "utterance", **SPOKEN, "manual_cut": False, "src_lang": "zh", "tgt_lang": "en",
         "dialect": "d", "features": FEATURES, "audio": "AAECAw==", "audio_format": "pcm16",
         "sample_rate": 16000, "mode": "one_way", "lang_a": "zh", "lang_b": "en",
         "auto_langs": ["zh"], "enable_streaming_asr": False, "partial_update_interval_ms": 1000,
         "trace_id": "t", "pipeline": {"use_asr": True, "use_nmt": True, "use_tts": False,
                                       "use_semantic": True, "use_tone": True}},
        {"type": "client_heartbeat", "session_id": "s-0A1B2C3D", "timestamp": 1767225600123},
        {"type": "session_close", "session_id": "s-0A1B2C3D", "reason": "user_ended"},
        {"type": "tts_started", "session_id": "s-0A1B2C3D", "trace_id": "t", "group_id": "g",
         "ts_start_ms": 1767225600123},
        {"type": "tts_play_ended", "session_id": "s-0A1B2C3D", "trace_id": "t", "group_id": "g",
         "ts_end_ms": 1767225600123},
        {"type": "room_create", "client_ts": 1767225600123, "display_name": "小王",
         "preferred_lang": "zh"},
        {"type": "room_join", "room_code": "483920", "display_name": "Ann", "preferred_lang": "en"},
        {"type": "room_leave", "room_code": "483920"},
        {"type": "room_raw_voice_preference", "room_code": "483920",
         "target_session_id": "s-0A1B2C3D", "receive_raw_voice": False},
        {"type": "webrtc_offer", **IN_ROOM, "sdp": SDP},
        {"type": "webrtc_answer", **IN_ROOM, "sdp": "v=0"},
        {"type": "webrtc_ice", **IN_ROOM, "candidate": {"candidate": "c", "sdpMLineIndex": 0}},
    ],
    "to client": [
        {"type": "session_init_ack", "session_id": "s-0A1B2C3D", "assigned_node_id": "node-1",
         "message": "session created", "trace_id": "t", "protocol_version": "1.0",
         "use_binary_frame": False, "negotiated_codec": "opus", "negotiated_audio_format": "opus",
         "negotiated_sample_rate": 16000, "negotiated_channel_count": 1},
        {"type": "translation_result", **SPOKEN, "job_id": "job-4F5E6D7C", "text_asr": "你好",
         "text_translated": "hello", "tts_audio": "AAECAw==", "tts_format": "pcm16",
         "extra": EXTRA, "trace_id": "t", "group_id": "group_s_1", "part_index": 0,
         "service_timings": TIMINGS, "network_timings": {"web_to_scheduler_ms": 12,
         "scheduler_to_node_ms": 2, "node_to_scheduler_ms": 3, "scheduler_to_web_ms": 4},
         "scheduler_sent_at_ms": 1767225600123, "asr_quality_level": "good",
         "reason_codes": ["LOW_CONFIDENCE"], "quality_score": 0.75, "rerun_count": 1,
         "segments_meta": {"count": 2, "max_gap": 0.5, "avg_duration": 1.25}},
        {"type": "asr_partial", **SPOKEN, "job_id": "", "text": "ni", "is_final": False,
         "trace_id": "t"},
        {"type": "missing_result", **SPOKEN, "reason": "gap_timeout",
         "created_at_ms": 1767225600123, "trace_id": "t"},
        {"type": "ui_event", "trace_id": "t", **SPOKEN, "job_id": "job-1", "event": "ERROR",
         "elapsed_ms": 30, "status": "error", "error_code": "JOB_TIMEOUT", "hint": "too long"},
        {"type": "server_heartbeat", "session_id": "s-0A1B2C3D", "timestamp": 1767225600123},
        {"type": "session_close_ack", "session_id": "s-0A1B2C3D"},
        {"type": "error", "code": "INVALID_MESSAGE", "message": "no", "details": {"line": 1}},
        {"type": "room_create_ack", "room_code": "483920", "room_id": "r"},
        {"type": "room_members", "room_code": "483920", "members": [
            {"participant_id": "s-1", "session_id": "s-1", "display_name": "Ann",
             "preferred_lang": "en", "raw_voice_preferences": {"s-2": False},
             "joined_at": 1767225600123},
            {"participant_id": "s-2", "session_id": "s-2", "joined_at": 1767225600124}]},
        {"type": "room_error", "code": "ROOM_NOT_FOUND", "message": "no such room"},
        {"type": "room_expired", "room_code": "483920", "message": "silent for 30 minutes"},
        {"type": "webrtc_offer", **IN_ROOM, "sdp": SDP},
        {"type": "webrtc_answer", **IN_ROOM, "sdp": SDP},
        {"type": "webrtc_ice", **IN_ROOM, "candidate": None},
        {"type": "backpressure", "action": "SLOW_DOWN", "resume_after_ms": 500, "message": "m"},
    ],
    "from node": [
        {"type": "node_register", "node_id": "node-9A8B7C6D", "version": "2.0.0",
         "capability_schema_version": "2.0", "platform": "windows",
         "hardware": {"cpu_cores": 16, "memory_gb": 32.0,
                      "gpus": [{"name": "RTX 4060", "memory_gb": 8.0}]},
         "installed_models": [{"model_id": "m2m100", "kind": "nmt", "src_lang": "zh",
                               "tgt_lang": "en", "dialect": "d", "version": "1", "enabled": True}],
         "installed_services": SERVICES, "capability_by_type": READY,
         "features_supported": FEATURES, "advanced_features": ["x"], "accept_public_jobs": False,
         "language_capabilities": LANGUAGES},
        {"type": "node_heartbeat", "node_id": "node-9A8B7C6D", "timestamp": 1767225600123,
         "resource_usage": {"cpu_percent": 12.5, "gpu_percent": 40.0, "gpu_mem_percent": 30.0,
                            "mem_percent": 50.0, "running_jobs": 1},
         "installed_models": [], "installed_services": SERVICES, "capability_by_type": READY,
         "rerun_metrics": {"totalReruns": 1}, "asr_metrics": {},
         "processing_metrics": {"serviceEfficiencies": {"piper-tts": 0.5}},
         "language_capabilities": LANGUAGES},
        {"type": "job_ack", **ABOUT_JOB},
        {"type": "job_started", **ABOUT_JOB},
        {"type": "asr_partial", "job_id": "job-1", "node_id": "node-1", **SPOKEN, "text": "ni",
         "is_final": True, "trace_id": "t"},
        {"type": "job_result", **ABOUT_JOB, "utterance_index": 3, "success": False,
         "text_asr": "你好", "text_translated": "hello", "tts_audio": "AAECAw==",
         "tts_format": "pcm16", "extra": EXTRA, "processing_time_ms": 700.0,
         "error": {"code": "MODEL_NOT_AVAILABLE", "message": "no model",
                   "details": {"service_id": "piper-tts", "reason": "missing"}},
         "group_id": "g", "part_index": 1, "node_completed_at_ms": 1767225600123,
         "asr_quality_level": "suspect", "reason_codes": ["A"], "quality_score": 0.5,
         "rerun_count": 2, "segments_meta": {"count": 1}},
        {"type": "node_error", "node_id": "node-1", "code": "GPU_LOST", "message": "gone",
         "details": {"gpu": 0}},
    ],
    "to node": [
        {"type": "node_register_ack", "node_id": "node-1", "message": "registered",
         "status": "registering"},
        {"type": "error", "code": "NODE_ID_CONFLICT", "message": "taken", "details": [1]},
        {"type": "job_assign", "job_id": "job-1", "attempt_id": 1, **SPOKEN, "src_lang": "zh",
         "tgt_lang": "en", "dialect": "d", "features": FEATURES,
         "pipeline": {"use_asr": True, "use_nmt": True, "use_tts": True}, "audio": "AAECAw==",
         "audio_format": "opus", "sample_rate": 16000, "mode": "two_way_auto", "lang_a": "zh",
         "lang_b": "en", "auto_langs": ["zh", "en"], "enable_streaming_asr": True,
         "partial_update_interval_ms": 1000, "trace_id": "t", "group_id": "g", "part_index": 0,
         "context_text": "before", "padding_ms": 280, "is_manual_cut": True,
         "is_pause_triggered": True, "is_timeout_triggered": True,
         "is_max_duration_triggered": True, "turn_id": "u"},
        {"type": "job_cancel", "job_id": "job-1", "trace_id": "t", "reason": "job_timeout"},
        {"type": "node_status", "node_id": "node-1", "status": "ready", "reason": "r",
         "timestamp": 1767225600123},
        {"type": "node_control", "command": "shutdown", "reason": "r"},
    ],
}  # fmt: skip

ENTRIES = [(way, name) for way, (fields, _, _) in CATALOGUE.items() for name in fields]
WRITTEN = [(way, example) for way, examples in EXAMPLES.items() for example in examples]


def struct_of(way: str, name: str) -> type[msgspec.Struct]:
    (found,) = [
        struct
        for struct in typing.get_args(CATALOGUE[way][1])
        if struct.__struct_config__.tag == name
    ]
    return typing.cast("type[msgspec.Struct]", found)


def catalogued(way: str, name: str) -> tuple[set[str], set[str]]:
    """Return the required and the optional fields of a message."""
    words = CATALOGUE[way][0][name].split()
    must = {word for word in words if not word.endswith("?")}
    return must, {word.rstrip("?") for word in words} - must


def known(way: str, name: str) -> dict[str, bool]:
    """Return our fields and whether each is required."""
    return {
        field.encode_name: field.required for field in msgspec.structs.fields(struct_of(way, name))
    }


def is_read_as(read: Any, written: Any) -> bool:
    """Tell whether every value that was written is in the decoded message."""
    if isinstance(read, msgspec.Struct):
        return all(
            is_read_as(getattr(read, name), value)
            for name, value in written.items()
            if name not in NOT_READ
        )
    if isinstance(read, tuple):
        return len(read) == len(written) and all(map(is_read_as, read, written))
    return bool((base64.b64encode(read).decode() if isinstance(read, bytes) else read) == written)


def entry_name(value: object) -> str:
    return str(value["type"] if isinstance(value, dict) else value)


@pytest.mark.parametrize(("way", "name"), ENTRIES, ids=entry_name)
def test_every_field_of_the_catalogue_is_known_by_its_name(way: str, name: str) -> None:
    must, may = catalogued(way, name)
    assert (must | may) - NOT_READ <= known(way, name).keys()


@pytest.mark.parametrize(
    ("way", "name"), [entry for entry in ENTRIES if entry[0] in INBOUND], ids=entry_name
)
def test_nothing_is_asked_of_a_peer_that_the_catalogue_does_not_ask(way: str, name: str) -> None:
    must, _ = catalogued(way, name)
    assert {field for field, required in known(way, name).items() if required} <= must


@pytest.mark.parametrize(
    ("way", "name"), [entry for entry in ENTRIES if entry[0] in OUTBOUND], ids=entry_name
)
def test_what_a_peer_relies_on_is_always_written_and_the_rest_may_be_left_out(
    way: str, name: str
) -> None:
    must, _ = catalogued(way, name)
    assert {field for field, required in known(way, name).items() if required} == must


@pytest.mark.parametrize(("way", "example"), WRITTEN, ids=entry_name)
def test_an_example_has_every_field_of_the_catalogue(way: str, example: dict[str, Any]) -> None:
    must, may = catalogued(way, example["type"])
    assert example.keys() == must | may | {"type"}


def test_every_message_of_the_catalogue_has_an_example() -> None:
    assert sorted(ENTRIES) == sorted((way, example["type"]) for way, example in WRITTEN)


@pytest.mark.parametrize(("way", "example"), WRITTEN, ids=entry_name)
def test_every_value_of_a_message_in_the_field_is_read(way: str, example: dict[str, Any]) -> None:
    message = CATALOGUE[way][2].decode(json.dumps(example).encode())
    assert type(message) is struct_of(way, example["type"])
    assert is_read_as(message, {name: value for name, value in example.items() if name != "type"})


@pytest.mark.parametrize(
    ("way", "example"), [entry for entry in WRITTEN if entry[0] in OUTBOUND], ids=entry_name
)
def test_a_message_is_written_as_peers_in_the_field_expect_it(
    way: str, example: dict[str, Any]
) -> None:
    codec = CATALOGUE[way][2]
    assert json.loads(codec.encode(codec.decode(json.dumps(example).encode()))) == example


@pytest.mark.parametrize(("way", "example"), WRITTEN, ids=entry_name)
def test_only_what_must_be_there_is_written_when_nothing_else_is_known(
    way: str, example: dict[str, Any]
) -> None:
    codec = CATALOGUE[way][2]
    must, _ = catalogued(way, example["type"])
    least = {name: example[name] for name in ("type", *must)}
    written = codec.encode(codec.decode(json.dumps(least).encode()))
    assert json.loads(written).keys() <= least.keys()
    if example.get("candidate", "some") is not None:
        assert b"null" not in written


@pytest.mark.parametrize(
    ("way", "example"), [entry for entry in WRITTEN if entry[0] in INBOUND], ids=entry_name
)
def test_a_field_may_be_null_where_it_may_be_left_out(way: str, example: dict[str, Any]) -> None:
    codec = CATALOGUE[way][2]
    must, may = catalogued(way, example["type"])
    least = {name: example[name] for name in ("type", *must)}
    with_nulls = least | dict.fromkeys(may)
    message = codec.decode(json.dumps(with_nulls).encode())
    assert message == codec.decode(json.dumps(least).encode())


@pytest.mark.parametrize(("way", "example"), WRITTEN, ids=entry_name)
def test_an_unknown_field_is_read_over(way: str, example: dict[str, Any]) -> None:
    codec = CATALOGUE[way][2]
    more = example | {"of_a_later_version": {"deep": [1, None, {"x": "y"}]}, "": 0}
    assert codec.decode(json.dumps(more).encode()) == codec.decode(json.dumps(example).encode())


@pytest.mark.parametrize(
    ("way", "name", "field"),
    [
        (way, name, field)
        for way, name in ENTRIES
        for field, required in known(way, name).items()
        if required
    ],
)
def test_a_message_without_a_field_it_needs_is_refused_by_the_fields_name(
    way: str, name: str, field: str
) -> None:
    (example,) = [one for key, one in WRITTEN if (key, one["type"]) == (way, name)]
    less = {key: value for key, value in example.items() if key != field}
    with pytest.raises(InvalidMessage, match=f"missing required field `{field}`"):
        CATALOGUE[way][2].decode(json.dumps(less).encode())
