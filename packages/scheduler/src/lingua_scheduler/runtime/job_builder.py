"""Builds the job of an utterance into one language: its id, its spec for the store, the message.

Pure; called once per job, on the hot path. The `spec_...` functions return changed specs.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.runtime.job import LiveJob
from lingua_scheduler.runtime.job_run import JobRun
from lingua_scheduler.session.timeline import Marks
from lingua_scheduler.session.utterance import STREAM_START
from lingua_scheduler.state.records import JobSpec, job_id_of, request_scope
from lingua_wire.to_node import JobAssign

if TYPE_CHECKING:
    from lingua_scheduler.config import SegmentationSettings
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.runtime.job import JobOwner
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.session.utterance import StreamPosition, Target


pack = msgspec.msgpack.Encoder().encode


class AssignTemplate(msgspec.Struct, frozen=True):
    """The message for a node as far as all jobs of a profile into one language share it."""

    profile: Profile
    target: Target
    assign: JobAssign


class JobContext(msgspec.Struct, frozen=True):
    """What a session adds to the jobs of its utterances."""

    owner: JobOwner
    record: SessionRecord
    # The next free utterance index, as a later owner must know it.
    top: int
    # The text of the conversation so far, for the node.
    text: str
    retain_audio: bool
    # When the job is submitted, by the monotonic and by the wall clock.
    now_ms: float = 0.0
    wall_ms: int = 0
    # By lane; the session keeps them.
    templates: dict[str, AssignTemplate] = {}


def build_job(
    context: JobContext,
    utterance: PendingUtterance,
    target: Target,
    cuts: SegmentationSettings,
    *,
    unwanted_from: int = -1,
    heard: StreamPosition = STREAM_START,
) -> LiveJob:
    """Return the job of an utterance into one language.

    `unwanted_from`: the first of the indices before it that its lane skips. `heard`: where the
    stream ends with it, for the job with which all of the utterance is in the store.
    """
    record, profile, lanes = context.record, utterance.profile, len(utterance.targets)
    stream = utterance.stream
    job_id, sound, also = identity_of(record, utterance, target)
    # All languages of one utterance belong on one node, which recognises the speech once.
    in_turn = utterance.in_turn or lanes > 1
    times = Marks(speech_end=utterance.speech_end_ms, cut=utterance.cut_ms, submit=context.now_ms)
    return LiveJob(
        id=job_id,
        home=record.home,
        spec=JobSpec(
            session=record.id,
            index=utterance.index,
            lane=target.lane,
            demand=profile.demand_for(target)
            if target.is_read
            else profile.demands.get(target.language) or profile.demand_of(target.language),
            turn=utterance.turn_id if in_turn else "",
            is_slice=utterance.is_slice,
            closes_turn=in_turn and not utterance.is_slice,
            preferred=profile.paired,
            unwanted_from=unwanted_from,
            audio=context.retain_audio and lanes > 1,
            own_audio=context.retain_audio and lanes == 1,
            fence=record.fence,
            top=context.top,
            heard=heard.seq,
            heard_ms=heard.end_ms,
            heard_after=utterance.before.seq,
            audience=target.audience,
            readers=utterance.readers,
            speech=heard.speech_ms,
            ms=max(0, utterance.end_ms - utterance.start_ms),
            lanes=lanes,
            sound=sound,
            also=also,
            stream=stream.id if stream is not None else "",
            stream_node=stream.holder if stream is not None else "",
        ),
        assign=_assignment(context, utterance, target, job_id, cuts),
        audio=utterance.audio,
        owner=context.owner,
        lanes=lanes,
        run=JobRun(times),
        times=times,
        first_client_ts_ms=utterance.first_client_ts_ms,
        received_at_ms=context.wall_ms,
        request_id=utterance.request_id,
        stream_before=utterance.before,
        on_node=utterance.on_node,
    )


def identity_of(
    record: SessionRecord, utterance: PendingUtterance, target: Target
) -> tuple[str, str, tuple[str, ...]]:
    """Return a job's id, the digest of its request, and the request's other languages."""
    request_id, targets = utterance.request_id, utterance.targets
    if request_id is None:
        request = f"{record.id}:{utterance.index}:{target.lane}:{utterance.trace_id}"
        return job_id_of(request_scope("", record.id), request), "", ()
    # The job of the first language is found by the request id, and names the others.
    if target is targets[0]:
        also = tuple([other.lane for other in targets[1:]]) if len(targets) > 1 else ()
        return job_id_of(record.scope, request_id), utterance.sound, also
    job_id = job_of_request(record.scope, request_id, target.lane)
    return job_id, utterance.sound, ()


def _assignment(
    context: JobContext,
    utterance: PendingUtterance,
    target: Target,
    job_id: str,
    cuts: SegmentationSettings,
) -> JobAssign:
    profile, trigger = utterance.profile, utterance.trigger
    known = context.templates.get(target.lane)
    if known is None or known.profile is not profile or known.target is not target:
        known = AssignTemplate(profile, target, _template(context.record, profile, target))
        context.templates[target.lane] = known
    return msgspec.structs.replace(
        known.assign,
        job_id=job_id,
        utterance_index=utterance.index,
        trace_id=utterance.trace_id,
        context_text=context.text or None,
        padding_ms=padding_of(trigger, cuts),
        is_manual_cut=trigger == "manual",
        is_timeout_triggered=trigger == "timeout",
        is_max_duration_triggered=utterance.is_slice,
        turn_id=utterance.turn_id,
        traceparent=traceparent_of(utterance.trace_id, job_id),
    )


def _template(record: SessionRecord, profile: Profile, target: Target) -> JobAssign:
    """Return what the messages for all jobs of a session into one language have in common."""
    two_way = profile.two_way
    return JobAssign(
        job_id="",
        attempt_id=0,
        session_id=record.id,
        utterance_index=0,
        src_lang=profile.source,
        tgt_lang=target.language,
        dialect=profile.dialect,
        features=profile.features,
        pipeline=profile.stages_of(target),
        audio=b"",
        audio_format=profile.audio.name,
        sample_rate=profile.audio.sample_rate,
        mode="two_way_auto" if two_way else None,
        lang_a=two_way[0] if two_way else None,
        lang_b=two_way[1] if two_way else None,
        auto_langs=profile.auto_langs or None,
        enable_streaming_asr=profile.streaming,
        partial_update_interval_ms=profile.partial_ms,
        trace_id="",
        glossary=profile.terms_of(target.language) if profile.glossary else (),
        tts_parts=True if profile.tts_parts and not target.audience else None,
    )


def job_of_request(scope: str, request_id: str, lane: str = "") -> str:
    """Return the job of a request; its first language has the plain id."""
    first = job_id_of(scope, request_id)
    return job_id_of(first, lane) if lane else first


def spec_after(spec: JobSpec, known: int) -> JobSpec:
    """Return the spec of a job whose lane skips the indices from `known` on before it."""
    return msgspec.structs.replace(spec, unwanted_from=known)


def spec_for_readers(spec: JobSpec, unheard_from: int) -> JobSpec:
    """Return the spec of a job whose readers skip the indices from there on before it."""
    return msgspec.structs.replace(spec, readers_from=unheard_from)


def others_of(spec: JobSpec) -> bytes:
    """Return who gets a job's outcome in place of the speaker, in the store's format."""
    if not spec.audience:
        return b""
    others = {"audience": spec.audience, "lanes": spec.lanes}
    if spec.readers:
        others |= {"readers": spec.readers, "readers_from": spec.readers_from}
    return pack(others)


def stream_of(spec: JobSpec) -> bytes:
    """Return the stream position that a job records, in the store's format."""
    if spec.heard < 0:
        return b""
    return pack(
        {"top": spec.top, "heard": spec.heard, "heard_ms": spec.heard_ms, "speech": spec.speech}
    )


def spec_of_owner(spec: JobSpec, fence: int) -> JobSpec:
    """Return the spec as its session's owner submits it."""
    return spec if spec.fence == fence else msgspec.structs.replace(spec, fence=fence)


def padding_of(trigger: str, cuts: SegmentationSettings) -> int | None:
    """Return how much silence a node is asked to append."""
    if trigger == "manual":
        return cuts.padding_manual_ms
    return cuts.padding_auto_ms if trigger in AUTOMATIC else None


# Triggers of cuts that nobody asked for.
AUTOMATIC = ("timeout", "sentence", "max_duration", "session_close")
# At most as many digits as a trace has, not all of them zero.
HEX = re.compile(r"[0-9a-f]{1,32}")


@lru_cache(maxsize=4096)
def trace_of(trace_id: str) -> str:
    """Return a W3C trace id: the client's own if it is valid, else one derived from it."""
    digits = trace_id.replace("-", "").lower()
    if HEX.fullmatch(digits) and digits.strip("0"):
        return digits.rjust(32, "0")
    return hashlib.blake2b(trace_id.encode(), digest_size=16).hexdigest()


def traceparent_of(trace_id: str, job_id: str) -> str:
    """Return the W3C trace context of a job: the same trace for all jobs of one trace id."""
    return f"00-{trace_of(trace_id)}-{job_id[-16:]}-01"
