"""Messages from the scheduler to a client."""

from __future__ import annotations

from typing import Any

import msgspec

from lingua_wire.shared import (  # noqa: TC001 msgspec reads them at run time
    Coverage,
    ExtraResult,
    NetworkTimings,
    PartialTranslation,
    Participant,
    ServiceTimings,
    Timeline,
)


# Messages have no cycles: the collector need not look at them.
class ToClient(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """Any message to a client."""


class SessionInitAck(ToClient, frozen=True, kw_only=True, tag="session_init_ack"):
    """The session is open."""

    session_id: str
    assigned_node_id: str | None = None
    message: str
    trace_id: str
    protocol_version: str | None = None
    use_binary_frame: bool | None = None
    negotiated_codec: str | None = None
    negotiated_audio_format: str | None = None
    negotiated_sample_rate: int | None = None
    negotiated_channel_count: int | None = None
    epoch: str | None = None
    resume_token: str | None = None
    resume_ms: int | None = None
    unserved_langs: tuple[str, ...] | None = None


class SessionResumed(ToClient, frozen=True, kw_only=True, tag="session_resumed"):
    """The session is resumed: the outcomes after the client's position follow."""

    session_id: str
    epoch: str
    last_seq: int
    next_audio_seq: int | None = None
    audio_ms: int
    next_utterance_index: int
    reset: bool = False


class SessionReset(ToClient, frozen=True, kw_only=True, tag="session_reset"):
    """The store lost the data of the session: positions of outcomes start over."""

    session_id: str
    epoch: str
    reason: str


class AudioAck(ToClient, frozen=True, kw_only=True, tag="audio_ack"):
    """Chunks up to a number were admitted, or are silence: the client need not keep them."""

    session_id: str
    seq: int
    audio_ms: int


class ResumeRejected(ToClient, frozen=True, kw_only=True, tag="resume_rejected"):
    """The session cannot be resumed; open a new one."""

    session_id: str
    reason: str


class UtteranceAccepted(ToClient, frozen=True, kw_only=True, tag="utterance_accepted"):
    """An utterance was admitted: exactly one outcome per language will follow."""

    session_id: str
    utterance_index: int
    first_seq: int | None = None
    last_seq: int | None = None
    start_ms: int
    end_ms: int
    requested_index: int | None = None


class TranslationResult(ToClient, frozen=True, kw_only=True, tag="translation_result"):
    """The outcome of an utterance in one language; `session_id` is the speaker's."""

    session_id: str
    utterance_index: int
    job_id: str
    text_asr: str
    text_translated: str
    tts_audio: bytes
    tts_format: str
    extra: ExtraResult | None = None
    trace_id: str
    group_id: str | None = None
    part_index: int | None = None
    service_timings: ServiceTimings | None = None
    network_timings: NetworkTimings | None = None
    scheduler_sent_at_ms: int | None = None
    asr_quality_level: str | None = None
    reason_codes: tuple[str, ...] | None = None
    quality_score: float | None = None
    rerun_count: int | None = None
    segments_meta: Any = None
    tgt_lang: str | None = None
    epoch: str | None = None
    seq: int | None = None
    timeline: Timeline | None = None
    tts_parts: int | None = None


class MissingResult(ToClient, frozen=True, kw_only=True, tag="missing_result"):
    """The outcome of an utterance that has no translation, and why."""

    session_id: str
    utterance_index: int
    reason: str
    created_at_ms: int
    trace_id: str | None = None
    job_id: str | None = None
    detail: str | None = None
    tgt_lang: str | None = None
    epoch: str | None = None
    seq: int | None = None


class OutcomePassed(ToClient, frozen=True, kw_only=True, tag="outcome_passed"):
    """The position of an outcome that only the listeners in the speaker's room receive."""

    session_id: str
    utterance_index: int
    tgt_lang: str
    epoch: str
    seq: int


class AsrPartial(ToClient, frozen=True, kw_only=True, tag="asr_partial"):
    """The text recognised so far."""

    session_id: str
    utterance_index: int
    job_id: str
    text: str
    is_final: bool
    trace_id: str


class PartialResult(ToClient, frozen=True, kw_only=True, tag="partial_result"):
    """What was recognised and translated while somebody still speaks; never an outcome.

    Best effort: it may be missing, and none follows the outcome of its utterance.
    """

    session_id: str
    utterance_index: int
    revision: int
    start_ms: int
    upto_ms: int
    src_lang: str | None = None
    stable: str
    unstable: str
    translations: tuple[PartialTranslation, ...] = ()


class TtsPart(ToClient, frozen=True, kw_only=True, tag="tts_part"):
    """A part of the spoken translation before its outcome; the outcome has all of it."""

    session_id: str
    utterance_index: int
    job_id: str
    attempt_id: int
    tgt_lang: str
    part_index: int
    audio: bytes
    tts_format: str


class UiEvent(ToClient, frozen=True, kw_only=True, tag="ui_event"):
    """A step in the processing of an utterance, for display."""

    trace_id: str
    session_id: str
    job_id: str
    utterance_index: int
    event: str
    elapsed_ms: int | None = None
    status: str
    error_code: str | None = None
    hint: str | None = None


class Backpressure(ToClient, frozen=True, kw_only=True, tag="backpressure"):
    """Asks the client to slow down, to pause, or to continue (`RESUME`)."""

    action: str
    resume_after_ms: int | None = None
    message: str | None = None


class Gap(ToClient, frozen=True, kw_only=True, tag="gap"):
    """Speech that did not arrive or was not admitted."""

    start_ms: int
    end_ms: int
    reason: str
    first_seq: int | None = None
    last_seq: int | None = None


class ServerHeartbeat(ToClient, frozen=True, kw_only=True, tag="server_heartbeat"):
    """The answer to a client's heartbeat."""

    session_id: str
    timestamp: int


class SessionCloseAck(ToClient, frozen=True, kw_only=True, tag="session_close_ack"):
    """The session has ended; nothing follows."""

    session_id: str
    coverage: Coverage | None = None


class GoAway(ToClient, frozen=True, kw_only=True, tag="go_away"):
    """The instance stops: connect to another one, and resume there."""

    reason: str
    reconnect_after_ms: int
    closes_in_ms: int


class TokenExpiring(ToClient, frozen=True, kw_only=True, tag="token_expiring"):
    """The token of this socket expires soon, and the socket is then closed: refresh it."""

    expires_in_ms: int


class TokenRefreshed(ToClient, frozen=True, kw_only=True, tag="token_refreshed"):
    """The newer token applies from now on, also where it allows less."""

    expires_at_ms: int | None = None
    expires_in_ms: int | None = None


class ErrorMessage(ToClient, frozen=True, kw_only=True, tag="error"):
    """A request could not be fulfilled."""

    code: str
    message: str
    details: Any = None
    retry_after_ms: int | None = None


class RoomCreateAck(ToClient, frozen=True, kw_only=True, tag="room_create_ack"):
    """The room was created."""

    room_code: str
    room_id: str | None = None


class RoomMembers(ToClient, frozen=True, kw_only=True, tag="room_members"):
    """The members of the room."""

    room_code: str
    members: tuple[Participant, ...]
    readers: int | None = None


class RoomError(ToClient, frozen=True, kw_only=True, tag="room_error"):
    """A room could not be created, joined or left."""

    code: str
    message: str | None = None
    room_code: str | None = None


class RoomExpired(ToClient, frozen=True, kw_only=True, tag="room_expired"):
    """The room was closed, because nobody spoke for a long time."""

    room_code: str
    message: str


class WebrtcOfferRelay(ToClient, frozen=True, kw_only=True, tag="webrtc_offer"):
    """Signalling of another member; `to` names the sender."""

    room_code: str
    to: str
    sdp: Any


class WebrtcAnswerRelay(ToClient, frozen=True, kw_only=True, tag="webrtc_answer"):
    """Signalling of another member; `to` names the sender."""

    room_code: str
    to: str
    sdp: Any


class WebrtcIceRelay(ToClient, frozen=True, kw_only=True, tag="webrtc_ice"):
    """Signalling of another member; `to` names the sender."""

    room_code: str
    to: str
    candidate: Any


ServerMessage = (
    SessionInitAck
    | SessionResumed
    | ResumeRejected
    | SessionReset
    | UtteranceAccepted
    | AudioAck
    | TranslationResult
    | MissingResult
    | OutcomePassed
    | AsrPartial
    | PartialResult
    | TtsPart
    | UiEvent
    | Backpressure
    | Gap
    | ServerHeartbeat
    | SessionCloseAck
    | GoAway
    | TokenExpiring
    | TokenRefreshed
    | ErrorMessage
    | RoomCreateAck
    | RoomMembers
    | RoomError
    | RoomExpired
    | WebrtcOfferRelay
    | WebrtcAnswerRelay
    | WebrtcIceRelay
)
