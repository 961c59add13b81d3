"""The messages as tables for people: every field with its type, its need and its meaning.

docs/protocol.md shows them; nothing here is used while serving. Types and bounds come from the
structs, meanings from `MEANINGS`: by field name, or by `Struct.field` where one name has several
meanings. A test fails for a field without a meaning and for a meaning without a field.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import NODEFAULT, inspect

from lingua_wire.codes import CLOSES, RETRYABLE_NODE_ERRORS, CloseCode, ErrorCode
from lingua_wire.from_client import ClientMessage
from lingua_wire.from_node import NodeMessage
from lingua_wire.to_client import ServerMessage
from lingua_wire.to_node import SchedulerToNode

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
    # `required`, `optional`, or `optional` with its default.
    need: str
    meaning: str


class MessageTable(NamedTuple):
    """A message, or a part of several."""

    name: str
    sentence: str
    rows: tuple[FieldRow, ...]


def messages_of(direction: str) -> list[MessageTable]:
    """Return the messages of one direction, in the order of the code."""
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
    """Describe the values of a field in words."""
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
    """Return the meaning of a field in a message or part."""
    return MEANINGS.get(f"{struct}.{field}") or MEANINGS[field]


def _need(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default in (NODEFAULT, None, "", ()):
        return "optional"
    return f"optional, default `{str(field.default).lower()}`"


def _tag(struct: Struct) -> str:
    return str(_info(struct).tag)


def _info(struct: Struct) -> inspect.StructType:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info


def _parts(kind: inspect.Type) -> Iterator[Struct]:
    """Give the structures inside a message, at any depth."""
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
    """Write a bound; large powers of two as a power."""
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

TRACE = "Identifies an utterance in every message and log; echoed."
ECHOED = "As in `job_assign`; ignored."

# Field -> its meaning; `Struct.field` where the name has several meanings.
MEANINGS: dict[str, str] = {
    # Sessions
    "client_version": "For logs.",
    "platform": "`android`, `ios`, `web`, `api-gateway`, or any other text; for logs.",
    "src_lang": "The language spoken, or `auto`.",
    "tgt_lang": "The target language.",
    "tgt_langs": "Several target languages, at most 16; overrides `tgt_lang`.",
    "dialect": "Passed to the node.",
    "features": "Additional abilities that a node must have.",
    "pairing_code": "Six digits that make one node the preferred one.",
    "tenant_id": "Ignored: only the token determines the tenant.",
    "mode": "`two_way_auto`: either of two languages is spoken and translated into the other.",
    "Utterance.mode": "Ignored: the session's value applies.",
    "JobAssign.mode": "`two_way_auto`: detect which of two languages is spoken, translate into the"
    " other.",
    "lang_a": "One language of a `two_way_auto` session.",
    "lang_b": "The other one.",
    "Utterance.lang_a": "Ignored: the session's value applies.",
    "Utterance.lang_b": "Ignored: the session's value applies.",
    "auto_langs": "With `auto`: the candidate languages.",
    "Utterance.auto_langs": "Ignored: the session's value applies.",
    "enable_streaming_asr": "Whether the node sends partial texts.",
    "Utterance.enable_streaming_asr": "Ignored: the session's value applies.",
    "partial_update_interval_ms": "How often the node should send them.",
    "Utterance.partial_update_interval_ms": "Ignored: the session's value applies.",
    "trace_id": TRACE,
    "SessionInit.trace_id": "Identifies the session in every message and log; if absent, one is"
    " generated.",
    "TtsStarted.trace_id": "Ignored.",
    "TtsPlayEnded.trace_id": "Ignored.",
    "audio_format": "`pcm16` (little-endian, mono) or `opus` (opaque).",
    "SessionInit.audio_format": "`pcm16` (little-endian, mono) or `opus` (opaque); default `opus`.",
    "sample_rate": "Samples per second.",
    "SessionInit.sample_rate": "Samples per second; default 16000.",
    "pipeline": "The stages to run; default: recognise, translate, speak.",
    "silence_ms": "How much silence ends an utterance (pcm16); default: as configured.",
    "silence_min_ms": "The shortest silence that ends an utterance whose text is a whole sentence;"
    " default: as configured.",
    "silence_max_ms": "The longest silence that is waited for where the sentence is not complete;"
    " default: as configured.",
    "sentence_cuts": "Whether speech without a pause is cut where a sentence ends; default: as"
    " configured.",
    "partials": "Whether `partial_result`s are wanted while somebody speaks, in place of"
    " `asr_partial`s.",
    "SessionInit.tts_parts": "Whether parts of the spoken translation are wanted before its"
    " outcome.",
    "TranslationResult.tts_parts": "Of how many `tts_part`s of this job `tts_audio` consists, if"
    " parts were sent.",
    "JobAssign.tts_parts": "Parts of the spoken translation may be sent before the result.",
    "glossary": "Terms to keep, or to translate as given; at most 16 KiB of text. Those of the"
    " tenant apply, too.",
    "JobAssign.glossary": "Terms to keep, or to translate as given: those of the session and of its"
    " tenant.",
    "term": "As it is spoken. In lower case it matches any case; see [Glossaries](#glossaries).",
    "translations": "Language code to translation; without one the term is kept as it is.",
    "replaces": "A former session of this client, with its `resume_token`: it leaves its room at"
    " once.",
    "is_away": "Its client is not connected; it may reconnect.",
    "ui_events": "Whether steps are reported as `ui_event`; default: only without a subprotocol.",
    "token": "A token; overrides one that was presented with the connection.",
    "session_id": "The session of this connection.",
    "TranslationResult.session_id": "The speaker's session, also for listeners of a room.",
    "MissingResult.session_id": "The speaker's session, also for listeners of a room.",
    "JobAssign.session_id": "The speaker's session; for old nodes followed by `~` and the language"
    " if there are several target languages.",
    "JobAck.session_id": ECHOED,
    "JobStarted.session_id": ECHOED,
    "NodeAsrPartial.session_id": ECHOED,
    "JobResult.session_id": ECHOED,
    "Participant.session_id": "The member's session.",
    "SessionResume.session_id": "The session that was lost.",
    "ResumeRejected.session_id": "The session that was requested.",
    "resume_token": "Proves that the session belongs to the client.",
    "SessionInitAck.resume_token": "Sent to clients of this protocol; see `session_resume`.",
    "resume_ms": "How long the session can be resumed after its socket was lost.",
    "next_audio_seq": "The first chunk that must be sent (again); absent if chunks had no numbers.",
    "SessionResume.next_audio_seq": "The first chunk that the client still has; earlier ones were"
    " acknowledged.",
    "audio_ms": "Where that chunk begins in the session's audio.",
    "AudioAck.audio_ms": "Where the next chunk begins in the session's audio.",
    "AudioAck.seq": "The last chunk that need not be kept.",
    "OutcomeAck.seq": "The position up to which all outcomes were received.",
    "next_utterance_index": "The number that the next utterance will get.",
    "reset": "The epoch is new: positions start over, and no outcome is missing because of that.",
    "SessionResumed.last_seq": "The position of the newest outcome.",
    "SessionReset.reason": "`store_lost`.",
    "epoch": "The epoch within which `seq` counts.",
    "last_seq": "The position of the last outcome received.",
    "UtteranceAccepted.last_seq": "Number of its last chunk, if chunks had numbers.",
    "Gap.last_seq": "Number of the last missing chunk, if chunks are missing.",
    "preferred_lang": "The language that a member of a room wants; without one nothing is"
    " translated for the member.",
    "seq": "The outcome's position: counts from 1 within the epoch, over all languages.",
    "AudioChunk.seq": "Number of the chunk; starts at any number, then increases by one.",
    "is_final": "The node will not change this text again.",
    "AudioChunk.is_final": "The utterance ends here.",
    "payload": "The audio; may be absent if `is_final` is set.",
    "client_timestamp_ms": "The client's clock; gives `web_to_scheduler_ms`.",
    "utterance_index": "Number of the utterance in its session.",
    "wants_acceptance": "False: no `utterance_accepted`, unless the utterance gets another index;"
    " its outcome says that it was accepted.",
    "Utterance.utterance_index": "The requested number; another may be assigned, see"
    " `requested_index`.",
    "NodeAsrPartial.utterance_index": ECHOED,
    "JobResult.utterance_index": ECHOED,
    "manual_cut": "Passed to the node as `is_manual_cut`.",
    "audio": "The whole utterance.",
    "request_id": "Identifies the request within the tenant: a repeated request has the same"
    " answer.",
    "timestamp": "The sender's clock, milliseconds since 1970.",
    "reason": "The reason, for people.",
    "MissingResult.reason": "`silence_detected`, `failed`, `expired`, `cancelled`, `gap_timeout`.",
    "Gap.reason": "`lost_chunks`, `backpressure` or `shutdown`.",
    "ResumeRejected.reason": "`unknown_session` (also: too late), `wrong_token` or"
    " `positions_lost`.",
    "GoAway.reason": "`shutdown`.",
    "JobCancel.reason": "`cancelled`: it continues on another node or is not needed;"
    " `not_assigned`.",
    "ExtraResult.reason": "Why there is no text: `ASR_EMPTY` or `NO_TEXT_ASSIGNED`.",
    "CapabilityByType.reason": "Why it is not ready.",
    "group_id": "Shared by results that follow each other closely.",
    "JobResult.group_id": "Ignored.",
    "JobAssign.group_id": "Not sent: groups are formed when results arrive.",
    "TtsStarted.group_id": "Ignored: the session's current group is used.",
    "TtsPlayEnded.group_id": "Ignored: the session's current group is used.",
    "ts_start_ms": "Ignored: the server's clock is used.",
    "ts_end_ms": "Ignored: the server's clock is used.",
    "client_ts": "Ignored.",
    "display_name": "The name that other members see.",
    "room_code": "Six digits.",
    "RoomMembers.readers": "How many read the captions of the room without being members, as of the"
    " last seconds; absent if nobody does.",
    "RoomError.room_code": "With `ALREADY_IN_ROOM`: the room that the session is in.",
    "target_session_id": "The member in question.",
    "receive_raw_voice": "Whether that member's own voice is wanted.",
    "to": "The receiving member.",
    "WebrtcOfferRelay.to": "The member that *sent* it.",
    "WebrtcAnswerRelay.to": "The member that *sent* it.",
    "WebrtcIceRelay.to": "The member that *sent* it.",
    "sdp": "Passed on unchanged.",
    "candidate": "Passed on unchanged.",
    "assigned_node_id": "The paired node.",
    "message": "For people.",
    "protocol_version": "`1.0`.",
    "use_binary_frame": "True if `audio_format` was given; binary frames are always accepted.",
    "negotiated_codec": "Same as `negotiated_audio_format`.",
    "negotiated_audio_format": "The format of chunks.",
    "negotiated_sample_rate": "The sample rate of chunks.",
    "negotiated_channel_count": "Always 1.",
    "unserved_langs": "Target languages that no known node serves now.",
    "first_seq": "Number of its first chunk, if chunks had numbers.",
    "Gap.first_seq": "Number of the first missing chunk, if chunks are missing.",
    "start_ms": "Where it begins in the session's admitted audio; 0 for a whole `utterance`.",
    "Gap.start_ms": "Where it is in the session's admitted audio.",
    "end_ms": "Where it ends.",
    "requested_index": "The requested index, if another one was assigned.",
    "job_id": "One utterance into one language.",
    "text_asr": "The recognised text.",
    "text_translated": "The translation.",
    "tts_audio": "The spoken translation.",
    "TranslationResult.tts_audio": "The spoken translation; may be empty.",
    "tts_format": "The format of the audio; `pcm16` if the node sent none.",
    "extra": "Additional results of the node.",
    "part_index": "Position within the group.",
    "JobResult.part_index": "Ignored.",
    "JobAssign.part_index": "Not sent.",
    "service_timings": "How long the stages took, as reported by the node.",
    "network_timings": "How long messages took; between machines as exact as their clocks agree.",
    "scheduler_sent_at_ms": "The server's clock when it was sent.",
    "asr_quality_level": "`good`, `suspect` or `bad`, as reported by the node.",
    "reason_codes": "The node's reasons for that.",
    "quality_score": "0 to 1, as reported by the node.",
    "rerun_count": "How often the node repeated the work.",
    "segments_meta": "The node's data about its segments.",
    "timeline": "Where the time went; the parts sum to `total_ms`.",
    "created_at_ms": "The server's clock.",
    "detail": "The exact reason: a node's error code, or the store's reason.",
    "stable": "The text so far that will not change any more.",
    "unstable": "The text after it, which may still change.",
    "PartialResult.session_id": "The speaker's session, also for listeners of a room.",
    "TtsPart.session_id": "The speaker's session, also for listeners of a room.",
    "PartialResult.utterance_index": "The number that the utterance will probably get.",
    "revision": "Rises with every partial of one utterance.",
    "upto_ms": "Up to where in the stream's audio this is the text.",
    "PartialResult.upto_ms": "Up to where in the speaker's admitted audio this is the text.",
    "PartialResult.start_ms": "Where the utterance begins in the speaker's admitted audio.",
    "PartialResult.src_lang": "The language spoken, if it is known.",
    "StreamPartial.src_lang": "The language that was recognised.",
    "PartialResult.translations": "The translations so far, in the languages that the receiver"
    " wants.",
    "StreamPartial.translations": "The translations so far.",
    "PartialTranslation.tgt_lang": "The language of the translation.",
    "PartialTranslation.stable": "The translation so far that will not change any more.",
    "PartialTranslation.unstable": "The translation after it, which may still change.",
    "sentence_end_ms": "Where in the stream's audio a sentence ended, at a quiet place: a hint to"
    " cut there.",
    "is_complete": "Whether the text so far is a whole sentence; absent: not known.",
    "TtsPart.part_index": "Counts from 0 within one attempt.",
    "JobAudioPart.part_index": "Counts from 0 within one attempt.",
    "TtsPart.audio": "The part's audio.",
    "JobAudioPart.audio": "The part's audio.",
    "TtsPart.attempt_id": "A higher number replaces all parts with a lower one.",
    "JobAudioPart.audio_format": "The format of the audio.",
    "audio_parts": "Of how many `job_audio_part`s `tts_audio` consists, if parts were sent.",
    "stream_id": "Names one stream; never used again.",
    "JobAssign.stream_id": "The stream that this node heard of this utterance, if it still has it.",
    "StreamOpen.session_id": "The speaker's session.",
    "StreamOpen.tgt_langs": "The target languages of the speaker and of the listeners; those that"
    " the node cannot do are left out.",
    "StreamAudio.audio": "16-bit samples that continue the stream.",
    "StreamEnd.reason": "`cut`: the job follows. `dropped`: no job needs it.",
    "StreamClosed.reason": "Why, for logs.",
    "audio_bytes": "How much of the stream's audio belongs to the utterance; the rest begins the"
    " next one.",
    "text": "The whole text so far, not the change.",
    "event": "`DISPATCHED`, `NODE_ACCEPTED`, `ASR_PARTIAL`, `ASR_FINAL`, `NMT_DONE` or `ERROR`.",
    "elapsed_ms": "Since the utterance was cut.",
    "status": "The node's status: `registering`, `ready`, `degraded`, `offline`.",
    "UiEvent.status": "`ok` or `error`.",
    "NodeRegisterAck.status": "Always `registering`.",
    "JobResultAck.status": "`accepted`, `moved`, `stale` or `unknown`.",
    "ResultAck.status": "`accepted`, `moved`, `stale` or `unknown`.",
    "results": "One for each result, in the order in which they were settled.",
    "InstalledService.status": "Only a service that is `running` counts.",
    "error_code": "An error code, if it is known.",
    "hint": "A sentence for people.",
    "action": "`SLOW_DOWN`, `PAUSE` or `RESUME`.",
    "resume_after_ms": "When to try again; absent with `RESUME`.",
    "coverage": "How all admitted speech was answered.",
    "reconnect_after_ms": "How long to wait before reconnecting.",
    "closes_in_ms": "The latest time at which the socket is closed, from now.",
    "expires_in_ms": "How long the token is still valid; some seconds more are granted.",
    "expires_at_ms": "The same as a time, milliseconds since 1970; absent: no token is required.",
    "code": "An error code.",
    "ErrorMessage.code": "An error code; a node's own code may be any text.",
    "ErrorDetail.code": "An error code; decides whether another node tries.",
    "details": "More details, for programs.",
    "ErrorDetail.details": "With `MODEL_NOT_AVAILABLE`: an object with `service_id`.",
    "retry_after_ms": "When to try again.",
    "room_id": "Same as `room_code`.",
    "members": "In the order in which they joined.",
    # Nodes
    "node_id": "The node of this connection; any other id is an error.",
    "NodeRegister.node_id": "A stable name; if absent, one is generated. Required with a token.",
    "NodeRegisterAck.node_id": "The name to use from now on.",
    "version": "For people.",
    "capability_schema_version": "Absent or `2.0`.",
    "hardware": "The machine; a GPU is required only if the operator configures it.",
    "installed_models": "Define the languages served if `language_capabilities` do not.",
    "NodeHeartbeat.installed_models": "Ignored: those of the registration count.",
    "installed_services": "The services on the node.",
    "NodeHeartbeat.installed_services": "As in `node_register`; absent: unchanged.",
    "capability_by_type": "Which services work; overrides `installed_services`.",
    "NodeHeartbeat.capability_by_type": "As in `node_register`; absent: unchanged.",
    "features_supported": "Abilities in addition to the services.",
    "advanced_features": "Ignored.",
    "accept_public_jobs": "False: only jobs of the node's tenant or of sessions paired with it.",
    "language_capabilities": "The languages served.",
    "NodeHeartbeat.language_capabilities": "As in `node_register`; absent: unchanged.",
    "labels": "Words by which operators name groups of nodes, at most 16; the token may limit"
    " them.",
    "boot_id": "Identifies the process; new with every start. Marks a node of the new protocol.",
    "max_jobs": "Jobs at the same time; the token may allow fewer.",
    "max_streams": "Streams at the same time, besides jobs; 0: the node does not stream.",
    "NodeRegisterAck.max_jobs": "Jobs at the same time, as the scheduler will count them.",
    "batches_acks": "The node takes `job_result_acks` in place of `job_result_ack`s.",
    "sends_acks": "The node sends `job_ack`: without it a job is moved to another node.",
    "running": "Every job and attempt that the node works on.",
    "NodeRegister.running": "Jobs that the node still works on; the list of the first heartbeat"
    " counts.",
    "resource_usage": "How busy the machine is.",
    "attempt_id": "The number of the job's placement, from 1.",
    "NodeAsrPartial.attempt_id": "If given, partials of an old attempt are dropped.",
    "success": "False: see `error`.",
    "running_ms": "For how long the node has worked on the job when it reports that.",
    "processing_time_ms": "Used as `total_ms` if there are no service timings.",
    "error": "Why it failed; without it `PROCESSING_ERROR`.",
    "node_completed_at_ms": "The node's clock; gives `node_to_scheduler_ms`.",
    "draining": "False: the node takes jobs again.",
    "stopped": "False: the job was not running.",
    "heartbeat_ms": "The heartbeat interval; not sent to old nodes.",
    "context_text": "The text of previous utterances, newest last; at most 800 characters.",
    "padding_ms": "Silence to append before recognition.",
    "is_manual_cut": "The speaker ended it; the turn ends.",
    "is_pause_triggered": "Not sent any more; see `is_timeout_triggered`.",
    "is_timeout_triggered": "A pause ended it; the turn ends.",
    "is_max_duration_triggered": "A slice cut by length; the turn continues.",
    "turn_id": "Shared by the jobs of one continuous speech.",
    "context_reset": "The turn began on another node, which was lost.",
    "deadline_ms": "Milliseconds that the attempt may take; after that the job is moved to another"
    " node.",
    "traceparent": "W3C trace context of the job.",
    "command": "The command: `reconnect`. Not sent yet.",
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
    "total_ms": "All stages together.",
    "Timeline.total_ms": "From the end of speech to delivery: the sum of all parts.",
    "web_to_scheduler_ms": "First chunk: from the client's clock to the server's.",
    "scheduler_to_node_ms": "From the cut to the node's socket.",
    "node_to_scheduler_ms": "Result: from the node's clock to the server's.",
    "scheduler_to_web_ms": "Not known here: compare with `scheduler_sent_at_ms`.",
    "emotion": "As reported by the node.",
    "speech_rate": "As reported by the node.",
    "voice_style": "As reported by the node.",
    "language_probability": "The node's confidence in the language.",
    "language_probabilities": "The same for each candidate.",
    "endpointing_ms": "From the last audio to the cut.",
    "place_ms": "Finding a node.",
    "queue_ms": "Waiting until one was free.",
    "push_ms": "From the placement to the node's socket.",
    "retry_ms": "From the first node's socket to the last one's.",
    "accept_ms": "Until the node acknowledged the job.",
    "node_other_ms": "At the node, outside of the stages that it reported.",
    "settle_ms": "Recording the outcome.",
    "order_wait_ms": "Waiting for earlier outcomes, and delivery.",
    "admitted_ms": "All admitted audio.",
    "delivered_ms": "Answered by a translation in at least one language.",
    "silent_ms": "Without speech.",
    "failed_ms": "Failed, expired or without a result.",
    "skipped_ms": "Cancelled, or no listener needed a translation.",
    "earlier_ms": "0: the sums cover the whole session. Older servers: audio admitted before a"
    " move.",
    "participant_id": "Same as `session_id`.",
    "raw_voice_preferences": "The members whose own voice it wants (true) or not; default: wanted.",
    "joined_at": "The server's clock.",
    "name": "For people.",
    "memory_gb": "For people.",
    "cpu_cores": "For people.",
    "gpus": "At least one, if the operator requires a GPU.",
    "model_id": "The id of the model.",
    "kind": "`asr`, `nmt`, `tts`, `vad`, `emotion`, `other`; only `nmt` defines languages served.",
    "InstalledModel.src_lang": "The language it translates from; absent: any.",
    "InstalledModel.tgt_lang": "The language it translates into; absent: any.",
    "enabled": "False: the model is ignored.",
    "service_id": "The id that `MODEL_NOT_AVAILABLE` refers to.",
    "type": "The type of service.",
    "device": "`cpu` or `gpu`; for people.",
    "engine": "For people.",
    "mem_mb": "For people.",
    "warmup_ms": "For people.",
    "last_error": "For people.",
    "ready": "Whether it works now.",
    "ready_impl_ids": "The ids of the services that work.",
    "src": "The source language.",
    "tgt": "The target language.",
    "languages": "Languages that it translates into.",
    "src_langs": "Ignored: `asr_languages` are the source languages.",
    "NmtCapability.tgt_langs": "More languages that it translates into.",
    "supported_pairs": "Directions; override the languages.",
    "asr_languages": "Languages that it recognises.",
    "tts_languages": "Languages that it speaks; used when speech is requested.",
    "semantic_languages": "Languages that it translates into, if nothing else defines them.",
    "semantic_core_ready": "Ignored.",
    "nmt_capabilities": "The translation models and their languages.",
    "supported_language_pairs": "Exactly these directions; override everything else.",
    "cpu_percent": "Above the operator's limit (85) the node gets no new job.",
    "mem_percent": "The same.",
    "gpu_percent": "The same.",
    "gpu_mem_percent": "Ignored.",
    "running_jobs": "Used if `running` is absent.",
}

ERRORS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_MESSAGE: "The message cannot be decoded, is unknown, or is not allowed now.",
    ErrorCode.INTERNAL_ERROR: "A node had an internal error.",
    ErrorCode.INVALID_SESSION: "No session yet, or not the session of this connection.",
    ErrorCode.SESSION_CLOSED: "The session is being closed.",
    ErrorCode.INVALID_PAIRING_CODE: "The code is wrong, used or expired, or there were too many"
    " attempts.",
    ErrorCode.UNSUPPORTED_FEATURE: "A node does not support what was requested.",
    ErrorCode.UNSUPPORTED_LANGUAGE: "Not a valid language code.",
    ErrorCode.UNAUTHORIZED: "No token, or one that is not valid.",
    ErrorCode.FORBIDDEN: "The token does not allow this.",
    ErrorCode.RATE_LIMITED: "Too many utterances per second; send it again later.",
    ErrorCode.BUSY: "Too much speech is waiting: not accepted.",
    ErrorCode.REQUEST_CONFLICT: "The `request_id` was used for other audio or languages: not"
    " accepted.",
    ErrorCode.NO_AVAILABLE_NODE: "No node serves this language pair now; the job waits for one.",
    ErrorCode.NODE_UNAVAILABLE: "A node was lost.",
    ErrorCode.NODE_OVERLOADED: "A node has no slot for the job.",
    ErrorCode.MODEL_NOT_AVAILABLE: "A service of a node lacks its model: it gets no such jobs for"
    " a minute.",
    ErrorCode.MODEL_LOAD_FAILED: "A node could not load a model.",
    ErrorCode.MODEL_VERIFY_FAILED: "A node's model failed its check.",
    ErrorCode.MODEL_CORRUPTED: "A node's model is damaged.",
    ErrorCode.PROCESSING_ERROR: "A node failed on this job, or sent no code.",
    ErrorCode.NMT_TIMEOUT: "Translating took too long on a node.",
    ErrorCode.TTS_TIMEOUT: "Speaking took too long on a node.",
    ErrorCode.JOB_TIMEOUT: "The job's deadline has passed.",
    ErrorCode.WS_DISCONNECTED: "Never sent; clients may show it when they lose the connection.",
    ErrorCode.SCHEDULER_DEPENDENCY_DOWN: "The store is unavailable; nothing is lost.",
    ErrorCode.NO_GPU_AVAILABLE: "The operator accepts only nodes with a GPU.",
    ErrorCode.NODE_ID_CONFLICT: "Never sent: a newer socket replaces the older one.",
    ErrorCode.NODE_NOT_REGISTERED: "The first message of a node must be `node_register`.",
    ErrorCode.INVALID_CAPABILITY_SCHEMA: "The `capability_schema_version` is not 2.0.",
    ErrorCode.ROOM_NOT_FOUND: "No such room, or the receiving member is not in it.",
    ErrorCode.ALREADY_IN_ROOM: "A session can be in one room only.",
    ErrorCode.NOT_IN_ROOM: "The session, or the named member, is not in this room.",
    ErrorCode.ROOM_FULL: "The room has the maximum number of members.",
    ErrorCode.INVALID_ROOM_CODE: "A room code has six digits.",
}
