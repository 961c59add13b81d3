"""Whole utterances that their clients name: the same request always has the same answer.

One `Requests` per session. A repeated request makes no second job. In the same session it is
answered under the index it has. In another session of the tenant it gets an index of that session
and the answer of the first request, once there is one. The store is asked whether a name is known
only if this instance cannot know, and in the order in which the utterances came.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from lingua_scheduler.runtime.job_builder import job_of_request
from lingua_scheduler.runtime.known_requests import KnownRequest
from lingua_scheduler.state.records import FoundRequest, LaneFill, Released, Submitted, answered_by
from lingua_scheduler.state.reply import Reply
from lingua_wire.errors import InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.known_requests import KnownRequests
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.utterance_replies import UtteranceReplies
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import JobSpec
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.from_client import Utterance

# The pause between two checks of another session's job that has no outcome yet.
AGAIN_S = 0.1


class WholeRequest(msgspec.Struct, frozen=True):
    """A whole utterance as it was received."""

    message: Utterance
    profile: Profile
    sound: int | str


def sound_of(message: Utterance) -> str:
    """Return a digest of a request's audio and languages, the same on any instance.

    It detects mistakes, not forgeries: a client could only deceive itself.
    """
    form = form_of(message.src_lang, message.tgt_lang, message.audio_format, message.sample_rate)
    number = zlib.crc32(message.audio, form)
    return f"{number:08x}{len(message.audio):x}"


@lru_cache(maxsize=1024)
def form_of(source: str, target: str, audio_format: str, sample_rate: int) -> int:
    """Return a checksum of an utterance's languages and audio format."""
    return zlib.crc32(f"{source}>{target}|{audio_format}|{sample_rate}".lower().encode())


class RepeatedOutcomes(Protocol):
    """Outcomes that can be sent once more."""

    @property
    def seq(self) -> int:
        """Return the position of the last outcome delivered."""

    async def repeat(self, index: int) -> None:
        """Send the outcomes of an utterance again, as far as they are kept."""

    def send_again(self, outcome: Released) -> None:
        """Send an outcome of the speaker itself once more, as it was sent before."""


@dataclass(slots=True, kw_only=True, eq=False)
class Requests:
    """What is known of a session's whole utterances, and those that wait to be looked up."""

    record: SessionRecord
    replies: UtteranceReplies
    outcomes: RepeatedOutcomes
    # How a new utterance is admitted, and how one whose answer exists gets its place.
    admit: Callable[[WholeRequest], int]
    place: Callable[[WholeRequest, tuple[str, ...]], list[JobSpec]]
    # Called when a request begins to wait to be looked up, and when none waits any more.
    on_waiting: Callable[[], None]
    on_done: Callable[[], None]
    # How a place gets its outcome, and how a job is submitted.
    fill: Callable[[JobSpec, LaneFill], Awaitable[bool]]
    enter: Callable[[LiveJob], Awaitable[Submitted]]
    store: Store
    cells: Cells
    retry: StoreRetry
    tasks: Tasks
    lifecycle: Lifecycle
    metrics: LiveMetrics
    # Over how many cells the sessions of its tenant are spread.
    spread: int
    known: KnownRequests
    # A list, because few requests may wait.
    line: list[WholeRequest] = field(default_factory=list)

    @property
    def is_spread(self) -> bool:
        """Tell whether other cells may have requests of the tenant."""
        return self.spread > 1

    def __len__(self) -> int:
        return len(self.line)

    def clear(self) -> None:
        """Drop what waits to be looked up."""
        self.line.clear()

    # Receiving

    def take(self, message: Utterance, profile: Profile) -> WholeRequest | None:
        """Return an utterance that is new; one that the store must be asked for waits in line.

        The caller admits what is new at once.
        """
        name = message.request_id
        # A request id identifies a repetition; without one, trace and audio must be the same.
        sound = sound_of(message) if name else hash((message.trace_id, message.audio))
        request = WholeRequest(message, profile, sound)
        if not self.line and (self.known.is_complete or name is None or name in self.known):
            known = self.known.get(name or message.utterance_index)
            return request if known is None or self._is_other(request, known) else None
        self.line.append(request)
        self.on_waiting()
        if len(self.line) == 1:
            self.tasks.start(self._serve())
        return None

    async def _serve(self) -> None:
        line = self.line
        try:
            while line:
                await self._look(line[0])
                if line:
                    del line[0]
        finally:
            line.clear()  # after an error of ours: later requests must not wait for ever
        self.on_done()

    async def _look(self, request: WholeRequest) -> None:
        try:
            is_new = request.message.request_id is None or await self._is_new(request)
            if not is_new or self.record.is_over:
                return
            message = request.message
            known = self.known.get(message.request_id or message.utterance_index)
            if known is None or self._is_other(request, known):
                self.remember(request, self.admit(request))
        except InvalidMessage as problem:
            self.replies.invalid(str(problem), request.message)

    def _is_other(self, request: WholeRequest, known: KnownRequest) -> bool:
        """Tell whether a request is new although its name or index is known; if not, answer it."""
        message = request.message
        if known.sound == request.sound:
            self.metrics.jobs.duplicate_job_blocked_total.inc()
            self.tasks.start(self._repeat(message, known.utterance))
            return False
        if message.request_id is not None:
            self.replies.conflict(message)
            return False
        return True

    def remember(self, request: WholeRequest, index: int) -> None:
        """Remember the index of a request that was admitted."""
        name = request.message.request_id or request.message.utterance_index
        self.known.add(name, KnownRequest(request.sound, index))

    def forget(self, request_id: str | None) -> None:
        """Forget a request that was refused: if it is sent again, it is new."""
        if request_id is not None:
            self.known.forget(request_id)

    # Requests in the store

    async def _is_new(self, request: WholeRequest) -> bool:
        """Tell whether the store has no job of a request; if it has, answer from its outcome."""
        record, name = self.record, request.message.request_id or ""
        while not record.is_over and name not in self.known:
            found = await self._find(name)
            if not found:
                return True
            if record.is_over or await self._is_answered(request, found):
                return False
            await asyncio.sleep(AGAIN_S)
        return True

    async def _is_answered(self, request: WholeRequest, found: Sequence[FoundRequest]) -> bool:
        """Answer a request that the store has; False while another session's job still runs."""
        message, first = request.message, found[0].spec
        if first is None or first.sound != request.sound:
            self.replies.conflict(message)
        elif (place := found[0].place_in(self.record.id)) is not None:
            self.metrics.jobs.duplicate_job_blocked_total.inc()
            self.remember(request, place[0])
            self._send_again(message, found)
        elif all(one.outcome for one in found):
            self.metrics.jobs.duplicate_job_blocked_total.inc()
            await self._answer(request, found)
        elif self.lifecycle.is_draining:
            self.replies.draining(message)
        else:
            return False
        return True

    async def _find(self, request_id: str) -> Sequence[FoundRequest]:
        """Return the jobs of a request, one for each language; none if any is missing."""
        record = self.record
        first = await self._found(job_of_request(record.scope, request_id))
        if first.spec is None:
            return ()
        others = [
            await self._found(job_of_request(record.scope, request_id, lane))
            for lane in first.spec.also
        ]
        return (first, *others) if all(one.spec is not None for one in others) else ()

    async def _found(self, job: str) -> FoundRequest:
        record, until_stored = self.record, self.retry.until_stored
        find = self.store.requests.find
        found = await until_stored(partial(find, record.home, job, record.id))
        if not self.is_spread:
            return found
        cell = self._cell_of(job)
        name, _ = await until_stored(lambda: self.store.requests.bind(cell, job))
        if not name or name == record.home.name:
            return found
        there = self.cells.named(name)
        other = await until_stored(partial(find, there, job, record.id))
        return other._replace(told=found.told)

    def _cell_of(self, job: str) -> Cell:
        """Return the cell that records which cell has a job."""
        return self.cells.home_of(self.record.tenant, job, self.spread)

    async def elsewhere(self, job: LiveJob) -> FoundRequest | None:
        """Claim a request for this session's cell; returns its job if another cell has it."""
        until_stored, mine, lost = self.retry.until_stored, self.record.home.name, ""
        if not job.spec.sound:
            return None
        cell, store = self._cell_of(job.id), self.store
        while not self.record.is_over:
            home, _ = await until_stored(
                partial(store.requests.bind, cell, job.id, mine, instead_of=lost)
            )
            if home == mine:
                return None
            there = self.cells.named(home)
            found = await until_stored(partial(store.requests.find, there, job.id, self.record.id))
            if found.spec is not None:
                return found
            lost = home
            await asyncio.sleep(AGAIN_S)
        return None

    # Repeated answers

    async def _repeat(self, message: Utterance, index: int) -> None:
        """Answer a repetition of a request that this instance knows."""
        if message.request_id is None:
            await self.outcomes.repeat(index)
        else:
            self._send_again(message, await self._find(message.request_id))

    def _send_again(self, message: Utterance, found: Sequence[FoundRequest]) -> None:
        """Send the index of a request again, and those of its outcomes that were sent before."""
        if not found:
            return  # on its way to the store: everything is reported when it is stored
        places = [one.place_in(self.record.id) for one in found]
        if places[0] is not None and found[0].spec is not None:
            length = found[0].spec.ms
            self.replies.accepted_before(places[0][0], length, message.utterance_index)
        for one, place in zip(found, places, strict=True):
            if place is not None and 0 < place[1] <= self.outcomes.seq:
                self.outcomes.send_again(outcome_of(one, *place))

    async def _answer(self, request: WholeRequest, found: Sequence[FoundRequest]) -> None:
        """Give the answer of another session's request a place in this session's order."""
        message = request.message
        specs = [one.spec for one in found if one.spec is not None]
        places = self.place(request, tuple(spec.lane for spec in specs))
        self.remember(request, places[0].index)
        for one, place in zip(found, places, strict=True):
            await self.fill(place, answer_of(one, place))
        index, length = places[0].index, places[0].ms
        self.replies.accepted_before(index, length, message.utterance_index)

    async def follow(self, job: LiveJob, answer: Submitted) -> Submitted:
        """Wait for the same job of another utterance, made at the same time, and use its answer."""
        record, known, spec = self.record, answer.known, job.spec
        if known is None or known.sound != spec.sound:
            self.replies.in_conflict(spec)
            await self.fill(spec, LaneFill(ms=spec.ms, lanes=spec.lanes))
            return Submitted(Reply.JOB_ENDED)
        while not record.is_over:
            found = await self._found(job.id)
            if found.spec is None:
                return await self.enter(job)
            if found.outcome:
                self.metrics.jobs.duplicate_job_blocked_total.inc()
                await self.fill(spec, answer_of(found, spec))
                return answer
            await asyncio.sleep(AGAIN_S)
        return answer


def outcome_of(found: FoundRequest, index: int, seq: int) -> Released:
    """Return the outcome of a request as it was released."""
    assert found.spec is not None, "a request with a place has a job"
    return Released(
        seq=seq,
        kind=found.outcome,
        utterance=index,
        lane=found.spec.lane,
        job=found.job,
        attempt=found.attempt,
        reason=found.reason,
        payload=found.answer,
        is_passed=bool(found.spec.audience) and not found.told,
    )


def answer_of(found: FoundRequest, place: JobSpec) -> LaneFill:
    """Return the answer of a request as it fills the place of another utterance."""
    return LaneFill(
        kind=found.outcome,
        job=answered_by(found.job),
        attempt=found.attempt,
        reason=found.reason,
        payload=found.answer,
        ms=place.ms,
        lanes=place.lanes,
    )
