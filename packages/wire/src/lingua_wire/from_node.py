"""Messages from a node. The first one is `node_register`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lingua_wire.shared import (
    CapabilityByType,
    Codes,
    Count,
    ErrorDetail,
    ExtraResult,
    FeatureFlags,
    Hardware,
    InstalledModel,
    InstalledService,
    LanguageCapabilities,
    Millis,
    Name,
    ResourceUsage,
    RunningJob,
    Short,
    Text,
    Translations,
    check_plain,
)

Models = Annotated[tuple[InstalledModel, ...], Meta(max_length=1000)]
Services = Annotated[tuple[InstalledService, ...], Meta(max_length=1000)]
Capabilities = Annotated[tuple[CapabilityByType, ...], Meta(max_length=100)]
Running = Annotated[tuple[RunningJob, ...], Meta(max_length=2000)]


# Messages have no cycles: the collector need not look at them.
class FromNode(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """Any message of a node."""


class NodeRegister(FromNode, frozen=True, kw_only=True, tag="node_register"):
    """Registers a node. A `boot_id` identifies its process and marks a node of the new protocol."""

    node_id: Short | None = None
    version: Short = ""
    capability_schema_version: Short | None = None
    platform: Short = "linux"
    hardware: Hardware | None = None
    installed_models: Models = ()
    installed_services: Services | None = None
    capability_by_type: Capabilities = ()
    features_supported: FeatureFlags | None = None
    advanced_features: Codes | None = None
    accept_public_jobs: bool = True
    language_capabilities: LanguageCapabilities | None = None
    boot_id: Short | None = None
    max_jobs: Annotated[int, Meta(ge=1, le=1024)] | None = None
    max_streams: Annotated[int, Meta(ge=0, le=1024)] | None = None
    sends_acks: bool | None = None
    batches_acks: bool | None = None
    running: Running | None = None
    token: Annotated[str, Meta(max_length=4096)] | None = None
    labels: Codes | None = None


class NodeHeartbeat(FromNode, frozen=True, kw_only=True, tag="node_heartbeat"):
    """The state of a node."""

    node_id: Short
    timestamp: Millis = 0
    resource_usage: ResourceUsage
    installed_models: Models | None = None
    installed_services: Services | None = None
    capability_by_type: Capabilities | None = None
    language_capabilities: LanguageCapabilities | None = None
    running: Running | None = None


class NodeTokenRefresh(FromNode, frozen=True, kw_only=True, tag="token_refresh"):
    """Presents a newer token of the same node and tenant; answered by `token_refreshed`."""

    token: Annotated[str, Meta(max_length=4096)]


class JobAck(FromNode, frozen=True, kw_only=True, tag="job_ack"):
    """The job has arrived and is queued on the node."""

    job_id: Short
    attempt_id: Count
    node_id: Short = ""
    session_id: Short = ""
    trace_id: Short = ""


class JobStarted(FromNode, frozen=True, kw_only=True, tag="job_started"):
    """The node works on the job."""

    job_id: Short
    attempt_id: Count
    node_id: Short = ""
    session_id: Short = ""
    trace_id: Short = ""
    # For how long it has worked on it when it reports that.
    running_ms: Count = 0


class NodeAsrPartial(FromNode, frozen=True, kw_only=True, tag="asr_partial"):
    """The text recognised so far."""

    job_id: Short
    node_id: Short = ""
    session_id: Short = ""
    utterance_index: Count = 0
    text: Text
    is_final: bool = False
    trace_id: Short = ""
    attempt_id: Count | None = None


class StreamPartial(FromNode, frozen=True, kw_only=True, tag="stream_partial"):
    """The text of a stream so far: what will not change any more, and the rest.

    It may hint where a sentence has ended, and whether the text so far is a whole sentence.
    """

    stream_id: Short
    revision: Count
    upto_ms: Count
    src_lang: Short | None = None
    stable: Text = ""
    unstable: Text = ""
    translations: Translations = ()
    sentence_end_ms: Count | None = None
    is_complete: bool | None = None


class StreamClosed(FromNode, frozen=True, kw_only=True, tag="stream_closed"):
    """The node listens no longer to a stream, for example because it is too busy."""

    stream_id: Short
    reason: Name = ""


class JobAudioPart(FromNode, frozen=True, kw_only=True, tag="job_audio_part"):
    """A part of the spoken translation, as soon as it exists; the result has all of it."""

    job_id: Short
    attempt_id: Count
    part_index: Count
    audio: bytes
    audio_format: Short = "pcm16"


class JobResult(FromNode, frozen=True, kw_only=True, tag="job_result"):
    """How a job ended on the node."""

    job_id: Short
    attempt_id: Count = 1
    node_id: Short = ""
    session_id: Short = ""
    utterance_index: Count = 0
    success: bool
    text_asr: Text | None = None
    text_translated: Text | None = None
    tts_audio: bytes | None = None
    tts_format: Short | None = None
    extra: ExtraResult | None = None
    processing_time_ms: float | None = None
    error: ErrorDetail | None = None
    trace_id: Short = ""
    group_id: Short | None = None
    part_index: Count | None = None
    node_completed_at_ms: Millis | None = None
    asr_quality_level: Short | None = None
    reason_codes: Codes | None = None
    quality_score: float | None = None
    rerun_count: Count | None = None
    segments_meta: Any = None
    audio_parts: Count | None = None

    def __post_init__(self) -> None:
        if self.segments_meta is not None:
            check_plain(self.segments_meta)


class NodeError(FromNode, frozen=True, kw_only=True, tag="node_error"):
    """An error on the node that belongs to no job."""

    node_id: Short = ""
    code: Short
    message: Name = ""
    details: Any = None


class NodeDrain(FromNode, frozen=True, kw_only=True, tag="node_drain"):
    """The node takes no new jobs (`draining`), or takes them again."""

    draining: bool = True
    reason: Name = ""


class JobCancelAck(FromNode, frozen=True, kw_only=True, tag="job_cancel_ack"):
    """The node has dropped a cancelled job."""

    job_id: Short
    attempt_id: Count = 0
    stopped: bool = True


NodeMessage = (
    NodeRegister
    | NodeHeartbeat
    | JobAck
    | JobStarted
    | NodeAsrPartial
    | StreamPartial
    | StreamClosed
    | JobAudioPart
    | JobResult
    | NodeError
    | NodeDrain
    | JobCancelAck
    | NodeTokenRefresh
)
