"""The clients of the harness: sessions of the client SDK in one process, which record everything.

Each client sends marked chunks, cuts, and keeps only a few utterances in progress. Lines on stdin
control them: `go`, `hush` for a while, `stop` and `close`. Progress is written to stdout. Some
clients move to another instance by themselves while they speak.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import (
    RESULT,
    ClientEnded,
    NoticeReceived,
    OutcomeReceived,
    Recorder,
    SessionMoved,
    SessionOpened,
    UtteranceAdmitted,
    UtteranceBegun,
    UtteranceResent,
    UtteranceSent,
)
from lingua_bench.chaos.marked_audio import QUIET_BOUND_S, SpeechPlan
from lingua_client import Notice, Outcome, Reset, connect
from lingua_wire.errors import LinguaError
from lingua_wire.to_client import (
    Backpressure,
    ErrorMessage,
    Gap,
    GoAway,
    SessionReset,
    UtteranceAccepted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lingua_client import Session

PROGRESS_S: Final = 0.2
MOVE_BOUND_S: Final = 15.0
CLOSE_S: Final = 20.0
# The answer when a step is complete.
STEPS: Final = {"hush": "hushed", "stop": "quiet"}
# What the end of an utterance may raise when its session has ended.
BROKEN: Final = (LinguaError, OSError, TimeoutError)


class SpeakingClient:
    """One client with its session."""

    def __init__(self, number: int, plan: SpeechPlan, note: Callable[..., None]) -> None:
        self.number = number
        self._plan = plan
        self._note = note
        self._chance = Random(plan.seed * 10_000 + number)
        at = number % len(plan.urls)
        self._urls = [*plan.urls[at:], *plan.urls[:at]]
        self._targets = (marked_audio.TARGETS, marked_audio.TARGETS[:1], marked_audio.TARGETS[1:])[
            number % 3
        ]
        # Utterance -> languages that have no outcome yet.
        self.open: dict[int, set[str]] = {}
        # (life, index) -> utterance.
        self._places: dict[tuple[int, int], int] = {}
        self._life = self._index = 0
        # Utterances that the server has confirmed.
        self._accepted: set[int] = set()
        self.sent = self.moved = 0
        self._change = asyncio.Event()
        # The steps of a client: reported to the harness, or requested by it.
        self.is_ready = asyncio.Event()
        self.is_quiet = asyncio.Event()
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        self.close = asyncio.Event()

    async def run(self) -> None:
        """Open a session, speak, receive outcomes, and close it."""
        problem, resumes = "", 0
        try:
            async with connect(
                self._urls,
                source=marked_audio.SOURCE,
                targets=self._targets,
                audio_format="pcm16",
                sample_rate=marked_audio.SAMPLE_RATE,
            ) as session:
                self._open(session)
                try:
                    problem = await self._live(session)
                finally:
                    resumes = session.resumes
        except BROKEN as error:
            problem = f"{type(error).__name__}: {error}"
        self._note(ClientEnded(monotonic(), self.number, problem, resumes))
        for step in (self.is_ready, self.is_quiet):
            step.set()

    def _open(self, session: Session) -> None:
        self._note(SessionOpened(monotonic(), self.number, session.id))
        self.is_ready.set()

    async def _live(self, session: Session) -> str:
        """Return what went wrong, empty if nothing did."""
        hearing = asyncio.create_task(self._hear(session))
        speaking = asyncio.create_task(self._speak_and_wait(session))
        try:
            await asyncio.wait([hearing, speaking], return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                hearing.result()
            # A session that closes gives no more events.
            if speaking.done() or self.close.is_set():
                await speaking
                return ""
            return "its session ended"
        finally:
            for task in (hearing, speaking):
                task.cancel()
            await asyncio.gather(hearing, speaking, return_exceptions=True)

    # Speaking

    async def _speak_and_wait(self, session: Session) -> None:
        await self.go.wait()
        async with asyncio.TaskGroup() as group:
            moving = group.create_task(self._move_about(session))
            while not (self.stop.is_set() and moving.done()):
                await asyncio.sleep(self._chance.uniform(0, 2 * self._plan.pause_s))
                await self.go.wait()
                await self.until(lambda: len(self.open) < self._plan.window)
                if self.go.is_set() and not self.stop.is_set():
                    await self._utter(session)
        await self.until(self.is_idle)
        self.is_quiet.set()
        await self.close.wait()
        await session.close()

    async def _utter(self, session: Session) -> None:
        number, chunks = self.sent, self._chance.randint(1, self._plan.chunks_most)
        self.open[number] = set(self._targets)
        self._note(
            UtteranceBegun(
                at=monotonic(),
                speaker=self.number,
                number=number,
                life=self._life,
                index=self._index,
                targets=self._targets,
            )
        )
        self._place(number)
        for place in range(chunks):
            await session.send(marked_audio.chunk(self.number, number, place))
        await session.cut()
        self.sent += 1
        self._note(UtteranceSent(monotonic(), self.number, number, chunks))

    def _place(self, number: int) -> None:
        self._places[self._life, self._index] = number
        self._index += 1

    async def _move_about(self, session: Session) -> None:
        every_s = self._plan.move_every_s
        for _ in range(self._plan.moves):
            await asyncio.sleep(self._chance.uniform(0.5 * every_s, 1.5 * every_s))
            began, before = monotonic(), session.resumes
            await asyncio.wait([session.move()], timeout=MOVE_BOUND_S)
            took_s = monotonic() - began if session.resumes > before else None
            self._note(SessionMoved(monotonic(), self.number, took_s))
            self.moved += 1

    def is_idle(self) -> bool:
        """Tell whether every utterance has its outcomes."""
        return not self.open

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that an event can bring about."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    # Receiving

    async def _hear(self, session: Session) -> None:
        async for event in session:
            if isinstance(event, Outcome):
                self._take(event)
            elif isinstance(event, Reset):
                self._take_reset(event)
            elif isinstance(event, Notice):
                self._take_notice(event)

    def _take(self, outcome: Outcome) -> None:
        is_result = outcome.kind == "translation"
        self._note(
            OutcomeReceived(
                at=monotonic(),
                speaker=self.number,
                life=self._life,
                index=outcome.utterance_index,
                target=outcome.target or self._targets[0],
                reason=RESULT if is_result else outcome.reason or "unsaid",
                said=outcome.text_asr or "",
                text=outcome.text or "",
                epoch=outcome.epoch or "",
                seq=outcome.seq or 0,
            )
        )
        number = self._places.get((self._life, outcome.utterance_index), -1)
        left = self.open.get(number, set())
        left.discard(outcome.target or self._targets[0])
        if not left and self.open.pop(number, None) is not None:
            self._change.set()

    def _take_reset(self, reset: Reset) -> None:
        self._note(
            NoticeReceived(monotonic(), self.number, "reset", f"{reset.reason} {reset.lost_ms}")
        )
        # Another session, which counts anew: accepted utterances have no outcome any more, all
        # others are sent again in their order.
        self._note(SessionOpened(monotonic(), self.number, reset.session_id))
        self._life += 1
        self._index = 0
        for number in sorted(self.open):
            if number in self._accepted:
                del self.open[number]
            else:
                self._place(number)
                self._note(
                    UtteranceResent(monotonic(), self.number, number, self._life, self._index - 1)
                )
        self._change.set()

    def _take_notice(self, notice: Notice) -> None:
        message = notice.message
        if isinstance(message, (ErrorMessage, Gap)):
            what = message.code if isinstance(message, ErrorMessage) else f"gap {message.reason}"
            self._note(NoticeReceived(monotonic(), self.number, what, str(message)))
        elif isinstance(message, UtteranceAccepted):
            number = self._places.get((self._life, message.utterance_index))
            if number is not None:
                self._accepted.add(number)
                self._note(UtteranceAdmitted(monotonic(), self.number, number))
        elif isinstance(message, (Backpressure, GoAway, SessionReset)):
            self._note(NoticeReceived(monotonic(), self.number, notice.kind, ""))


async def play(plan: SpeechPlan) -> None:
    """Run all clients as the lines on stdin request."""
    recorder = Recorder(Path(plan.place) / f"{plan.first}.clients")
    speakers = [
        SpeakingClient(plan.first + number, plan, recorder.note) for number in range(plan.sessions)
    ]
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(speaker.run()) for speaker in speakers]
        for speaker in speakers:
            await speaker.is_ready.wait()
        say("ready")
        telling = group.create_task(tell_progress(speakers))
        async for word in lines_of_stdin():
            await follow(word, speakers)
            if word == "close":
                break
        await asyncio.wait(lives, timeout=CLOSE_S)
        telling.cancel()
        for life in lives:
            life.cancel()
    say("closed")


async def follow(word: str, speakers: list[SpeakingClient]) -> None:
    """Let every client take a step; `hush` and `stop` wait for utterances in progress."""
    for speaker in speakers:
        if word == "hush":
            speaker.go.clear()
        else:
            speaker.go.set()
            step: asyncio.Event = getattr(speaker, word)
            step.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_BOUND_S):
            for speaker in speakers:
                if word == "hush":
                    await speaker.until(speaker.is_idle)
                elif word == "stop":
                    await speaker.is_quiet.wait()
    if word in STEPS:
        say(*progress_of(speakers))
        say(STEPS[word])


async def tell_progress(speakers: list[SpeakingClient]) -> None:
    """Report the progress again and again."""
    while True:
        say(*progress_of(speakers))
        await asyncio.sleep(PROGRESS_S)


def progress_of(speakers: list[SpeakingClient]) -> tuple[str, int, int]:
    """Return a line of progress: utterances sent and moves made so far."""
    sent = sum(speaker.sent for speaker in speakers)
    return "progress", sent, sum(speaker.moved for speaker in speakers)


async def lines_of_stdin() -> AsyncIterator[str]:
    """Give the lines that are written to this process."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()


def say(*words: object) -> None:
    """Report something to the harness."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(play(msgspec.json.decode(sys.argv[1], type=SpeechPlan)))
