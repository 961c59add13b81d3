"""A session without a socket: a recording goes in as fast as nodes take it, outcomes come out.

The audio is cut by a clock of its own, that of the recording: fed faster than it was spoken it is
cut exactly as if it were live. A visitor waits where a live client would be told to pause, and
never has more than one utterance in the queue for a node. Whatever failed for a reason that passes
is said again: a recording is told whole, but for what no node can do, or not at all. It ends as
every session does: each utterance has one outcome. Nobody can come back to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import LinguaError, StoreUnavailable
from lingua_scheduler.live.detectors import detector_for
from lingua_scheduler.live.piece import Piece
from lingua_scheduler.live.reception import rules_of
from lingua_scheduler.messages.to_client import (
    GoAway,
    MissingResult,
    TranslationResult,
    UiEvent,
)
from lingua_scheduler.session.segmenter import Cut, Segmenter

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Iterator

    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.reception import Reception
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.codec import Sound
    from lingua_scheduler.messages.from_client import SessionInit
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.session.segmenter import Event

CHUNK_MS = 100
# Chunks that are looked at before others get their turn: some 100 microseconds each.
CHUNKS_AT_ONCE = 8
# Utterances under way at once: a recording is in no hurry, and live speech needs nodes too.
IN_FLIGHT_MAX = 4
# How often an utterance may fail; those that only waited for a free node wait on.
FAILURES_MAX = 4
# How long it waits before it is said again, by how often it was said; the last holds for more.
AGAIN_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
# Reasons of outcomes that say: nobody was free, somebody was lost; not: it cannot be done.
PASSING = frozenset(
    {
        "pending_timeout", "gap_timeout", "refused", "queue_full", "no_ack", "push_failed",
        "node_lost", "node_restarted", "not_running", "lease_lapsed", "audio_lost",
        "NODE_OVERLOADED", "NODE_UNAVAILABLE",
    }
)  # fmt: skip
# Steps of a job that say that a node was found for it.
WITH_A_NODE = frozenset({"DISPATCHED", "NODE_ACCEPTED"})
SILENCE = "silence_detected"
# Nobody here does that: whoever ended the session did.
CANCELLED = "cancelled"
# How long it is waited between two looks for room, at first and at most.
LOOK_FIRST_S, LOOK_MAX_S = 0.002, 0.25
# How much of a client's hint to the recogniser is passed on, of its end: speech follows on that.
PROMPT_CHARS_MAX = 800


class VisitInterrupted(LinguaError):
    """The instance stops, or lost the session: the recording must be brought again, elsewhere."""


class PartLost(LinguaError):
    """A part of the recording was tried often enough: all of it might succeed at another time."""


class NobodyServes(LinguaError):
    """No known node does what is asked for."""

    def __init__(self, languages: tuple[str, ...]) -> None:
        self.languages = languages
        super().__init__(f"no node serves {', '.join(languages)}")


@dataclass(frozen=True, slots=True)
class Spoken:
    """What became of one utterance; `missing` says why no node can do it, if that is so."""

    start_ms: int
    end_ms: int
    text_asr: str = ""
    text_translated: str = ""
    # As the node recognised it; empty if it did not say.
    language: str = ""
    missing: str = ""


@dataclass(slots=True)
class _Part:
    """An utterance on its way, kept until its outcome: it may have to be said again."""

    place: int
    piece: Piece
    # How often it was said, and how often more than patience was missing.
    tries: int = 0
    failures: int = 0
    # When it is said again, by the loop's clock.
    due_s: float = 0.0
    # Who had it last; empty while it waits for anybody.
    node: str = ""
    outcome: Spoken | None = None


@dataclass(slots=True)
class _Order:
    """Parts in the order of the recording, given out when all before them are done."""

    tell: Callable[[Spoken], None]
    parts: deque[_Part] = field(default_factory=deque)

    def done(self, part: _Part, outcome: Spoken) -> None:
        part.outcome = outcome
        # Those before it may take long: its audio is not needed any more.
        part.piece.audio = b""
        while self.parts and (first := self.parts[0].outcome) is not None:
            self.parts.popleft()
            self.tell(first)


class Visitor:
    """One recording's session: `open`, `speak` once, then `end` or `abandon`."""

    def __init__(self, instance: Instance, tell: Callable[[Spoken], None]) -> None:
        # What an outlet says of its client; see `open_without_return`.
        self.speaks_additions = False
        # The steps of a job tell when a node has it.
        self.wants_events = True
        self.session: LiveSession
        self._instance = instance
        self._board = instance.board
        self._order = _Order(tell)
        # By the index each was last admitted with, and those to be said again.
        self._open: dict[int, _Part] = {}
        self._again: deque[_Part] = deque()
        self._places = 0
        # Set whenever something was heard.
        self._news = asyncio.Event()
        # Why it cannot go on; empty while it can.
        self._interrupted = ""
        # What was tried often enough, and why that failed.
        self._lost = ""
        # Nothing more will be told.
        self._is_closed = False
        # The segmenter of the recording, and its clock.
        self._segmenter: Segmenter
        self._at_ms = 0.0
        self._sliced_turn = -1

    async def open(self, init: SessionInit, *, tenant: str, prompt: str = "") -> None:
        """Open the session; raises what is wrong with it, or `NobodyServes`."""
        reception = self._instance.reception
        self.session = await open_without_return(reception, init, self, tenant=tenant)
        self.session.deliverer.context = prompt[-PROMPT_CHARS_MAX:]
        self._segmenter = self._make_segmenter()
        try:
            unserved = await self._unserved()
        except asyncio.CancelledError:
            self.abandon()
            raise
        if unserved:
            self.abandon()
            raise NobodyServes(unserved)

    async def _unserved(self) -> tuple[str, ...]:
        """Look at the fleet as it is now: what is known may be a second old, or nothing yet."""
        with suppress(StoreUnavailable):
            await self._instance.fleet.refresh()
        return await self._instance.reception.unserved(self.session.profile)

    def _make_segmenter(self) -> Segmenter:
        cuts, audio = self._instance.settings.segmentation, self.session.profile.audio
        # The bound in bytes is meant for live microphones; the one in time holds for all rates.
        longest = audio.bytes_lasting(cuts.max_duration_ms + cuts.hangover_auto_ms + CHUNK_MS)
        silence_ms = self.session.profile.silence_ms or cuts.silence_ms
        bytes_max = max(cuts.max_bytes, longest)
        own = rules_of(self._instance.settings)
        rules = replace(own, max_bytes=bytes_max, silence_ms=silence_ms)
        return Segmenter(rules, audio, detector_for(cuts.voice_detector, audio.sample_rate))

    # The outlet of the session

    # It is in no room: what it gets is its own.
    is_behind = False

    def send_with(self, message: TranslationResult, sound: Sound) -> None:
        """Send a result whose audio is shared with others who get it."""
        self.send(msgspec.structs.replace(message, tts_audio=sound.raw))

    def send(self, message: ToClient) -> None:
        """Take what a client would be told."""
        if isinstance(message, TranslationResult):
            self._heard(message)
        elif isinstance(message, MissingResult):
            self._missed(message)
        elif isinstance(message, UiEvent):
            self._note_step(message)
        elif isinstance(message, GoAway):
            self._interrupted = "the instance stops"
        self._news.set()

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 the reason says it
        """Learn that the session is not this instance's any more, or that the instance stops."""
        self._interrupted = self._interrupted or reason
        self._is_closed = True
        self._news.set()

    def _note_step(self, message: UiEvent) -> None:
        part, job = self._open.get(message.utterance_index), self._board.jobs.get(message.job_id)
        if part is not None and job is not None and message.event in WITH_A_NODE:
            part.node = job.node

    def _heard(self, message: TranslationResult) -> None:
        part = self._open.pop(message.utterance_index, None)
        if part is None:
            return
        extra = message.extra
        scores = (extra.language_probabilities or {}) if extra is not None else {}
        self._order.done(
            part,
            Spoken(
                part.piece.start_ms, part.piece.end_ms, message.text_asr, message.text_translated,
                max(scores, key=lambda code: scores[code], default=""),
            ),
        )  # fmt: skip

    def _missed(self, message: MissingResult) -> None:
        part = self._open.pop(message.utterance_index, None)
        if part is None:
            return
        reason = message.detail or message.reason
        if message.reason == CANCELLED and not self._interrupted:
            self._interrupted = "the session was ended"
        if reason in PASSING or message.reason == CANCELLED:
            self._again_later(part, reason)
            return
        if message.reason == SILENCE:
            reason = ""
        self._order.done(part, Spoken(part.piece.start_ms, part.piece.end_ms, missing=reason))

    def _again_later(self, part: _Part, reason: str) -> None:
        is_unserved = self._is_unserved()
        part.failures += bool(part.node or is_unserved)
        # A node that is still there may have said that it has not got what it takes.
        is_for_good = is_unserved and part.node in self._board.nodes
        if part.failures >= FAILURES_MAX or is_for_good:
            piece = part.piece
            where = f"{piece.start_ms / 1000:.1f} to {piece.end_ms / 1000:.1f} s"
            self._lost = f"the part from {where} could not be processed: {reason}"
        pause_s = AGAIN_S[min(part.tries, len(AGAIN_S)) - 1]
        part.due_s = asyncio.get_running_loop().time() + pause_s
        self._again.append(part)

    def _is_unserved(self) -> bool:
        profile, serves = self.session.profile, self._instance.fleet.serves
        return not all(serves(profile.demand_of(code)) for code in profile.targets)

    # The recording

    async def speak(self, blocks: AsyncIterable[bytes]) -> None:
        """Say a recording (pcm16 in blocks of any size); returns when all of it has outcomes.

        Raises `VisitInterrupted` or `PartLost` if a part of it could not be said here.
        """
        size = self.session.profile.audio.bytes_lasting(CHUNK_MS)
        rest = b""
        async for block in blocks:
            data = rest + block
            whole = len(data) - len(data) % size
            self._board.metrics.audio_bytes_total.inc(len(block))
            await self._hear(data[at : at + size] for at in range(0, whole, size))
            rest = data[whole:]
        if rest:
            await self._hear(iter((rest,)))
        await self._admit(self._segmenter.flush(self._at_ms))
        await self._settle()
        silent_ms = int(self._segmenter.silent_ms)
        self.session.was_silent(silent_ms)

    async def _hear(self, chunks: Iterator[bytes]) -> None:
        duration_ms, segmenter = self.session.profile.audio.duration_ms, self._segmenter
        for count, chunk in enumerate(chunks):
            self._at_ms += duration_ms(len(chunk))
            if events := segmenter.chunk(chunk, is_final=False, now_ms=self._at_ms):
                await self._admit(events)
            if count % CHUNKS_AT_ONCE == 0:
                self._check()
                await asyncio.sleep(0)

    async def _admit(self, events: Iterable[Event]) -> None:
        # The end of a turn without audio needs no word: the session's own end follows.
        for cut in events:
            if isinstance(cut, Cut):
                part = _Part(self._places, self._piece_of(cut))
                self._places += 1
                self._order.parts.append(part)
                await self._say(part)

    def _piece_of(self, cut: Cut) -> Piece:
        session = self.session
        if cut.is_slice:
            self._sliced_turn = cut.turn
        return Piece(
            0, cut.audio, session.profile, (), session.trace_id, cut.trigger, 0, 0,
            cut.start_ms, cut.end_ms, f"{session.id}-t{session.fence}.{cut.turn}",
            cut.turn == self._sliced_turn, cut.is_slice,
        )  # fmt: skip

    async def _say(self, part: _Part) -> None:
        """Admit an utterance when there is room for it, after what is due to be said again."""
        delay_s = LOOK_FIRST_S
        self._check()
        self._say_again()
        while not self._has_room(len(self._again)):
            delay_s = await self._wait(delay_s)
            self._check()
            self._say_again()
        self._submit(part)

    def _say_again(self) -> None:
        """Admit what is to be said again, if its pause is over and there is room."""
        now_s = asyncio.get_running_loop().time()
        due = next((part for part in self._again if part.due_s <= now_s), None)
        if due is not None and self._has_room():
            self._again.remove(due)
            self._submit(due)

    def _submit(self, part: _Part) -> None:
        admission, now = self.session.admission, self._board.clock.now_ms()
        index = admission.next_index
        admission.next_index = index + 1
        piece = part.piece = replace(part.piece, index=index, speech_end_ms=now, cut_ms=now)
        if part.tries:
            # It comes late, so that it is no part of its turn any more.
            piece = part.piece = replace(piece, in_turn=False, is_slice=False, accepted=False)
        part.tries += 1
        part.node = ""
        self._open[index] = part
        admission.admit(piece)

    def _has_room(self, others: int = 0) -> bool:
        """Tell whether all that was said is with a node, and there is not too much of it."""
        if len(self._open) + others >= IN_FLIGHT_MAX or self.session.admission.backlog:
            return False
        return all(part.node for part in self._open.values())

    async def _settle(self) -> None:
        delay_s = LOOK_FIRST_S
        while self._open or self._again:
            if self._again:
                self._check()
                self._say_again()
            if self._open and (self._is_closed or self.session.lapsed):
                raise VisitInterrupted(self._interrupted or "the session was lost")
            delay_s = await self._wait(delay_s)

    async def _wait(self, delay_s: float) -> float:
        """Wait for news, but not long; returns how long to wait the next time."""
        self._news.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._news.wait()
        except TimeoutError:
            return min(2 * delay_s, LOOK_MAX_S)
        # What was told is acted upon right after it was told.
        await asyncio.sleep(0)
        return LOOK_FIRST_S

    def _check(self) -> None:
        if self._board.draining and not self._interrupted:
            self._interrupted = "the instance stops"
        if self._interrupted or self.session.lapsed:
            raise VisitInterrupted(self._interrupted or "the session was lost")
        if self._lost:
            raise PartLost(self._lost)

    # The end

    def end(self) -> None:
        """Leave after all was heard."""
        self._instance.tasks.start(self._instance.reception.end(self.session, "closed"))

    def abandon(self) -> None:
        """Leave now: what is under way is wanted by nobody."""
        abandon(self._instance, self.session)


async def open_without_return(
    reception: Reception, init: SessionInit, outlet: Outlet, *, tenant: str
) -> LiveSession:
    """Open a session whose client cannot come back, though it knows the additions.

    Whoever knows them is given a token to come back with, and an instance that stops would wait
    for that; so the outlet says that it does only when the session is open.
    """
    outlet.speaks_additions = False
    session, _ = await reception.open(init, outlet, tenant=tenant)
    outlet.speaks_additions = True
    return session


def abandon(instance: Instance, session: LiveSession) -> None:
    """End a session that nobody listens to: its jobs are cancelled, not waited for."""
    session.detach()
    if session.lapsed:
        return
    is_ending = session.closing
    session.closing = True
    session.end_speech()
    # Whoever ends it already waits for this.
    session.admission.backlog.clear()
    session.admission.idle.set()
    if not is_ending:
        instance.tasks.start(instance.reception.end(session, "disconnected"))
