"""An utterance and a language make a job: its identity, what the store and what a node must know.

Pure but for reading the session; called once per job, on the hot path.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.live.job import LiveJob
from lingua_scheduler.live.requests import job_of_request
from lingua_scheduler.messages.to_node import JobAssign
from lingua_scheduler.session.timeline import Marks
from lingua_scheduler.state.records import JobSpec, job_id_of, request_scope

if TYPE_CHECKING:
    from lingua_scheduler.config import Segmentation
    from lingua_scheduler.live.piece import Piece
    from lingua_scheduler.live.profile import Target
    from lingua_scheduler.live.session import LiveSession


pack = msgspec.msgpack.Encoder().encode


def job_of(
    session: LiveSession, piece: Piece, target: Target, cuts: Segmentation, *, retain_audio: bool
) -> LiveJob:
    """Return the job of an utterance into one language."""
    profile, lanes = piece.profile, len(piece.targets)
    sound, also = "", tuple[str, ...]()
    if piece.request_id is None:
        request = f"{session.id}:{piece.index}:{target.lane}:{piece.trace_id}"
        job_id = job_id_of(request_scope("", session.id), request)
    else:
        # Its first language is found by the request alone, and says which others there are.
        first, *others = piece.targets
        sound, lane = piece.sound, "" if target is first else target.lane
        also = () if lane else tuple(other.lane for other in others)
        job_id = job_of_request(session.tenant, session.id, piece.request_id, lane)
    # All languages of one utterance belong on one node too: it recognises once.
    in_turn = piece.in_turn or lanes > 1
    spec = JobSpec(
        session=session.id, index=piece.index, lane=target.lane,
        demand=profile.demand_of(target.language), turn=piece.turn if in_turn else "",
        is_slice=piece.is_slice, closes_turn=in_turn and not piece.is_slice,
        preferred=profile.paired, audio=retain_audio, fence=session.fence,
        top=session.admission.top, heard_after=piece.before.seq, audience=target.audience,
        readers=piece.readers,
        ms=max(0, piece.end_ms - piece.start_ms), lanes=lanes, sound=sound, also=also,
    )  # fmt: skip
    two_way = profile.two_way
    assign = JobAssign(
        job_id=job_id, attempt_id=0, session_id=session.id, utterance_index=piece.index,
        src_lang=profile.source, tgt_lang=target.language, dialect=profile.dialect,
        features=profile.features, pipeline=profile.pipeline, audio=b"",
        audio_format=profile.audio.name, sample_rate=profile.audio.sample_rate,
        mode="two_way_auto" if two_way else None, lang_a=two_way[0] if two_way else None,
        lang_b=two_way[1] if two_way else None, auto_langs=profile.auto_langs or None,
        enable_streaming_asr=profile.streaming, partial_update_interval_ms=profile.partial_ms,
        trace_id=piece.trace_id, context_text=session.deliverer.context or None,
        glossary=profile.terms_of(target.language) if profile.glossary else (),
        padding_ms=padding_of(piece.trigger, cuts), is_manual_cut=piece.trigger == "manual",
        is_timeout_triggered=piece.trigger == "timeout", is_max_duration_triggered=piece.is_slice,
        turn_id=piece.turn, traceparent=traceparent_of(piece.trace_id, job_id),
    )  # fmt: skip
    marks = Marks(speech_end=piece.speech_end_ms, cut=piece.cut_ms)
    return LiveJob(
        job_id, session.home, spec, assign, piece.audio, session, lanes, marks,
        piece.first_client_ts_ms, request_id=piece.request_id, before=piece.before,
    )  # fmt: skip


def spec_after(spec: JobSpec, known: int) -> JobSpec:
    """Return the spec of a job whose lane never hears of the indices from `known` on before it."""
    return msgspec.structs.replace(spec, unwanted_from=known)


def spec_for_readers(spec: JobSpec, unheard_from: int) -> JobSpec:
    """Return the spec of a job whose readers never hear of the indices from there on before it."""
    return msgspec.structs.replace(spec, readers_from=unheard_from)


def others_of(spec: JobSpec) -> bytes:
    """Return who is told in place of the speaker what becomes of a job, as the store takes it."""
    if not spec.audience:
        return b""
    others = {"audience": spec.audience, "lanes": spec.lanes}
    if spec.readers:
        others |= {"readers": spec.readers, "readers_from": spec.readers_from}
    return pack(others)


def stream_of(spec: JobSpec) -> bytes:
    """Return what a job that ends a piece of the stream notes of it, as the store takes it."""
    if spec.heard < 0:
        return b""
    return pack(
        {"top": spec.top, "heard": spec.heard, "heard_ms": spec.heard_ms, "speech": spec.speech}
    )


def spec_of_owner(spec: JobSpec, fence: int) -> JobSpec:
    """Return the spec as its session's owner submits it."""
    return spec if spec.fence == fence else msgspec.structs.replace(spec, fence=fence)


def spec_heard(spec: JobSpec, heard: int, heard_ms: int, speech_ms: int) -> JobSpec:
    """Return the spec of the job that completes a piece of the stream: what is admitted with it."""
    return msgspec.structs.replace(spec, heard=heard, heard_ms=heard_ms, speech=speech_ms)


def padding_of(trigger: str, cuts: Segmentation) -> int | None:
    """Return how much silence a node is told to append."""
    if trigger == "manual":
        return cuts.padding_manual_ms
    return cuts.padding_auto_ms if trigger in ("timeout", "max_duration", "session_close") else None


# At most as many digits as a trace has, not all of them zero.
HEX = re.compile(r"[0-9a-f]{1,32}")


@lru_cache(maxsize=4096)
def trace_of(trace_id: str) -> str:
    """Return a trace id as W3C wants it: the client's own where it is one, else made of it."""
    digits = trace_id.replace("-", "").lower()
    if HEX.fullmatch(digits) and digits.strip("0"):
        return digits.rjust(32, "0")
    return hashlib.blake2b(trace_id.encode(), digest_size=16).hexdigest()


def traceparent_of(trace_id: str, job_id: str) -> str:
    """Return the W3C trace context of a job: the same trace for all jobs of one trace id."""
    return f"00-{trace_of(trace_id)}-{job_id[-16:]}-01"
