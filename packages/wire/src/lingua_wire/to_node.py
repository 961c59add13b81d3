"""Messages from the scheduler to a node."""

from __future__ import annotations

from typing import Any

import msgspec

from lingua_wire.shared import (  # noqa: TC001 msgspec reads them at run time
    FeatureFlags,
    PipelineConfig,
    ResultAck,
    Term,
)


# Messages have no cycles: the collector need not look at them.
class ToNode(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """Any message to a node."""


class NodeRegisterAck(ToNode, frozen=True, kw_only=True, tag="node_register_ack"):
    """The node is registered; it gets jobs after its first good heartbeat."""

    node_id: str
    message: str
    status: str
    max_jobs: int | None = None
    heartbeat_ms: int | None = None


class JobAssign(ToNode, frozen=True, kw_only=True, tag="job_assign"):
    """A job for the node."""

    job_id: str
    attempt_id: int
    session_id: str
    utterance_index: int
    src_lang: str
    tgt_lang: str
    dialect: str | None = None
    features: FeatureFlags | None = None
    pipeline: PipelineConfig
    audio: bytes
    audio_format: str
    sample_rate: int
    mode: str | None = None
    lang_a: str | None = None
    lang_b: str | None = None
    auto_langs: tuple[str, ...] | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: int | None = None
    trace_id: str
    group_id: str | None = None
    part_index: int | None = None
    context_text: str | None = None
    glossary: tuple[Term, ...] = ()
    padding_ms: int | None = None
    is_manual_cut: bool = False
    is_pause_triggered: bool = False
    is_timeout_triggered: bool = False
    is_max_duration_triggered: bool = False
    turn_id: str | None = None
    context_reset: bool = False
    deadline_ms: int | None = None
    traceparent: str | None = None
    stream_id: str | None = None
    tts_parts: bool | None = None


class StreamOpen(ToNode, frozen=True, kw_only=True, tag="stream_open"):
    """Somebody begins to speak: listen, and report the text while the speech goes on.

    Only for nodes with `max_streams`. Nothing depends on it: the job of the utterance follows with
    its whole audio, here or elsewhere, and names the stream if it is here.
    """

    stream_id: str
    session_id: str
    src_lang: str
    tgt_langs: tuple[str, ...]
    dialect: str | None = None
    features: FeatureFlags | None = None
    pipeline: PipelineConfig
    audio_format: str
    sample_rate: int
    mode: str | None = None
    lang_a: str | None = None
    lang_b: str | None = None
    auto_langs: tuple[str, ...] | None = None
    partial_update_interval_ms: int | None = None
    trace_id: str
    context_text: str | None = None
    glossary: tuple[Term, ...] = ()
    turn_id: str | None = None


class StreamAudio(ToNode, frozen=True, kw_only=True, tag="stream_audio"):
    """The next audio of a stream."""

    stream_id: str
    audio: bytes


class StreamEnd(ToNode, frozen=True, kw_only=True, tag="stream_end"):
    """The stream is over: the utterance was cut, or its head start is not needed any more."""

    stream_id: str
    reason: str
    audio_bytes: int | None = None


class JobCancel(ToNode, frozen=True, kw_only=True, tag="job_cancel"):
    """The job is no longer needed, from this node or at all."""

    job_id: str
    trace_id: str | None = None
    reason: str | None = None
    attempt_id: int | None = None


class JobResultAck(ToNode, frozen=True, kw_only=True, tag="job_result_ack"):
    """The result was accepted (`accepted`), or no longer counts; do not send it again."""

    job_id: str
    attempt_id: int
    status: str


class JobResultAcks(ToNode, frozen=True, kw_only=True, tag="job_result_acks"):
    """Several results at once, each as in `job_result_ack`; for nodes with `batches_acks`."""

    results: tuple[ResultAck, ...]


class NodeStatusMessage(ToNode, frozen=True, kw_only=True, tag="node_status"):
    """The node's status changed."""

    node_id: str
    status: str
    reason: str | None = None
    timestamp: int


class NodeControl(ToNode, frozen=True, kw_only=True, tag="node_control"):
    """A command of the instance: `reconnect` when it stops."""

    command: str
    reason: str | None = None


class NodeTokenExpiring(ToNode, frozen=True, kw_only=True, tag="token_expiring"):
    """The token of this socket expires soon, and the socket is then closed: refresh it."""

    expires_in_ms: int


class NodeTokenRefreshed(ToNode, frozen=True, kw_only=True, tag="token_refreshed"):
    """The newer token applies from now on, also where it allows less."""

    expires_at_ms: int | None = None
    expires_in_ms: int | None = None


class NodeErrorMessage(ToNode, frozen=True, kw_only=True, tag="error"):
    """A message of the node was refused."""

    code: str
    message: str
    details: Any = None


SchedulerToNode = (
    NodeRegisterAck
    | JobAssign
    | StreamOpen
    | StreamAudio
    | StreamEnd
    | JobCancel
    | JobResultAck
    | JobResultAcks
    | NodeStatusMessage
    | NodeControl
    | NodeTokenExpiring
    | NodeTokenRefreshed
    | NodeErrorMessage
)
