"""Messages from a client. The first one is `session_init` or `session_resume`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lingua_wire.shared import (
    Codes,
    Count,
    FeatureFlags,
    Glossary,
    Millis,
    Mode,
    Name,
    PipelineConfig,
    Replaced,
    Short,
    check_plain,
)

SilenceMs = Annotated[int, Meta(ge=100, le=10_000)]


# Messages have no cycles: the collector need not look at them.
class FromClient(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """Any message of a client."""


class SessionInit(FromClient, frozen=True, kw_only=True, tag="session_init"):
    """Opens a session."""

    client_version: Short = ""
    platform: Short = "web"
    src_lang: Short
    tgt_lang: Short = ""
    tgt_langs: Codes | None = None
    dialect: Short | None = None
    features: FeatureFlags | None = None
    pairing_code: Short | None = None
    tenant_id: Short | None = None
    mode: Mode | None = None
    lang_a: Short | None = None
    lang_b: Short | None = None
    auto_langs: Codes | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Count | None = None
    trace_id: Short | None = None
    audio_format: Short | None = None
    sample_rate: Annotated[int, Meta(ge=8000, le=192_000)] | None = None
    pipeline: PipelineConfig | None = None
    ui_events: bool | None = None
    silence_ms: SilenceMs | None = None
    silence_min_ms: SilenceMs | None = None
    silence_max_ms: SilenceMs | None = None
    sentence_cuts: bool | None = None
    partials: bool | None = None
    tts_parts: bool | None = None
    glossary: Glossary | None = None
    token: Annotated[str, Meta(max_length=4096)] | None = None
    replaces: Replaced | None = None


class SessionResume(FromClient, frozen=True, kw_only=True, tag="session_resume"):
    """Resumes a session after its socket was lost, on any instance."""

    session_id: Short
    resume_token: Short
    epoch: Short
    last_seq: Count
    next_audio_seq: Count | None = None
    audio_ms: Count | None = None
    token: Annotated[str, Meta(max_length=4096)] | None = None


class SessionUpdate(FromClient, frozen=True, kw_only=True, tag="session_update"):
    """Changes languages from the next utterance on; the current utterance keeps its languages."""

    session_id: Short
    src_lang: Short | None = None
    tgt_lang: Short | None = None
    tgt_langs: Codes | None = None
    preferred_lang: Short | None = None


class AudioChunk(FromClient, frozen=True, kw_only=True, tag="audio_chunk"):
    """A piece of a stream of speech; with `is_final` the utterance ends here."""

    session_id: Short
    seq: Count
    is_final: bool
    payload: bytes | None = None
    client_timestamp_ms: Millis | None = None


class Utterance(FromClient, frozen=True, kw_only=True, tag="utterance"):
    """One whole utterance."""

    session_id: Short
    utterance_index: Count
    manual_cut: bool = True
    src_lang: Short
    tgt_lang: Short
    dialect: Short | None = None
    features: FeatureFlags | None = None
    audio: bytes
    audio_format: Short
    sample_rate: Annotated[int, Meta(ge=8000, le=192_000)]
    mode: Mode | None = None
    lang_a: Short | None = None
    lang_b: Short | None = None
    auto_langs: Codes | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Count | None = None
    trace_id: Short | None = None
    pipeline: PipelineConfig | None = None
    request_id: Short | None = None
    wants_acceptance: bool = True


class OutcomeAck(FromClient, frozen=True, kw_only=True, tag="outcome_ack"):
    """Acknowledges every outcome up to a position: the server need not keep them."""

    session_id: Short
    epoch: Short
    seq: Count


class TokenRefresh(FromClient, frozen=True, kw_only=True, tag="token_refresh"):
    """Presents a newer token of the same tenant and subject; answered by `token_refreshed`."""

    token: Annotated[str, Meta(max_length=4096)]


class ClientHeartbeat(FromClient, frozen=True, kw_only=True, tag="client_heartbeat"):
    """A sign of life; answered by `server_heartbeat`."""

    session_id: Short
    timestamp: Millis


class SessionClose(FromClient, frozen=True, kw_only=True, tag="session_close"):
    """Ends the session: all speech is still answered, then `session_close_ack` is sent."""

    session_id: Short
    reason: Name = ""


class TtsStarted(FromClient, frozen=True, kw_only=True, tag="tts_started"):
    """The client plays a translation; the pause timer stops."""

    session_id: Short
    trace_id: Short = ""
    group_id: Short = ""
    ts_start_ms: Millis = 0


class TtsPlayEnded(FromClient, frozen=True, kw_only=True, tag="tts_play_ended"):
    """The client stopped playing; the pause timer restarts."""

    session_id: Short
    trace_id: Short = ""
    group_id: Short = ""
    ts_end_ms: Millis = 0


class RoomCreate(FromClient, frozen=True, kw_only=True, tag="room_create"):
    """Creates a room and joins it."""

    client_ts: Millis = 0
    display_name: Short | None = None
    preferred_lang: Short | None = None


class RoomJoin(FromClient, frozen=True, kw_only=True, tag="room_join"):
    """Joins a room."""

    room_code: Short
    display_name: Short | None = None
    preferred_lang: Short | None = None


class RoomLeave(FromClient, frozen=True, kw_only=True, tag="room_leave"):
    """Leaves a room."""

    room_code: Short


class RoomRawVoicePreference(
    FromClient, frozen=True, kw_only=True, tag="room_raw_voice_preference"
):
    """Whether this member wants another member's own voice."""

    room_code: Short
    target_session_id: Short
    receive_raw_voice: bool


class WebrtcOffer(FromClient, frozen=True, kw_only=True, tag="webrtc_offer"):
    """Signalling for another member, relayed unchanged."""

    room_code: Short
    to: Short
    sdp: Any

    def __post_init__(self) -> None:
        check_plain(self.sdp)


class WebrtcAnswer(FromClient, frozen=True, kw_only=True, tag="webrtc_answer"):
    """Signalling for another member, relayed unchanged."""

    room_code: Short
    to: Short
    sdp: Any

    def __post_init__(self) -> None:
        check_plain(self.sdp)


class WebrtcIce(FromClient, frozen=True, kw_only=True, tag="webrtc_ice"):
    """Signalling for another member, relayed unchanged."""

    room_code: Short
    to: Short
    candidate: Any

    def __post_init__(self) -> None:
        check_plain(self.candidate)


Opening = SessionInit | SessionResume
ClientMessage = (
    SessionInit
    | SessionResume
    | SessionUpdate
    | AudioChunk
    | Utterance
    | OutcomeAck
    | TokenRefresh
    | ClientHeartbeat
    | SessionClose
    | TtsStarted
    | TtsPlayEnded
    | RoomCreate
    | RoomJoin
    | RoomLeave
    | RoomRawVoicePreference
    | WebrtcOffer
    | WebrtcAnswer
    | WebrtcIce
)
