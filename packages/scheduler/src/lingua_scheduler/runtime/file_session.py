"""A session without a socket: a recording is processed as fast as nodes take it.

The audio is cut by the clock of the recording: although it is fed faster than it was spoken, it is
cut exactly as if it were live. A file session waits where a live client would be asked to pause,
and never has more than one utterance in the queue for a node. An utterance that failed for a
passing reason is submitted again. So the result is complete, except for utterances that no node can
process, or the recording fails as a whole. Each utterance has one outcome, as in every session. A
file session cannot be resumed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.runtime.detectors import detector_for
from lingua_scheduler.runtime.segment_rules import rules_for
from lingua_scheduler.runtime.speech_input import turn_id
from lingua_scheduler.session.segmenter import Segmenter
from lingua_scheduler.session.utterance import UtteranceCut
from lingua_wire.errors import LinguaError
from lingua_wire.to_client import GoAway, MissingResult, TranslationResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.served_languages import ServedLanguages
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.session_registry import SessionRegistry
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.session.segmenter import Event
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.from_client import SessionInit
    from lingua_wire.to_client import ToClient

CHUNK_MS = 100
# Chunks that are cut before other tasks get their turn: some 100 microseconds each.
CHUNKS_AT_ONCE = 8
# Utterances in flight at once: a recording is not urgent, and live speech needs nodes too.
IN_FLIGHT_MAX = 4
# How often an utterance may fail; waiting for a free node does not count.
FAILURES_MAX = 4
# The pause before an utterance is submitted again, by number of tries; the last holds for more.
AGAIN_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
# Reasons that pass: no node was free, or one was lost; not that the utterance is unprocessable.
PASSING = frozenset(
    {
        "pending_timeout",
        "gap_timeout",
        "refused",
        "queue_full",
        "no_ack",
        "push_failed",
        "node_lost",
        "node_restarted",
        "not_running",
        "lease_lapsed",
        "audio_lost",
        "NODE_OVERLOADED",
        "NODE_UNAVAILABLE",
    }
)
SILENCE = "silence_detected"
# A file session never cancels its jobs: the session was ended by something else.
CANCELLED = "cancelled"
# The pause between two checks for room, at first and at most.
LOOK_FIRST_S, LOOK_MAX_S = 0.002, 0.25
# How much of a client's prompt is passed on: its end, because the speech continues it.
PROMPT_CHARS_MAX = 800


class FileInterrupted(LinguaError):
    """The instance stops, or lost the session: the recording must be sent again, elsewhere."""


class PartLost(LinguaError):
    """A part of the recording failed too often; the whole might succeed at another time."""


class LanguagesUnserved(LinguaError):
    """No known node serves these languages."""

    def __init__(self, languages: tuple[str, ...]) -> None:
        self.languages = languages
        super().__init__(f"no node serves {', '.join(languages)}")


@dataclass(frozen=True, slots=True)
class FileUtterance:
    """What became of one utterance; `missing` says why no node can process it."""

    start_ms: int
    end_ms: int
    text_asr: str = ""
    text_translated: str = ""
    # As the node recognised it; empty if it did not report one.
    language: str = ""
    missing: str = ""


@dataclass(slots=True)
class _Part:
    """An utterance on its way, kept until its outcome: it may have to be submitted again."""

    utterance: PendingUtterance
    # How often it was submitted, and how often it failed on a node or for lack of one.
    tries: int = 0
    failures: int = 0
    # When it is submitted again, by the loop's clock.
    due_s: float = 0.0
    # The node that has or had it; empty while it waits for one.
    node: str = ""
    outcome: FileUtterance | None = None

    def on_node(self, node: str) -> None:
        """Note that a node got or accepted it."""
        self.node = node

    def submit(self, index: int, now_ms: float) -> PendingUtterance:
        """Return it as it is submitted now."""
        if self.tries:
            # It comes late, so that it is not part of its turn any more.
            self.utterance = self.utterance.again(index, now_ms)
        else:
            self.utterance = msgspec.structs.replace(
                self.utterance, index=index, speech_end_ms=now_ms, cut_ms=now_ms
            )
        self.tries += 1
        self.node = ""
        return self.utterance

    def fail(self, due_s: float, *, counts: bool) -> None:
        """Note that it is submitted again later."""
        self.failures += counts
        self.due_s = due_s

    def end(self, outcome: FileUtterance) -> None:
        """Note its outcome; its audio is not needed any more."""
        self.outcome = outcome
        self.utterance = msgspec.structs.replace(self.utterance, audio=b"")


@dataclass(slots=True)
class _Order:
    """Parts in the order of the recording, given out when all before them are done."""

    give_out: Callable[[FileUtterance], None]
    parts: deque[_Part] = field(default_factory=deque)

    def done(self, part: _Part, outcome: FileUtterance) -> None:
        part.end(outcome)
        while self.parts and (first := self.parts[0].outcome) is not None:
            self.parts.popleft()
            self.give_out(first)


@dataclass(slots=True, kw_only=True, eq=False)
class FileSessions:
    """Opens sessions for recordings."""

    settings: Settings
    registry: SessionRegistry
    served: ServedLanguages
    nodes: Mapping[str, LiveNode]
    lifecycle: Lifecycle
    clock: Clock
    metrics: LiveMetrics

    async def open(
        self,
        init: SessionInit,
        give_out: Callable[[FileUtterance], None],
        *,
        tenant: str,
        prompt: str = "",
    ) -> FileSession:
        """Open a session; raises what is wrong with it, or `LanguagesUnserved`."""
        outlet = FileOutlet()
        session, _ = await self.registry.open(init, outlet, tenant=tenant, is_resumable=False)
        session.deliverer.groups.begin_with(prompt[-PROMPT_CHARS_MAX:])
        try:
            # The fleet as it is now: the snapshot may be a second old, or missing.
            await self.served.look()
            unserved = await self.served.unserved(session.languages.profile)
        except asyncio.CancelledError:
            self.registry.abandon(session)
            raise
        if unserved:
            self.registry.abandon(session)
            raise LanguagesUnserved(unserved)
        return FileSession(self, session, outlet, give_out)


class FileOutlet:
    """Receives what a session sends, in place of a client's socket."""

    speaks_additions = True
    wants_events = False
    # It is in no room, so that it never receives results of others.
    is_behind = False

    def __init__(self) -> None:
        # Set whenever something was received.
        self.news = asyncio.Event()
        # Handles each outcome at once, also while the recording waits.
        self._handle: Callable[[TranslationResult | MissingResult], None] | None = None
        # Why it cannot go on; empty while it can.
        self.interrupted = ""
        # Nothing more will be sent.
        self.is_closed = False

    def follow(self, handle: Callable[[TranslationResult | MissingResult], None]) -> None:
        """Pass on outcomes from now on; the session has none before its first utterance."""
        self._handle = handle

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        """Restore nothing: a file session cannot be resumed."""

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Receive a result whose audio is shared with other receivers."""
        self.send(msgspec.structs.replace(message, tts_audio=sound.raw))

    def send(self, message: ToClient) -> None:
        """Receive what a client would be sent."""
        if isinstance(message, TranslationResult | MissingResult):
            if self._handle is not None:
                self._handle(message)
        elif isinstance(message, GoAway):
            self.interrupt("the instance stops")
        self.news.set()

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 the reason suffices
        """Note that another instance owns the session, or that this instance stops."""
        self.interrupt(reason)
        self.is_closed = True
        self.news.set()

    def interrupt(self, reason: str) -> None:
        """Note why the recording cannot go on; the first reason counts."""
        self.interrupted = self.interrupted or reason


class FileSession:
    """One recording's session: `process` once, then `end` or `abandon`."""

    def __init__(
        self,
        uses: FileSessions,
        session: LiveSession,
        outlet: FileOutlet,
        give_out: Callable[[FileUtterance], None],
    ) -> None:
        self.session = session
        self._uses = uses
        self._record = session.record
        self._outlet = outlet
        self._order = _Order(give_out)
        # By the index each was last submitted with, and those to be submitted again.
        self._open: dict[int, _Part] = {}
        self._again: deque[_Part] = deque()
        # Which part failed too often, and why; empty if none did.
        self._lost = ""
        # The segmenter of the recording, and its clock.
        self._segmenter = self._make_segmenter()
        self._at_ms = 0.0
        self._sliced_turn = -1
        outlet.follow(self._receive)

    def _make_segmenter(self) -> Segmenter:
        cuts, profile = self._uses.settings.segmentation, self.session.languages.profile
        audio = profile.audio
        # The bound in bytes is meant for live microphones; the one in time holds for all rates.
        longest = audio.bytes_lasting(cuts.max_duration_ms + cuts.hangover_auto_ms + CHUNK_MS)
        rules = replace(rules_for(cuts, profile), max_bytes=max(cuts.max_bytes, longest))
        return Segmenter(rules, audio, detector_for(cuts.voice_detector, audio.sample_rate))

    # Outcomes

    def _receive(self, message: TranslationResult | MissingResult) -> None:
        """Handle an outcome."""
        if isinstance(message, TranslationResult):
            self._received(message)
        else:
            self._missed(message)

    def _received(self, message: TranslationResult) -> None:
        part = self._open.pop(message.utterance_index, None)
        if part is None:
            return
        extra = message.extra
        scores = (extra.language_probabilities or {}) if extra is not None else {}
        span = part.utterance
        self._order.done(
            part,
            FileUtterance(
                start_ms=span.start_ms,
                end_ms=span.end_ms,
                text_asr=message.text_asr,
                text_translated=message.text_translated,
                language=max(scores, key=lambda code: scores[code], default=""),
            ),
        )

    def _missed(self, message: MissingResult) -> None:
        part = self._open.pop(message.utterance_index, None)
        if part is None:
            return
        reason = message.detail or message.reason
        if message.reason == CANCELLED:
            self._outlet.interrupt("the session was ended")
        if reason in PASSING or message.reason == CANCELLED:
            self._again_later(part, reason)
            return
        if message.reason == SILENCE:
            reason = ""
        span = part.utterance
        self._order.done(part, FileUtterance(span.start_ms, span.end_ms, missing=reason))

    def _again_later(self, part: _Part, reason: str) -> None:
        is_unserved = bool(self._uses.served.unserved_now(self.session.languages.profile))
        pause_s = AGAIN_S[min(part.tries, len(AGAIN_S)) - 1]
        due_s = asyncio.get_running_loop().time() + pause_s
        part.fail(due_s, counts=bool(part.node or is_unserved))
        # A node that is still connected may have reported that it lacks what it needs.
        is_permanent = is_unserved and part.node in self._uses.nodes
        if part.failures >= FAILURES_MAX or is_permanent:
            span = part.utterance
            where = f"{span.start_ms / 1000:.1f} to {span.end_ms / 1000:.1f} s"
            self._lost = f"the part from {where} could not be processed: {reason}"
        self._again.append(part)

    # The recording

    async def process(self, blocks: AsyncIterable[bytes]) -> None:
        """Process a recording (pcm16 in blocks of any size) until all of it has outcomes.

        Raises `FileInterrupted` or `PartLost` if a part of it could not be processed here.
        """
        size = self.session.languages.profile.audio.bytes_lasting(CHUNK_MS)
        rest = b""
        async for block in blocks:
            data = rest + block
            whole = len(data) - len(data) % size
            self._uses.metrics.speech.audio_bytes_total.inc(len(block))
            await self._cut(data[at : at + size] for at in range(0, whole, size))
            rest = data[whole:]
        if rest:
            await self._cut(iter((rest,)))
        await self._admit(self._segmenter.flush(self._at_ms))
        await self._settle()
        self.session.input.was_silent(int(self._segmenter.silent_ms))

    async def _cut(self, chunks: Iterator[bytes]) -> None:
        duration_ms, segmenter = self.session.languages.profile.audio.duration_ms, self._segmenter
        for count, chunk in enumerate(chunks):
            self._at_ms += duration_ms(len(chunk))
            if events := segmenter.chunk(chunk, is_final=False, now_ms=self._at_ms):
                await self._admit(events)
            if count % CHUNKS_AT_ONCE == 0:
                self._check()
                await asyncio.sleep(0)

    async def _admit(self, events: Iterable[Event]) -> None:
        # The end of a turn without audio needs no step: the session's own end follows.
        for cut in events:
            if isinstance(cut, UtteranceCut):
                part = _Part(self._utterance_of(cut))
                self._order.parts.append(part)
                await self._submit_in_turn(part)

    def _utterance_of(self, cut: PendingUtterance) -> PendingUtterance:
        if cut.is_slice:
            self._sliced_turn = cut.turn
        turn = turn_id(self._record.id, self._record.fence, cut.turn)
        # No client sends a recording in chunks that it could send again.
        return msgspec.structs.replace(
            cut,
            first_seq=None,
            last_seq=None,
            first_client_ts_ms=None,
            profile=self.session.languages.profile,
            trace_id=self._record.trace_id,
            turn_id=turn,
            in_turn=cut.turn == self._sliced_turn,
        )

    async def _submit_in_turn(self, part: _Part) -> None:
        """Submit an utterance when there is room for it, after those that are due again."""
        delay_s = LOOK_FIRST_S
        self._check()
        self._submit_again()
        while not self._has_room(len(self._again)):
            delay_s = await self._wait(delay_s)
            self._check()
            self._submit_again()
        self._submit(part)

    def _submit_again(self) -> None:
        """Submit one that is to be submitted again, if its pause is over and there is room."""
        now_s = asyncio.get_running_loop().time()
        due = next((part for part in self._again if part.due_s <= now_s), None)
        if due is not None and self._has_room():
            self._again.remove(due)
            self._submit(due)

    def _submit(self, part: _Part) -> None:
        admission = self.session.admission
        index = admission.parts.indices.take()
        utterance = part.submit(index, self._uses.clock.now_ms())
        self._open[index] = part
        admission.admit(msgspec.structs.replace(utterance, on_node=part.on_node))

    def _has_room(self, others: int = 0) -> bool:
        """Tell whether all submitted parts are on nodes, and fewer than the bound."""
        if len(self._open) + others >= IN_FLIGHT_MAX or len(self.session.admission.parts.backlog):
            return False
        return all(part.node for part in self._open.values())

    async def _settle(self) -> None:
        delay_s = LOOK_FIRST_S
        while self._open or self._again:
            if self._again:
                self._check()
                self._submit_again()
            if self._open and (self._outlet.is_closed or self._record.is_over):
                raise FileInterrupted(self._outlet.interrupted or "the session was lost")
            delay_s = await self._wait(delay_s)

    async def _wait(self, delay_s: float) -> float:
        """Wait for an outcome at most this long; returns how long to wait the next time."""
        news = self._outlet.news
        news.clear()
        try:
            async with asyncio.timeout(delay_s):
                await news.wait()
        except TimeoutError:
            return min(2 * delay_s, LOOK_MAX_S)
        # The session acts on an outcome right after it has sent it.
        await asyncio.sleep(0)
        return LOOK_FIRST_S

    def _check(self) -> None:
        if self._uses.lifecycle.is_draining:
            self._outlet.interrupt("the instance stops")
        if self._outlet.interrupted or self._record.is_over:
            raise FileInterrupted(self._outlet.interrupted or "the session was lost")
        if self._lost:
            raise PartLost(self._lost)

    # The end

    def end(self) -> None:
        """End the session after all outcomes were received."""
        registry = self._uses.registry
        registry.tasks.start(registry.end(self.session, "closed"))

    def abandon(self) -> None:
        """End the session now: outcomes in flight are not wanted."""
        self._uses.registry.abandon(self.session)
