"""The messages as tables for people: every field with its type in words, need and meaning.

docs/protocol.md shows them; nothing here is used while serving. Types and bounds come from the
structs themselves, meanings from `MEANINGS`: by field name, or by `Struct.field` where one name
means different things. A test fails for a field without a meaning and for a meaning without field.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import NODEFAULT, inspect

from lingua_scheduler.messages.codes import CLOSES, RETRYABLE_NODE_ERRORS, CloseCode, ErrorCode
from lingua_scheduler.messages.from_client import ClientMessage
from lingua_scheduler.messages.from_node import NodeMessage
from lingua_scheduler.messages.to_client import ServerMessage
from lingua_scheduler.messages.to_node import SchedulerToNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    Struct = type[msgspec.Struct]

# Each direction of each socket, by the name of its block in docs/protocol.md.
DIRECTIONS: dict[str, Any] = {
    "client-to-server": ClientMessage,
    "server-to-client": ServerMessage,
    "node-to-server": NodeMessage,
    "server-to-node": SchedulerToNode,
}


class FieldRow(NamedTuple):
    """One field of a message."""

    name: str
    kind: str
    # `required`, `optional`, or `optional` with what its absence means.
    need: str
    meaning: str


class MessageTable(NamedTuple):
    """A message, or a part of several."""

    name: str
    sentence: str
    rows: tuple[FieldRow, ...]


def messages_of(direction: str) -> list[MessageTable]:
    """Return the messages of one direction in the order of the code."""
    return [_table(struct, _tag(struct)) for struct in typing.get_args(DIRECTIONS[direction])]


def shared_parts() -> list[MessageTable]:
    """Return the structures inside messages, by name."""
    found: dict[str, Struct] = {}
    for union in DIRECTIONS.values():
        for struct in typing.get_args(union):
            found |= {part.__name__: part for part in _parts(inspect.type_info(struct))}
    return [_table(found[name], name) for name in sorted(found)]


def error_rows() -> list[tuple[str, str, str, str]]:
    """Return every error code: its meaning, whether another node tries after it, its hint."""
    return [
        (code.value, ERRORS[code], "yes" if code in RETRYABLE_NODE_ERRORS else "", code.hint)
        for code in ErrorCode
    ]


def close_rows() -> list[tuple[str, str, str, str]]:
    """Return every close code: its name, its meaning and whether reconnecting helps."""
    return [(str(int(code)), code.name, *CLOSES[code]) for code in CloseCode]


def kind_in_words(kind: inspect.Type) -> str:
    """Say in words which values a field takes."""
    match kind:
        case inspect.StrType(max_length=longest):
            words = "text" if longest is None else f"text, at most {longest} characters"
        case inspect.IntType(ge=low, le=high):
            bounds = "" if low is None else f", {_number(low)} to {_number(high)}"
            words = f"whole number{bounds}"
        case inspect.VarTupleType(item_type=item, max_length=most):
            words = f"list{'' if most is None else f' of at most {most}'}: {kind_in_words(item)}"
        case inspect.DictType(value_type=value):
            words = f"object, text to {kind_in_words(value)}"
        case inspect.LiteralType(values=values):
            words = " or ".join(f"`{value}`" for value in values)
        case inspect.UnionType(types=types):
            some = (item for item in types if not isinstance(item, inspect.NoneType))
            words = " or ".join(kind_in_words(item) for item in some)
        case inspect.StructType(cls=struct):
            words = f"[{struct.__name__}](#{struct.__name__.lower()})"
        case _:
            words = WORDS[type(kind)]
    return words


def _table(struct: Struct, name: str) -> MessageTable:
    rows = tuple(
        FieldRow(
            field.encode_name,
            kind_in_words(field.type),
            _need(field),
            meaning_of(struct.__name__, field.encode_name),
        )
        for field in _info(struct).fields
    )
    return MessageTable(name, " ".join((struct.__doc__ or "").split()), rows)


def meaning_of(struct: str, field: str) -> str:
    """Return what a field means in a message or part."""
    return MEANINGS.get(f"{struct}.{field}") or MEANINGS[field]


def _need(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default in (NODEFAULT, None, "", ()):
        return "optional"
    return f"optional, else `{str(field.default).lower()}`"


def _tag(struct: Struct) -> str:
    return str(_info(struct).tag)


def _info(struct: Struct) -> inspect.StructType:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info


def _parts(kind: inspect.Type) -> Iterator[Struct]:
    """Give the structures inside a message, however deep."""
    match kind:
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _named_parts(field.type)


def _named_parts(kind: inspect.Type) -> Iterator[Struct]:
    match kind:
        case inspect.StructType(cls=struct):
            yield struct
            yield from _parts(kind)
        case inspect.UnionType(types=types):
            for item in types:
                yield from _named_parts(item)
        case inspect.VarTupleType(item_type=item):
            yield from _named_parts(item)


def _number(value: float | None) -> str:
    """Write a bound as people do: large ones as a power of two."""
    assert value is not None
    whole = int(value)
    power = abs(whole).bit_length() - 1
    if power >= 32 and abs(whole) == 1 << power:
        return f"{'-' if whole < 0 else ''}2^{power}"
    return str(whole)


WORDS: dict[type, str] = {
    inspect.BoolType: "true or false",
    inspect.FloatType: "number",
    inspect.BytesType: "audio: base64 text in JSON, bytes in MessagePack",
    inspect.AnyType: "any value",
}

TRACE = "Follows an utterance through every message and log; echoed."
ECHOED = "As in `job_assign`; not looked at."

# Field -> what it means; `Struct.field` where the name alone does not tell.
MEANINGS: dict[str, str] = {
    # Sessions
    "client_version": "For logs.",
    "platform": "`android`, `ios`, `web`, `api-gateway`, or any other text; for logs.",
    "src_lang": "The language spoken, or `auto`.",
    "tgt_lang": "The language wanted.",
    "tgt_langs": "Several wanted languages, at most 16; wins over `tgt_lang`.",
    "dialect": "Passed to the node.",
    "features": "What a node must be able to do besides.",
    "pairing_code": "Six digits that make one node the preferred one.",
    "tenant_id": "Ignored: the tenant comes only from the token.",
    "mode": "`two_way_auto`: whichever of two languages is spoken, the other is given.",
    "Utterance.mode": "Ignored: the session's holds.",
    "JobAssign.mode": "`two_way_auto`: find out which of two languages is spoken, give the other.",
    "lang_a": "One language of a `two_way_auto` session.",
    "lang_b": "The other one.",
    "Utterance.lang_a": "Ignored: the session's holds.",
    "Utterance.lang_b": "Ignored: the session's holds.",
    "auto_langs": "With `auto`: the languages it may be.",
    "Utterance.auto_langs": "Ignored: the session's hold.",
    "enable_streaming_asr": "Whether the node sends partial texts.",
    "Utterance.enable_streaming_asr": "Ignored: the session's holds.",
    "partial_update_interval_ms": "How often it should.",
    "Utterance.partial_update_interval_ms": "Ignored: the session's holds.",
    "trace_id": TRACE,
    "SessionInit.trace_id": "Follows the session through every message and log; else one is made.",
    "TtsStarted.trace_id": "Not looked at.",
    "TtsPlayEnded.trace_id": "Not looked at.",
    "audio_format": "`pcm16` (little-endian, mono) or `opus` (opaque).",
    "SessionInit.audio_format": "`pcm16` (little-endian, mono) or `opus` (opaque); else `opus`.",
    "sample_rate": "Samples per second.",
    "SessionInit.sample_rate": "Samples per second; else 16000.",
    "pipeline": "Which stages are wanted; else recognise, translate, speak.",
    "silence_ms": "How much silence ends its utterances (pcm16); else as configured.",
    "glossary": "Words and phrases to keep, or to call as it says; at most 16 KiB of text. Its"
    " tenant's count, too.",
    "JobAssign.glossary": "Words and phrases to keep, or to call as it says: of the session and its"
    " tenant.",
    "term": "As it is spoken. In small letters it means any case; see [Glossaries](#glossaries).",
    "translations": "Language code to what it is called there; else it is kept as it is.",
    "replaces": "A former session of this client, with its `resume_token`: it leaves its room now.",
    "is_away": "Its client is not connected; it may come back.",
    "ui_events": "Whether steps are told as `ui_event`; else only to clients without subprotocol.",
    "token": "A token, if none came with the connection; wins over that one.",
    "session_id": "The session of this connection.",
    "TranslationResult.session_id": "The speaker's session, also for listeners of a room.",
    "MissingResult.session_id": "The speaker's session, also for listeners of a room.",
    "JobAssign.session_id": "Whose speech it is; for old nodes with `~` and the language if several"
    " languages are wanted.",
    "JobAck.session_id": ECHOED,
    "JobStarted.session_id": ECHOED,
    "NodeAsrPartial.session_id": ECHOED,
    "JobResult.session_id": ECHOED,
    "Participant.session_id": "The member's session.",
    "SessionResume.session_id": "The session that was lost.",
    "ResumeRejected.session_id": "The session that was asked for.",
    "resume_token": "Proves that the session is one's own.",
    "SessionInitAck.resume_token": "Given to clients of this protocol; see `session_resume`.",
    "resume_ms": "How long after the loss of its socket the session can be resumed.",
    "next_audio_seq": "The first chunk that must be sent (again); absent if chunks had no numbers.",
    "SessionResume.next_audio_seq": "The first chunk the client still has; earlier ones were"
    " acknowledged.",
    "audio_ms": "Where in the session's audio that chunk begins.",
    "AudioAck.audio_ms": "Where in the session's audio the next chunk begins.",
    "AudioAck.seq": "The last chunk that need not be kept.",
    "OutcomeAck.seq": "The position up to which all outcomes arrived.",
    "next_utterance_index": "The number the next utterance will get.",
    "reset": "The epoch is another: positions start over and nothing is missing by that.",
    "SessionResumed.last_seq": "The position of the newest outcome.",
    "SessionReset.reason": "`store_lost`.",
    "epoch": "Which count of positions `seq` belongs to.",
    "last_seq": "The position of the last outcome received.",
    "UtteranceAccepted.last_seq": "Number of its last chunk, if chunks had numbers.",
    "Gap.last_seq": "Number of the last missing chunk, if chunks are missing.",
    "preferred_lang": "The language a member of a room wants; without one nothing is translated"
    " for it.",
    "seq": "The outcome's position: counts from 1 within the epoch, all languages together.",
    "AudioChunk.seq": "Number of the chunk; the first may be any, then one more each time.",
    "is_final": "The node will not change this text again.",
    "AudioChunk.is_final": "The utterance ends here.",
    "payload": "The audio; without it the chunk only says `is_final`.",
    "client_timestamp_ms": "The client's clock; gives `web_to_scheduler_ms`.",
    "utterance_index": "Number of the utterance in its session.",
    "Utterance.utterance_index": "The number wanted; another may be given, see `requested_index`.",
    "NodeAsrPartial.utterance_index": ECHOED,
    "JobResult.utterance_index": ECHOED,
    "manual_cut": "Told to the node as `is_manual_cut`.",
    "audio": "The whole utterance.",
    "request_id": "Names the request within the tenant: repeated, it has the same answer.",
    "timestamp": "The sender's clock, milliseconds since 1970.",
    "reason": "Why, for people.",
    "MissingResult.reason": "`silence_detected`, `failed`, `expired`, `cancelled`, `gap_timeout`.",
    "Gap.reason": "`lost_chunks`, `backpressure` or `shutdown`.",
    "ResumeRejected.reason": "`unknown_session` (also: too late), `wrong_token` or"
    " `positions_lost`.",
    "GoAway.reason": "`shutdown`.",
    "JobCancel.reason": "`cancelled`: it goes on elsewhere or is not wanted; `not_assigned`.",
    "ExtraResult.reason": "Why there is no text: `ASR_EMPTY` or `NO_TEXT_ASSIGNED`.",
    "CapabilityByType.reason": "Why it is not ready.",
    "group_id": "Results that follow each other closely share it.",
    "JobResult.group_id": "Not looked at.",
    "JobAssign.group_id": "Not sent: groups form when results come.",
    "TtsStarted.group_id": "Not looked at: the session's current group is meant.",
    "TtsPlayEnded.group_id": "Not looked at: the session's current group is meant.",
    "ts_start_ms": "Not looked at: the server's clock counts.",
    "ts_end_ms": "Not looked at: the server's clock counts.",
    "client_ts": "Not looked at.",
    "display_name": "What the other members see.",
    "room_code": "Six digits.",
    "RoomError.room_code": "With `ALREADY_IN_ROOM`: the room that the session is in.",
    "target_session_id": "The member meant.",
    "receive_raw_voice": "Whether its own voice is wanted.",
    "to": "The member to reach.",
    "WebrtcOfferRelay.to": "The member who *sent* it.",
    "WebrtcAnswerRelay.to": "The member who *sent* it.",
    "WebrtcIceRelay.to": "The member who *sent* it.",
    "sdp": "Passed on as it is.",
    "candidate": "Passed on as it is.",
    "assigned_node_id": "The paired node.",
    "message": "For people.",
    "protocol_version": "`1.0`.",
    "use_binary_frame": "True if `audio_format` was given; binary frames are taken in any case.",
    "negotiated_codec": "Same as `negotiated_audio_format`.",
    "negotiated_audio_format": "How chunks are read.",
    "negotiated_sample_rate": "How chunks are read.",
    "negotiated_channel_count": "Always 1.",
    "unserved_langs": "Wanted languages that no known node serves now.",
    "first_seq": "Number of its first chunk, if chunks had numbers.",
    "Gap.first_seq": "Number of the first missing chunk, if chunks are missing.",
    "start_ms": "Where it begins in the session's admitted audio; 0 for a whole `utterance`.",
    "Gap.start_ms": "Where it is in the session's admitted audio.",
    "end_ms": "Where it ends.",
    "requested_index": "The index asked for, if another was given.",
    "job_id": "One utterance into one language.",
    "text_asr": "What was recognised.",
    "text_translated": "The translation.",
    "tts_audio": "The translation spoken.",
    "TranslationResult.tts_audio": "The translation spoken; may be empty.",
    "tts_format": "How to read it; `pcm16` if the node said nothing.",
    "extra": "What the node found besides.",
    "part_index": "Place within the group.",
    "JobResult.part_index": "Not looked at.",
    "JobAssign.part_index": "Not sent.",
    "service_timings": "What the node says its stages took.",
    "network_timings": "What the ways took; across machines as good as their clocks agree.",
    "scheduler_sent_at_ms": "The server's clock when it was sent.",
    "asr_quality_level": "`good`, `suspect` or `bad`; the node's word.",
    "reason_codes": "Why the node thinks so.",
    "quality_score": "0 to 1; the node's word.",
    "rerun_count": "How often the node tried again.",
    "segments_meta": "The node's remarks on its segments.",
    "timeline": "Where the time went; the parts sum to `total_ms`.",
    "created_at_ms": "The server's clock.",
    "detail": "More exactly why: a node's error code, or the store's reason.",
    "text": "All of it so far, not the change.",
    "event": "`DISPATCHED`, `NODE_ACCEPTED`, `ASR_PARTIAL`, `ASR_FINAL`, `NMT_DONE` or `ERROR`.",
    "elapsed_ms": "Since the utterance was cut.",
    "status": "How the node stands: `registering`, `ready`, `degraded`, `offline`.",
    "UiEvent.status": "`ok` or `error`.",
    "NodeRegisterAck.status": "Always `registering`.",
    "JobResultAck.status": "`accepted`, `moved`, `stale` or `unknown`.",
    "InstalledService.status": "Only what is `running` counts.",
    "error_code": "An error code, if it is a known one.",
    "hint": "What a person may be told.",
    "action": "`SLOW_DOWN`, `PAUSE` or `RESUME`.",
    "resume_after_ms": "When to try again; none with `RESUME`.",
    "coverage": "What became of all admitted speech.",
    "reconnect_after_ms": "How long to wait before coming back.",
    "closes_in_ms": "When the socket is closed at the latest.",
    "expires_in_ms": "How long the token lasts yet; some seconds more are granted.",
    "expires_at_ms": "The same as a time, milliseconds since 1970; absent: no token is asked for.",
    "code": "An error code.",
    "ErrorMessage.code": "An error code; a node's own code may be any text.",
    "ErrorDetail.code": "An error code; decides whether another node tries.",
    "details": "More, for programs.",
    "ErrorDetail.details": "With `MODEL_NOT_AVAILABLE`: an object with `service_id`.",
    "retry_after_ms": "When to try again.",
    "room_id": "Same as `room_code`.",
    "members": "In the order they came.",
    # Nodes
    "node_id": "The node of this connection; if given it must be that.",
    "NodeRegister.node_id": "A stable name; else one is made. Needed with a token.",
    "NodeRegisterAck.node_id": "The name to use from now on.",
    "version": "For people.",
    "capability_schema_version": "Absent or `2.0`.",
    "hardware": "The machine; a GPU is required only if the operator says so.",
    "installed_models": "Say what is served if `language_capabilities` do not.",
    "NodeHeartbeat.installed_models": "Not looked at: those of the registration count.",
    "installed_services": "What runs on the node.",
    "NodeHeartbeat.installed_services": "As in `node_register`; if absent nothing changed.",
    "capability_by_type": "Which services work; if given it wins over `installed_services`.",
    "NodeHeartbeat.capability_by_type": "As in `node_register`; if absent nothing changed.",
    "features_supported": "Abilities besides the services.",
    "advanced_features": "Not looked at.",
    "accept_public_jobs": "False: only jobs of the node's tenant or of sessions paired with it.",
    "language_capabilities": "The languages served.",
    "NodeHeartbeat.language_capabilities": "As in `node_register`; if absent nothing changed.",
    "labels": "Words that operators name groups of nodes by, at most 16; the token may limit them.",
    "boot_id": "Names the process; new with every start. Giving one marks a new node.",
    "max_jobs": "Jobs at once; the token may allow fewer.",
    "NodeRegisterAck.max_jobs": "Jobs at once, as they will be counted.",
    "sends_acks": "The node promises `job_ack`: without one a job moves on.",
    "running": "Every job and attempt it works on.",
    "NodeRegister.running": "Jobs it still works on; the first heartbeat's list is what counts.",
    "resource_usage": "Load.",
    "attempt_id": "Which placement of the job: counts from 1.",
    "NodeAsrPartial.attempt_id": "If given, partials of an old attempt are dropped.",
    "success": "False: `error` says why.",
    "processing_time_ms": "Becomes `total_ms` if there are no service timings.",
    "error": "Why it failed; without it `PROCESSING_ERROR`.",
    "node_completed_at_ms": "The node's clock; gives `node_to_scheduler_ms`.",
    "draining": "False: takes jobs again.",
    "stopped": "False: there was nothing to stop.",
    "heartbeat_ms": "How often to send a heartbeat; not told to old nodes.",
    "context_text": "What was said before, newest last; at most 800 characters.",
    "padding_ms": "Silence to append before recognising.",
    "is_manual_cut": "The speaker ended it; the turn ends.",
    "is_pause_triggered": "Not sent any more; see `is_timeout_triggered`.",
    "is_timeout_triggered": "A pause ended it; the turn ends.",
    "is_max_duration_triggered": "A slice cut by length; the turn goes on.",
    "turn_id": "Jobs of one continuous speech share it.",
    "context_reset": "The turn began on another node, which was lost.",
    "deadline_ms": "Ms from now that the attempt may take; after that the job moves on.",
    "traceparent": "W3C trace context of the job.",
    "command": "What is asked: `reconnect`. Not sent yet.",
    # Parts
    "emotion_detection": "Needs the `asr` service.",
    "voice_style_detection": "Needs the `tone` service and `speaker_identification`.",
    "speech_rate_detection": "Needs `asr`.",
    "speech_rate_control": "Needs `asr`, `tts` and `speech_rate_detection`.",
    "speaker_identification": "Needs the `tone` service.",
    "persona_adaptation": "Needs the `asr` service.",
    "use_asr": "Recognise.",
    "use_nmt": "Translate.",
    "use_tts": "Speak.",
    "use_semantic": "Repair the recognised text.",
    "use_tone": "Imitate the voice.",
    "asr_ms": "Recognising.",
    "nmt_ms": "Translating.",
    "tts_ms": "Speaking.",
    "total_ms": "All of it.",
    "Timeline.total_ms": "From the end of speech to delivery: the sum of all parts.",
    "web_to_scheduler_ms": "First chunk: client's clock to ours.",
    "scheduler_to_node_ms": "From the cut to the node's socket.",
    "node_to_scheduler_ms": "Result: node's clock to ours.",
    "scheduler_to_web_ms": "Not known here: compare with `scheduler_sent_at_ms`.",
    "emotion": "As the node says it.",
    "speech_rate": "As the node says it.",
    "voice_style": "As the node says it.",
    "language_probability": "How sure the node is of the language.",
    "language_probabilities": "The same for each candidate.",
    "endpointing_ms": "From the last audio to the cut.",
    "place_ms": "Asking for a node.",
    "queue_ms": "Waiting until one was free.",
    "push_ms": "From the placement to the node's socket.",
    "retry_ms": "From the first node's socket to the last one's.",
    "accept_ms": "Until the node said it has the job.",
    "node_other_ms": "At the node, in no stage it named.",
    "settle_ms": "Recording the outcome.",
    "order_wait_ms": "Waiting for those before it, and delivery.",
    "admitted_ms": "All audio taken in.",
    "delivered_ms": "Answered by a translation in at least one language.",
    "silent_ms": "Nothing was said.",
    "failed_ms": "Failed, expired or never came.",
    "skipped_ms": "Cancelled, or nobody needed a translation.",
    "earlier_ms": "0: the sums are the whole session's. Older servers: admitted before a move.",
    "participant_id": "Same as `session_id`.",
    "raw_voice_preferences": "Whose own voice it wants (true) or not; who is not named is wanted.",
    "joined_at": "The server's clock.",
    "name": "For people.",
    "memory_gb": "For people.",
    "cpu_cores": "For people.",
    "gpus": "At least one, if the operator requires it.",
    "model_id": "Which model.",
    "kind": "`asr`, `nmt`, `tts`, `vad`, `emotion`, `other`; only `nmt` names languages served.",
    "InstalledModel.src_lang": "The language it translates from; absent: any.",
    "InstalledModel.tgt_lang": "The language it translates into; absent: any.",
    "enabled": "False: does not count.",
    "service_id": "What `MODEL_NOT_AVAILABLE` names.",
    "type": "The kind of service.",
    "device": "`cpu` or `gpu`; for people.",
    "engine": "For people.",
    "mem_mb": "For people.",
    "warmup_ms": "For people.",
    "last_error": "For people.",
    "ready": "Whether it works now.",
    "ready_impl_ids": "The services that do it.",
    "src": "From.",
    "tgt": "Into.",
    "languages": "Languages it translates into.",
    "src_langs": "Not looked at: `asr_languages` are what the node hears.",
    "NmtCapability.tgt_langs": "More languages it translates into.",
    "supported_pairs": "Directions; win over languages.",
    "asr_languages": "What it recognises.",
    "tts_languages": "What it speaks; counts when speech is wanted.",
    "semantic_languages": "What it translates into, if nothing else says so.",
    "semantic_core_ready": "Not looked at.",
    "nmt_capabilities": "What it translates.",
    "supported_language_pairs": "Exactly these directions; win over everything else.",
    "cpu_percent": "Above the operator's bound (85) the node gets no new job.",
    "mem_percent": "The same.",
    "gpu_percent": "The same.",
    "gpu_mem_percent": "Not looked at.",
    "running_jobs": "Counts if `running` is absent.",
}

ERRORS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_MESSAGE: "It cannot be read, is none of the catalogue, or is illegal now.",
    ErrorCode.INTERNAL_ERROR: "A node failed for reasons of its own.",
    ErrorCode.INVALID_SESSION: "No session yet, or not the session of this connection.",
    ErrorCode.SESSION_CLOSED: "The session is being closed.",
    ErrorCode.INVALID_PAIRING_CODE: "Wrong, used or too old, or too many guesses.",
    ErrorCode.UNSUPPORTED_FEATURE: "A node cannot do what was asked.",
    ErrorCode.UNSUPPORTED_LANGUAGE: "Not a language code.",
    ErrorCode.UNAUTHORIZED: "No token, or one that is not valid.",
    ErrorCode.FORBIDDEN: "The token does not allow this.",
    ErrorCode.RATE_LIMITED: "Too many utterances per second; send it again later.",
    ErrorCode.BUSY: "Too much waits already: not taken.",
    ErrorCode.REQUEST_CONFLICT: "The `request_id` names other audio or languages: not taken.",
    ErrorCode.NO_AVAILABLE_NODE: "No node serves this language pair now; the job waits for one.",
    ErrorCode.NODE_UNAVAILABLE: "A node was lost.",
    ErrorCode.NODE_OVERLOADED: "A node has no slot for the job.",
    ErrorCode.MODEL_NOT_AVAILABLE: "A service of a node lacks its model: left out for a minute.",
    ErrorCode.MODEL_LOAD_FAILED: "A node could not load a model.",
    ErrorCode.MODEL_VERIFY_FAILED: "A node's model failed its check.",
    ErrorCode.MODEL_CORRUPTED: "A node's model is damaged.",
    ErrorCode.PROCESSING_ERROR: "A node failed on this job, or gave no code.",
    ErrorCode.NMT_TIMEOUT: "Translating took too long on a node.",
    ErrorCode.TTS_TIMEOUT: "Speaking took too long on a node.",
    ErrorCode.JOB_TIMEOUT: "The job's time is up.",
    ErrorCode.WS_DISCONNECTED: "Never sent; clients may show it when they lose the connection.",
    ErrorCode.SCHEDULER_DEPENDENCY_DOWN: "The store cannot be reached; nothing is lost.",
    ErrorCode.NO_GPU_AVAILABLE: "The operator takes only nodes with a GPU.",
    ErrorCode.NODE_ID_CONFLICT: "Never sent: a newer socket replaces the older one.",
    ErrorCode.NODE_NOT_REGISTERED: "The first message of a node must be `node_register`.",
    ErrorCode.INVALID_CAPABILITY_SCHEMA: "Another `capability_schema_version` than 2.0.",
    ErrorCode.ROOM_NOT_FOUND: "No such room, or the member to reach is not in it.",
    ErrorCode.ALREADY_IN_ROOM: "A session is in one room at most.",
    ErrorCode.NOT_IN_ROOM: "The session, or the member it named, is not in this room.",
    ErrorCode.ROOM_FULL: "The room has as many members as it may.",
    ErrorCode.INVALID_ROOM_CODE: "A room code has six digits.",
}
