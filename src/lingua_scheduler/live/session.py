"""One speaker's session on this instance: audio in, utterances cut, outcomes out in order.

Called from the frame callback: nothing here waits. Cuts go to `admission.py`, outcomes come from
`delivery.py` by position (`seq`). A session outlives its socket: a client that comes back goes on
here with everything that was buffered, or on another instance, which then is its owner; whatever
a former owner still has it drops, for the client keeps what was not admitted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.live.account import ended_of, take_up
from lingua_scheduler.live.admission import Admission
from lingua_scheduler.live.delivery import Deliverer
from lingua_scheduler.live.piece import Piece
from lingua_scheduler.live.teller import Teller
from lingua_scheduler.messages.from_client import SessionInit  # noqa: TC001 msgspec reads it
from lingua_scheduler.messages.shared import Term  # noqa: TC001 msgspec reads it
from lingua_scheduler.messages.to_client import AudioAck, Gap, SessionReset
from lingua_scheduler.session.ledger import CoverageLedger
from lingua_scheduler.session.segmenter import NEVER_BYTES, Cut, Segmenter, SequenceGap
from lingua_scheduler.state.records import Opening
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.profile import Profile
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.from_client import SessionUpdate
    from lingua_scheduler.session.segmenter import Event
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released, Resumed

# Changes of languages that are kept by their place; no more fit into what is not in the store.
CHANGES_MAX = 8
FINALIZED_AS = {"manual": "send", "timeout": "timeout", "session_close": "close"}


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A change of languages: what was said up to a chunk keeps those of before."""

    after_seq: int
    init: SessionInit


class About(msgspec.Struct, frozen=True, array_like=True):
    """What another instance needs of a session to go on with it."""

    # The languages of the first chunk that is not in the store, and changes since.
    init: SessionInit
    trace_id: str
    # The node it was paired with, and what its client wants to be told.
    paired: str = ""
    speaks_additions: bool = True
    wants_events: bool = False
    changes: tuple[Change, ...] = ()
    # What the client gave; once, whatever changes.
    glossary: tuple[Term, ...] = ()

    @property
    def latest(self) -> SessionInit:
        """Return the languages as the client wants them now."""
        return self.changes[-1].init if self.changes else self.init

    def changed(self, change: Change, heard: int) -> About:
        """Return it with one more change; those that all audio in the store has seen are one."""
        init, changes = self.init, (*self.changes, change)
        while changes and changes[0].after_seq <= heard:
            init, changes = changes[0].init, changes[1:]
        if len(changes) > CHANGES_MAX:
            init, changes = changes[0].init, changes[1:]
        return msgspec.structs.replace(self, init=init, changes=changes)


encode_about = msgspec.msgpack.Encoder().encode
decode_about = msgspec.msgpack.Decoder(About).decode


@dataclass(slots=True)
class Opened:
    """What the store and the token said when the session was opened."""

    id: str
    home: Cell
    epoch: str
    tenant: str
    trace_id: str
    # Grows with each owner: what a former one does is refused.
    fence: int = 1
    # The digest of the token its client may come back with; empty: it cannot.
    token: str = ""
    about: About | None = None


class LiveSession:
    """A session with its segmenter, its utterances under way and its deliveries."""

    def __init__(  # noqa: PLR0913 the parts it connects
        self,
        opened: Opened,
        profile: Profile,
        outlet: Outlet,
        *,
        board: JobBoard,
        hall: Hall,
        settings: Settings,
        segmenter: Segmenter,
    ) -> None:
        self.id = opened.id
        self.home = opened.home
        self.epoch = opened.epoch
        self.fence = opened.fence
        self.tenant = opened.tenant
        self.trace_id = opened.trace_id
        self.token = opened.token
        self.about = opened.about
        self.profile = profile
        self.teller = Teller(opened.id, outlet, board, settings.jobs.retry_after_ms)
        self.opened_at_ms = board.clock.wall_ms()
        self.ledger = CoverageLedger()
        self.deliverer = Deliverer(self, board, hall, settings)
        self.admission = Admission(self, board, hall, settings)
        self._board = board
        self._clock = board.clock
        self._metrics = board.metrics
        sessions = settings.sessions
        self.lease_ms = max(sessions.lease_ms, sessions.resume_ms if self.token else 0)
        self._segmenter = segmenter
        self._is_pcm16 = profile.audio.name == "pcm16"
        # What is opaque cannot be sliced: a chunk of it is an utterance at most.
        self._chunk_bytes_max = NEVER_BYTES if self._is_pcm16 else settings.segmentation.max_bytes
        # A change of languages that waits for the end of what is being said.
        self._next_profile: Profile | None = None
        # Changes that a former owner was asked for, by the chunk they came after.
        self._changes: deque[tuple[int, Profile]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0.0
        # Runs while its client is away.
        self._return_timer: asyncio.TimerHandle | None = None
        self._turn_ids: dict[int, str] = {}
        self._sliced_turn = -1
        # Silence in the stream: under former owners, and here as far as it is in the ledger.
        self._silent_before_ms = 0
        self._silent_told_ms = 0
        # The last chunk the client was told that it need not keep.
        self.acked_audio = -1
        self.closing = False
        # The store was told that it ends, or it is another's: what is not in yet stays out.
        self.lapsed = False
        # The instance stops and the client goes elsewhere, where it sends again what is not in yet.
        self.moves = False
        self._left = asyncio.Event()
        # The latest doubt about the store that was cleared for this session (see `instance.py`).
        self.verified = 0

    @property
    def is_resumable(self) -> bool:
        """Tell whether its client was given what it needs to come back."""
        return bool(self.token)

    # In the store

    async def open_in_store(self, *, restart: bool = False) -> tuple[Reply, str, int]:
        """Open the session, or open it again where we stand; returns epoch and fence."""
        board = self._board
        return await board.store.session_open(
            self.home, self.id, board.instance, tenant=self.tenant, lease_ms=self.lease_ms,
            opening=Opening(self.fence, restart, self._fields(), self._ended()),
        )  # fmt: skip

    def _ended(self) -> str:
        """Return what became of its speech so far; nothing yet of one that is new."""
        if not self.fence:
            return ""
        return ended_of(self.ledger, self.silence_ms, self.admission.passed_ms[0])

    def _fields(self) -> tuple[bytes | str | int, ...]:
        heard, heard_ms = self.admission.heard
        fields: list[bytes | str | int] = ["top", self.admission.top]
        if heard >= 0:
            fields += ["heard", heard, "heard_ms", heard_ms, "speech"]
            fields.append(self.admission.heard_speech_ms)
        if any(self.admission.passed_ms):
            fields += ["passed", self.admission.passed_field]
        if self.token and self.about is not None:
            fields += ["token", self.token, "about", encode_about(self.about)]
        return tuple(fields)

    def note(self, about: About) -> None:
        """Keep in the store what has changed for a later owner."""
        self.about = about
        if self.token:
            self._board.tasks.start(self._note(encode_about(about)))

    async def _note(self, about: bytes) -> None:
        board = self._board
        await board.insist(
            lambda: board.store.session_note(self.home, self.id, self.fence, {"about": about})
        )

    def at_end(self) -> dict[str, str | int]:
        """Return what only its owner knows of a session that ends."""
        return {"silent": self.silence_ms, "passed": self.admission.passed_field}

    def new_epoch(self, epoch: str) -> None:
        """Positions start over, and the client is told so."""
        self.epoch = epoch
        self._metrics.epochs_restarted_total.inc()
        self.deliverer.start_over(epoch)
        self.teller.addition(SessionReset(session_id=self.id, epoch=epoch, reason="store_lost"))

    async def recover(self) -> None:
        """Look for outcomes that nobody told us of, or for a store that knows less than we do."""
        reply = await self.deliverer.catch_up()
        if self.lapsed:
            return
        if reply is Reply.TRIMMED:
            await self.admission.reopen(restart=True)
            await self.deliverer.catch_up()
        elif reply in (Reply.NO_SESSION, Reply.EPOCH_CHANGED):
            await self.admission.reopen()

    async def verify(self) -> None:
        """The store was away and may have lost what it confirmed last."""
        await self.recover()
        if not self.lapsed:
            self.admission.submit_again()

    # The client goes and comes back

    def go_on(
        self,
        former: Resumed,
        last_seq: int,
        audio: tuple[int | None, int],
        changes: Iterable[tuple[int, Profile]] = (),
    ) -> None:
        """Take up where another instance was: after this position, with this chunk."""
        self._changes.extend(changes)
        self.admission.go_on(former)
        self.deliverer.seq = last_seq
        self._segmenter.go_on(*audio)
        # Also the silence that was acknowledged after what was heard last.
        self._silent_before_ms = take_up(self.ledger, former, audio[1])
        for turn in former.turns:
            self._board.tasks.start(self._end_turn(turn))

    @property
    def audio_position(self) -> tuple[int | None, int]:
        """Return the next chunk that is expected and where in the audio it begins."""
        newest = self._segmenter.newest_seq
        return None if newest is None else newest + 1, self._segmenter.admitted_ms

    @property
    def outlet(self) -> Outlet | None:
        """Return the client's socket, while it is there."""
        return self.teller.outlet

    def detach(self) -> None:
        """The client's socket is gone; a pause ends what it said, if it is not back by then."""
        self.teller.outlet = None

    def await_return(self, timeout_ms: int, give_up: Callable[[LiveSession], None]) -> None:
        """Give the client time to come back."""
        loop = asyncio.get_running_loop()
        self._return_timer = loop.call_later(timeout_ms / 1000, give_up, self)

    def attach(self, outlet: Outlet) -> None:
        """The client is back on another socket."""
        self.stop_awaiting()
        self.teller.outlet = outlet
        self._rearm(self._clock.now_ms())

    def stop_awaiting(self) -> None:
        """Its client is back, or will not be waited for."""
        if self._return_timer is not None:
            self._return_timer.cancel()
            self._return_timer = None

    def drop(self) -> None:
        """Another instance is the owner now: nothing here counts any more."""
        if not self.lapsed:
            self.lapsed = True
            self._left.set()
            self._stop_timer()
            self.stop_awaiting()
            self.admission.give_up()
            self._board.dropped(self)

    def acknowledge_audio(self) -> None:
        """Tell the client which chunks became silence: only utterances say so by themselves."""
        if self.admission.is_owed or not self.token:
            return
        if self._board.draining:
            return  # what comes now is not taken: the client says it again elsewhere
        seq = self._segmenter.settled_seq
        if seq is not None and seq > self.acked_audio:
            self.acked_audio = seq
            at_ms = self._segmenter.settled_ms
            self.teller.addition(AudioAck(session_id=self.id, seq=seq, audio_ms=at_ms))

    # Audio

    def audio(
        self, data: bytes, *, seq: int | None, is_final: bool, client_ts_ms: int | None = None
    ) -> None:
        """Take one chunk of speech."""
        if (self._is_pcm16 and len(data) % 2) or len(data) > self._chunk_bytes_max:
            raise self._unusable(len(data))
        if self.moves:
            return  # its number is not taken either: it must not be acknowledged as silence
        if seq is not None and not self._in_sequence(seq):
            return
        if self._changes and (seq is None or seq > self._changes[0][0]):
            self._change_to(self._changes.popleft()[1])
        metrics = self._metrics
        metrics.audio_chunks_total.inc()
        metrics.audio_bytes_total.inc(len(data))
        if self._board.draining:
            self._refuse_audio(data, "shutdown")
            return
        if self.admission.paused and data and not self.admission.has_room():
            self._refuse_audio(data, "backpressure")
            data = b""
        segmenter, now = self._segmenter, self._clock.now_ms()
        events = segmenter.chunk(
            data, is_final=is_final, now_ms=now, client_ts_ms=client_ts_ms, seq=seq
        )
        if events:
            self._take(events, now)
        elif is_final and segmenter.is_idle:
            metrics.empty_finalize_total.inc()
        due = segmenter.deadline_ms
        if due is not None and (self._timer is None or due < self._timer_at_ms):
            self._arm(due, now)

    def _unusable(self, size: int) -> InvalidMessage:
        """Return what is wrong with a chunk of so many bytes."""
        if size > self._chunk_bytes_max:
            return InvalidMessage(
                f"a chunk of opus cannot be sliced: {size} bytes, "
                f"the most of an utterance are {self._chunk_bytes_max}"
            )
        return InvalidMessage("a chunk of pcm16 has two bytes per sample, got an odd number")

    def tts_started(self) -> None:
        """The client plays a translation."""
        now = self._clock.now_ms()
        self.deliverer.playing(starts=True)
        self._take(self._segmenter.tts_started(now), now)

    def tts_ended(self) -> None:
        """The client stopped playing."""
        now = self._clock.now_ms()
        self.deliverer.playing(starts=False)
        self._take(self._segmenter.tts_ended(now), now)
        self._rearm(now)

    def _in_sequence(self, seq: int) -> bool:
        found = self._segmenter.take_seq(seq)
        if found == "ok":
            return True
        if isinstance(found, SequenceGap):
            at = self._segmenter.admitted_ms
            self.teller.addition(
                Gap(
                    start_ms=at, end_ms=at, reason="lost_chunks",
                    first_seq=found.missing_from, last_seq=found.missing_to,
                )
            )  # fmt: skip
            return True
        return False

    def _refuse_audio(self, data: bytes, reason: str) -> None:
        at = self._segmenter.admitted_ms
        length = int(self.profile.audio.duration_ms(len(data)))
        self.teller.addition(Gap(start_ms=at, end_ms=at + length, reason=reason))
        if self._board.store_is_there:
            self.teller.busy()
        else:
            self.teller.store_lost()

    def _arm(self, due_ms: float, now_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = due_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        self._take(self._segmenter.tick(now), now)
        self._rearm(now)

    def _rearm(self, now_ms: float) -> None:
        due = self._segmenter.deadline_ms
        if due is not None and (self._timer is None or due < self._timer_at_ms):
            self._arm(due, now_ms)

    def _take(self, events: Iterable[Event], now_ms: float) -> None:
        for event in events:
            if isinstance(event, Cut):
                self._admit_cut(event, now_ms)
                if event.closes_turn:
                    self._change_profile()
            else:
                turn = self._turn_ids.pop(event.turn, "")
                if turn:
                    self._close_turn(turn)
                self._change_profile()

    def _change_profile(self) -> None:
        if self._next_profile is not None:
            self.profile, self._next_profile = self._next_profile, None

    def _close_turn(self, turn: str) -> None:
        """End a turn without a closing piece; a slice of it that still waits closes it itself."""
        for piece in reversed(self.admission.backlog):
            if piece.turn == turn:
                piece.is_slice = False
                return
        self._board.tasks.start(self._end_turn(turn))

    async def _end_turn(self, turn: str) -> None:
        board = self._board
        _, work = await board.insist(
            lambda: board.dispatcher.end_turn(self.home, self.id, turn, fence=self.fence)
        )
        board.perform(work)

    def _admit_cut(self, cut: Cut, now_ms: float) -> None:
        self._metrics.web_task_finalized_total.labels(
            reason=FINALIZED_AS.get(cut.trigger, cut.trigger)
        ).inc()
        self._note_silence()
        turn = self._turn_ids.get(cut.turn)
        if turn is None:
            turn = self._turn_ids[cut.turn] = f"{self.id}-t{self.fence}.{cut.turn}"
        if cut.closes_turn:
            del self._turn_ids[cut.turn]
        if cut.is_slice:
            self._sliced_turn = cut.turn
        index = self.admission.next_index
        self.admission.next_index = index + 1
        piece = Piece(
            index, cut.audio, self.profile, (), self.trace_id, cut.trigger,
            cut.speech_end_at_ms, now_ms, cut.start_ms, cut.end_ms, turn,
            cut.turn == self._sliced_turn, cut.is_slice,
            cut.first_seq, cut.last_seq, cut.first_client_ts_ms,
        )  # fmt: skip
        self.admission.admit(piece)

    # Outcomes

    def deliver(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Take released outcomes; they go out in the order of their positions."""
        self.deliverer.take(epoch, outcomes)

    # Changes and the end

    @property
    def next_profile(self) -> Profile:
        """Return the profile of the next utterance."""
        if self._changes:
            return self._changes[-1][1]
        return self._next_profile or self.profile

    def update(self, change: SessionUpdate) -> None:
        """Change languages from the next utterance on."""
        if not (change.src_lang or change.tgt_lang or change.tgt_langs):
            return
        while self._changes:
            self._change_to(self._changes.popleft()[1])
        profile = self.next_profile.changed(change)
        self._change_to(profile)
        if self.about is not None:
            several = profile.targets if len(profile.targets) > 1 else None
            langs = {"src_lang": profile.source, "tgt_lang": profile.targets[0]}
            init = msgspec.structs.replace(self.about.latest, **langs, tgt_langs=several)
            newest = self._segmenter.newest_seq
            after = Change(-1 if newest is None else newest, init)
            self.note(self.about.changed(after, self.admission.heard[0]))

    def _change_to(self, profile: Profile) -> None:
        """Let other languages count from the next utterance on."""
        if self._segmenter.is_idle:
            self.profile = profile
        else:
            self._next_profile = profile

    def cut_here(self) -> None:
        """What was said so far ends here: what follows may be for others."""
        now = self._clock.now_ms()
        self._take(self._segmenter.flush(now), now)
        self._rearm(now)

    def end_speech(self) -> None:
        """No more audio comes: what is buffered becomes an utterance."""
        now = self._clock.now_ms()
        self._take(self._segmenter.flush(now), now)
        self._stop_timer()
        self._note_silence()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note_silence(self) -> None:
        silent = int(self._segmenter.silent_ms) - self._silent_told_ms
        if silent > 0:
            self.was_silent(silent)

    def was_silent(self, duration_ms: int) -> None:
        """Take note of so much of the stream that became no utterance."""
        self._silent_told_ms += duration_ms
        self.ledger.silent(duration_ms)

    @property
    def silence_ms(self) -> int:
        """Return how much of the stream became no utterance, as the ledger has it."""
        return self._silent_before_ms + self._silent_told_ms

    async def until_elsewhere(self, timeout_ms: float) -> bool:
        """Wait until the client has gone to another instance; tells whether it has."""
        if self.outlet is None:
            return True  # it is on its way
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._left.wait()
        except TimeoutError:
            self.moves = False
            return False
        return True

    async def until_settled(self, timeout_ms: float) -> bool:
        """Wait until every admitted utterance has had its outcome; tells whether that is so."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.admission.idle.wait()
        except TimeoutError:
            return False
        return True
