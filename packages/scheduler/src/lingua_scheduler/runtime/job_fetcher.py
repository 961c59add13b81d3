"""Jobs of sessions elsewhere whose node is here: read from the store, or from the peer message."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.runtime.job import LiveJob, decode_body
from lingua_scheduler.runtime.job_run import JobRun
from lingua_scheduler.runtime.remote_session import RemoteSession
from lingua_scheduler.session.timeline import Marks
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.peers.messages import PushJob
    from lingua_scheduler.runtime.job import JobBody
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.peer_writer import PeerWriter
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.records import Fetched, Placement
    from lingua_scheduler.state.store import Store


class FetchedJob(NamedTuple):
    """What was found: the job, or the owner that may still have its audio."""

    job: LiveJob | None = None
    # The audio is nowhere but with the owner of the session; '': no owner either.
    is_audio_missing: bool = False
    owner: str = ""


class JobFetcher:
    """Reads jobs that this instance does not know."""

    def __init__(
        self,
        store: Store,
        cells: Cells,
        clock: Clock,
        nodes: Mapping[str, LiveNode],
        peers: PeerWriter,
    ) -> None:
        self._store = store
        self._cells = cells
        self._clock = clock
        self._nodes = nodes
        self._peers = peers

    async def fetch(
        self, placement: Placement, own: LiveJob | None, message: PushJob | None
    ) -> FetchedJob | None:
        """Return the job of a placement; None if the job has gone on or ended.

        `own` is the job if its session is here: only the store is asked whether it still counts.
        """
        home = self._cells.named(placement.home)
        has_audio = own is not None or (message is not None and bool(message.audio))
        boot = self._boot_of(placement.node)
        found = await self._store.jobs.fetch(
            home, placement.job, placement.attempt, placement.node, boot, audio=not has_audio
        )
        if found.reply is not Reply.OK or found.spec is None:
            return None
        if self._boot_of(placement.node) != boot:
            return None  # the node restarted: its registration moves what it held before
        if own is not None:
            return FetchedJob(own)
        audio = message.audio if message is not None and has_audio else found.audio
        if not audio:
            return FetchedJob(is_audio_missing=True, owner=found.owner)
        return FetchedJob(self._adopt(placement, found, audio))

    def _boot_of(self, node_id: str) -> str:
        node = self._nodes.get(node_id)
        return node.boot if node is not None else ""

    def _adopt(self, placement: Placement, found: Fetched, audio: bytes) -> LiveJob:
        spec, body, now = found.spec, decode_body(found.body), self._clock.now_ms()
        assert spec is not None
        times = self._times(body, now)
        job = LiveJob(
            id=placement.job,
            home=self._cells.named(placement.home),
            spec=spec,
            assign=body.assign,
            audio=audio,
            owner=RemoteSession(spec.session, found.owner, self._peers.write),
            lanes=body.lanes,
            run=JobRun(times),
            times=times,
        )
        job.run.begin_attempt(placement, now, now + found.left_ms)
        return job

    def _times(self, body: JobBody, now_ms: float) -> Marks:
        """Return when the job was cut, by the owner's wall clock: as exact as both clocks agree."""
        if not body.cut_at_ms:
            return Marks(cut=now_ms, push=now_ms)
        ago_ms = now_ms - self._clock.wall_ms()
        return Marks(
            speech_end=min(now_ms, body.speech_end_at_ms + ago_ms),
            cut=min(now_ms, body.cut_at_ms + ago_ms),
            push=now_ms,
        )
