"""Whole utterances that their clients name: the same request has the same answer, always.

One per session. A repetition makes no second job: in its own session it is answered under the
index it has; in another session of the tenant it gets an index of that session and the answer of
the first, once there is one. Whether a name is known is asked of the store only if this instance
cannot know, and in the order in which the utterances came.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.state.records import (
    Answer,
    Found,
    Released,
    Submitted,
    answered_by,
    job_id_of,
    request_scope,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.admission import Admission
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.profile import Profile
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.from_client import Utterance
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import JobSpec

KNOWN_MAX = 1024
# How often a job of another session is looked at while it lives.
AGAIN_S = 0.1


class Asked(NamedTuple):
    """A whole utterance as it came."""

    message: Utterance
    profile: Profile
    sound: int | str


class Known(NamedTuple):
    """What is remembered of one that was taken: its sound, and the index it got."""

    sound: int | str
    utterance: int


def sound_of(message: Utterance) -> str:
    """Return what tells a request's audio and languages from others', on any instance.

    It finds mistakes, not forgeries: a client could only deceive itself.
    """
    form = form_of(message.src_lang, message.tgt_lang, message.audio_format, message.sample_rate)
    number = zlib.crc32(message.audio, form)
    return f"{number:08x}{len(message.audio):x}"


@lru_cache(maxsize=1024)
def form_of(source: str, target: str, audio_format: str, sample_rate: int) -> int:
    """Return a number for what an utterance says of itself besides its audio."""
    return zlib.crc32(f"{source}>{target}|{audio_format}|{sample_rate}".lower().encode())


def job_of_request(tenant: str, session: str, request_id: str, lane: str = "") -> str:
    """Return the job of a request; its first language has the plain one."""
    first = job_id_of(request_scope(tenant, session), request_id)
    return job_id_of(first, lane) if lane else first


class Requests:
    """What is known of a session's whole utterances, and those that wait to be known."""

    __slots__ = (
        "_admission", "_board", "_known", "_line", "_session", "_spread", "is_spread", "must_ask",
    )  # fmt: skip

    def __init__(
        self, session: LiveSession, admission: Admission, board: JobBoard, settings: Settings
    ) -> None:
        self._session = session
        self._admission = admission
        self._board = board
        # By request id, or by the index they came with.
        self._known: dict[str | int, Known] = {}
        # There may be others that only the store knows of.
        self.must_ask = bool(session.tenant)
        # Short: what waits is bounded.
        self._line: list[Asked] = []
        # In so many cells are the sessions of its tenant.
        cells = (tenant.cells for tenant in settings.tenants if tenant.id == session.tenant)
        self._spread = next(cells, 1)
        self.is_spread = self._spread > 1

    def __len__(self) -> int:
        return len(self._line)

    def clear(self) -> None:
        """Nobody waits for them any more."""
        self._line.clear()

    # They come

    def take(self, message: Utterance, profile: Profile) -> None:
        """Take an utterance: at once if it is known whether it is new, else in its turn."""
        name = message.request_id
        # A request id says by itself what is a repetition; without one it must sound the same.
        sound = sound_of(message) if name else hash((message.trace_id, message.audio))
        asked = Asked(message, profile, sound)
        if not self._line and (not self.must_ask or name is None or name in self._known):
            self._enter(asked)
            return
        self._line.append(asked)
        self._admission.idle.clear()
        if len(self._line) == 1:
            self._board.tasks.start(self._serve())

    async def _serve(self) -> None:
        line, admission = self._line, self._admission
        try:
            while line:
                await self._look(line[0])
                if line:
                    del line[0]
        finally:
            line.clear()  # an error of ours: what comes next is not to wait for ever
        admission.pump()

    async def _look(self, asked: Asked) -> None:
        try:
            is_new = asked.message.request_id is None or await self._is_new(asked)
            if is_new and not self._session.lapsed:
                self._enter(asked)
        except InvalidMessage as problem:
            self._session.teller.invalid(str(problem), asked.message)

    def _enter(self, asked: Asked) -> None:
        """Take what the store does not have, or repeat what is known here."""
        message = asked.message
        name = message.request_id or message.utterance_index
        known = self._known.get(name)
        if known is not None and known.sound == asked.sound:
            self._board.metrics.duplicate_job_blocked_total.inc()
            self._board.tasks.start(self._repeat(message, known.utterance))
        elif known is not None and message.request_id is not None:
            self._session.teller.conflict(message)
        else:
            self._remember(asked, self._admission.whole(asked))

    def _remember(self, asked: Asked, index: int) -> None:
        name = asked.message.request_id or asked.message.utterance_index
        self._known[name] = Known(asked.sound, index)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
            self.must_ask = True

    def forget(self, request_id: str | None) -> None:
        """A request was refused: sent again it is a new try."""
        if request_id is not None:
            self._known.pop(request_id, None)

    # What the store has

    async def _is_new(self, asked: Asked) -> bool:
        """Tell whether the store has no job of a request; else it is answered, in time."""
        session, name = self._session, asked.message.request_id or ""
        while not session.lapsed and name not in self._known:
            found = await self._find(name)
            if not found:
                return True
            if session.lapsed or await self._is_answered(asked, found):
                return False
            await asyncio.sleep(AGAIN_S)
        return True

    async def _is_answered(self, asked: Asked, found: Sequence[Found]) -> bool:
        """Answer a request that the store has; not yet if another session's job still lives."""
        session, message, first = self._session, asked.message, found[0].spec
        if first is None or first.sound != asked.sound:
            session.teller.conflict(message)
        elif (place := found[0].place_in(session.id)) is not None:
            self._board.metrics.duplicate_job_blocked_total.inc()
            self._remember(asked, place[0])
            self._tell_again(message, found)
        elif all(one.outcome for one in found):
            self._board.metrics.duplicate_job_blocked_total.inc()
            await self._answer(asked, found)
        elif self._board.draining:
            session.teller.draining(message)
        else:
            return False
        return True

    async def _find(self, request_id: str) -> Sequence[Found]:
        """Return the jobs of a request, one for each language; none if one of them is not there."""
        session = self._session
        first = await self._found(job_of_request(session.tenant, session.id, request_id))
        if first.spec is None:
            return ()
        others = [
            await self._found(job_of_request(session.tenant, session.id, request_id, lane))
            for lane in first.spec.also
        ]
        return (first, *others) if all(one.spec is not None for one in others) else ()

    async def _found(self, job: str) -> Found:
        board, session = self._board, self._session
        find = board.store.request_find
        found = await board.insist(partial(find, session.home, job, session.id))
        if not self.is_spread:
            return found
        cell = self._cell_of(job)
        name, _ = await board.insist(lambda: board.store.request_bind(cell, job))
        if not name or name == session.home.name:
            return found
        there = board.cells.named(name)
        other = await board.insist(partial(find, there, job, session.id))
        return other._replace(told=found.told)

    def _cell_of(self, job: str) -> Cell:
        """Return where it is noted in which cell a job is."""
        return self._board.cells.home_of(self._session.tenant, job, self._spread)

    async def elsewhere(self, job: LiveJob) -> Found | None:
        """Claim a request for this session's cell; returns its job if another cell has it."""
        board, mine, lost = self._board, self._session.home.name, ""
        if not job.spec.sound:
            return None
        cell, store = self._cell_of(job.id), board.store
        while not self._session.lapsed:
            home, _ = await board.insist(
                partial(store.request_bind, cell, job.id, mine, instead_of=lost)
            )
            if home == mine:
                return None
            there = board.cells.named(home)
            found = await board.insist(partial(store.request_find, there, job.id, self._session.id))
            if found.spec is not None:
                return found
            lost = home
            await asyncio.sleep(AGAIN_S)
        return None

    # The same answer

    async def _repeat(self, message: Utterance, index: int) -> None:
        """Answer a repetition of what this instance knows."""
        if message.request_id is None:
            await self._session.deliverer.repeat(index)
        else:
            self._tell_again(message, await self._find(message.request_id))

    def _tell_again(self, message: Utterance, found: Sequence[Found]) -> None:
        """Tell where a request is in the store, and its outcomes if they were told before."""
        session, deliverer = self._session, self._session.deliverer
        if not found:
            return  # on its way to the store: everything is told when it is in
        places = [one.place_in(session.id) for one in found]
        if places[0] is not None and found[0].spec is not None:
            length = found[0].spec.ms
            session.teller.accepted_before(places[0][0], length, message.utterance_index)
        for one, place in zip(found, places, strict=True):
            if place is not None and 0 < place[1] <= deliverer.seq:
                deliverer.tell_again(outcome_of(one, *place))

    async def _answer(self, asked: Asked, found: Sequence[Found]) -> None:
        """Another session has had the answer: it takes a place in this one's order."""
        admission, message = self._admission, asked.message
        specs = [one.spec for one in found if one.spec is not None]
        places = admission.place(asked, tuple(spec.lane for spec in specs))
        self._remember(asked, places[0].index)
        for one, place in zip(found, places, strict=True):
            await admission.fill(place, answer_of(one, place))
        index, length = places[0].index, places[0].ms
        self._session.teller.accepted_before(index, length, message.utterance_index)

    async def follow(self, job: LiveJob, answer: Submitted) -> Submitted:
        """Another utterance made the same job at the same time: this one gets its answer, too."""
        session, admission, known = self._session, self._admission, answer.known
        spec = job.spec
        if known is None or known.sound != spec.sound:
            session.teller.in_conflict(spec)
            await admission.fill(spec, Answer(ms=spec.ms, lanes=spec.lanes))
            return Submitted(Reply.JOB_ENDED)
        while not session.lapsed:
            found = await self._found(job.id)
            if found.spec is None:
                return await admission.enter(job)
            if found.outcome:
                self._board.metrics.duplicate_job_blocked_total.inc()
                await admission.fill(spec, answer_of(found, spec))
                return answer
            await asyncio.sleep(AGAIN_S)
        return answer


def outcome_of(found: Found, index: int, seq: int) -> Released:
    """Return an answer as it was released."""
    assert found.spec is not None, "whatever has a place has a job"
    return Released(
        seq, found.outcome, index, found.spec.lane, found.job, found.attempt, found.reason,
        found.answer, bool(found.spec.audience) and not found.told,
    )  # fmt: skip


def answer_of(found: Found, place: JobSpec) -> Answer:
    """Return an answer as it is put where another utterance has its place."""
    return Answer(
        found.outcome, answered_by(found.job), found.attempt, found.reason, found.answer,
        place.ms, place.lanes,
    )  # fmt: skip
