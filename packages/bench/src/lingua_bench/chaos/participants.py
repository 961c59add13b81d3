"""The participants of rooms, all in one process: they join, speak, move and leave.

Every room has seats, and each seat has one participant after another. Some seats keep one
participant for the whole run; the others are for participants that speak a little and leave again,
by `close` or by dropping the connection. Some of these are clients of the older protocol. Dangerous
changes are made on purpose at the dangerous moment: right after the end of an utterance, when its
results are in transit. Controlled by lines, as `speaking_clients.py` is.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import msgspec
import uvloop

from lingua_bench.chaos import message_recorder
from lingua_bench.chaos.history import ParticipantLeft, Recorder
from lingua_bench.chaos.marked_audio import (
    FIRST_PARTICIPANT,
    LANGUAGES,
    QUIET_BOUND_S,
    RoomPlan,
)
from lingua_bench.chaos.message_recorder import MessageRecorder, ParticipantProfile
from lingua_bench.chaos.participant import Lost, NoRoom, RoomParticipant
from lingua_bench.chaos.process import HarnessFailed, until
from lingua_bench.chaos.speaking_clients import PROGRESS_S, lines_of_stdin, say
from lingua_client import SessionLost, SessionRefused

OWNERS: Final = "owners.map"
PEOPLE_MAX: Final = 50_000
# How much a passing participant speaks, and which part of them are what.
SAYS: Final = (2, 7)
OLD, SILENT, ALONE, ABANDONS = 0.2, 0.06, 0.25, 0.4
READY_S: Final = 60.0
CLOSE_S: Final = 25.0
AWAY_S: Final = (0.1, 0.8)
# The length of a chunk of audio.
CHUNK_S: Final = 0.1


class RoomCoordinator:
    """The rooms and all participants: which outcomes are expected, and by whom."""

    def __init__(self, plan: RoomPlan) -> None:
        self.plan = plan
        self.recorder = Recorder(Path(plan.place) / "rooms.people")
        self.go, self.stop, self.close = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.codes: list[str] = [""] * plan.rooms
        self.locks = [asyncio.Lock() for _ in range(plan.rooms)]
        self.sent = self.participants = 0
        # Session -> participant; the listeners whose outcome is expected, by session and index.
        self.present: dict[str, RoomParticipant] = {}
        self.open: dict[tuple[str, int], set[int]] = {}
        self.heard_at = monotonic()
        self._owners = _owners_map(Path(plan.place))

    def message_recorder(self, kind: str, source: str, targets: tuple[str, ...]) -> MessageRecorder:
        """Return the recorder of the next participant."""
        self.participants += 1
        number = FIRST_PARTICIPANT + self.participants - 1
        profile = ParticipantProfile(number, kind, source, targets)
        return MessageRecorder(profile, self.recorder.note, self._at_url, self.heard)

    def _at_url(self, participant: int, url: str) -> None:
        """Record for the nemesis which instance a participant is on."""
        self._owners[participant - FIRST_PARTICIPANT] = 1 + self.plan.urls.index(url)

    def heard(self, participant: int, session: str, index: int) -> None:
        """Note that a participant received an outcome."""
        self.heard_at = monotonic()
        left = self.open.get((session, index), set())
        left.discard(participant)
        if not left:
            self.open.pop((session, index), None)

    def expect(self, speaker: RoomParticipant, index: int) -> None:
        """Expect an outcome of an utterance for all who are in the room now."""
        others = [
            one
            for one in self.present.values()
            if one.room and one.room == speaker.room and one is not speaker and one.lang
        ]
        if any(one.lang != speaker.source for one in others):
            self.open[speaker.messages.session, index] = {one.number for one in others}

    async def is_quiet(self) -> bool:
        """Tell whether everything expected has arrived, or nothing more arrives."""
        here = {one.number for one in self.present.values()}
        if monotonic() - self.heard_at > self.plan.silence_s:
            return True
        return not any(left & here for left in self.open.values())


def _owners_map(place: Path) -> mmap.mmap:
    path = place / OWNERS
    path.write_bytes(bytes(PEOPLE_MAX))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), PEOPLE_MAX)


@dataclass(slots=True)
class Seat:
    """One seat in a room."""

    coordinator: RoomCoordinator
    room: int
    number: int
    chance: Random
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_kept(self) -> bool:
        """Tell whether one participant keeps it for the whole run."""
        return self.number == 0 or self.number % 3 == 1

    async def run(self) -> None:
        """Give the seat to one participant after another until the end."""
        while not self.coordinator.stop.is_set():
            await self._seat_one()

    async def _seat_one(self) -> None:
        coordinator, chance = self.coordinator, self.chance
        kind = "old" if not self.is_kept and chance.random() < OLD else "sdk"
        lang = LANGUAGES[self.number % len(LANGUAGES)]
        targets = tuple(chance.sample([one for one in LANGUAGES if one != lang], 1))
        messages = coordinator.message_recorder(kind, lang, targets)
        participant = RoomParticipant(messages, coordinator.recorder.note)
        if not self.is_kept and chance.random() < SILENT:
            participant.lang = ""
        urls, at = coordinator.plan.urls, chance.randrange(len(coordinator.plan.urls))
        how, problem = "dropped", ""
        try:
            async with participant.open([*urls[at:], *urls[:at]]):
                coordinator.present[messages.session] = participant
                how = await self._live(participant)
        except (Lost, SessionLost, SessionRefused, OSError) as error:
            problem = "" if messages.kind == "old" or messages.is_abandoned else f"{error}"
        finally:
            coordinator.present.pop(messages.session, None)
        if how == "dropped":
            self._gone(participant, how, problem)
            await asyncio.sleep(chance.uniform(*AWAY_S))

    def _gone(self, participant: RoomParticipant, how: str, problem: str = "") -> None:
        self.coordinator.recorder.note(
            ParticipantLeft(monotonic(), participant.number, how, problem)
        )

    # The course of a participant

    async def _live(self, participant: RoomParticipant) -> str:
        """Enter, speak and leave; returns how it ended, and records it."""
        coordinator, chance = self.coordinator, self.chance
        left = sys.maxsize if self.is_kept else chance.randint(*SAYS)
        if coordinator.go.is_set() and chance.random() < ALONE:
            await self._utter(participant)
        await self._enter(participant, self.room)
        self.is_ready.set()
        while left > 0 and not coordinator.stop.is_set():
            await asyncio.sleep(chance.uniform(0, 2 * coordinator.plan.pause_s))
            await coordinator.go.wait()
            if participant.messages.is_abandoned:
                raise Lost("the socket is closed")
            if not coordinator.stop.is_set():
                await self._speak(participant)
                left -= 1
        return await self._end(participant)

    async def _end(self, participant: RoomParticipant) -> str:
        coordinator = self.coordinator
        if self.is_kept or coordinator.stop.is_set():
            await coordinator.close.wait()
            self._gone(participant, "stayed")
            await participant.close()
            return "stayed"
        if self.chance.random() < ABANDONS:
            self._gone(participant, "abandoned")
            participant.abandon()
            return "abandoned"
        self._gone(participant, "closed")
        await participant.close()
        return "closed"

    async def _enter(self, participant: RoomParticipant, room: int) -> None:
        coordinator = self.coordinator
        for _ in range(5):
            async with coordinator.locks[room]:
                if not coordinator.codes[room]:
                    coordinator.codes[room] = await participant.create()
                    return
            code = coordinator.codes[room]
            try:
                await participant.join(code)
            except NoRoom:
                if coordinator.codes[room] == code:
                    coordinator.codes[room] = ""
            else:
                return
        raise Lost("no room could be entered")

    # Speaking, and the change that follows at once

    def _length(self, participant: RoomParticipant) -> tuple[int, float]:
        """Return how many chunks the next utterance has, and the pause after each."""
        plan = self.coordinator.plan
        # The audio of a client of the older protocol counts as opus: a few chunks are long speech.
        if participant.messages.kind != "old" and self.chance.random() < plan.slow:
            return self.chance.randint(*plan.slow_chunks), CHUNK_S
        return self.chance.randint(1, plan.chunks_most), 0.0

    async def _utter(self, participant: RoomParticipant) -> None:
        chunks, pace_s = self._length(participant)
        await participant.begin(chunks, pace_s)
        await participant.end(chunks)
        self.coordinator.sent += 1
        self.coordinator.expect(participant, participant.said - 1)

    async def _speak(self, participant: RoomParticipant) -> None:
        act = "plain"
        if self.chance.random() < self.coordinator.plan.restless:
            act = self.chance.choice(self.coordinator.plan.acts)
        if act == "midway":
            await self._change_midway(participant)
            return
        await self._utter(participant)
        if act == "move":
            await self._change_room(participant)
        elif act == "leave":
            await participant.leave()
            await asyncio.sleep(self.chance.uniform(*AWAY_S))
            if self.chance.random() < ALONE:
                await self._utter(participant)
            await self._enter(participant, self.room)
        elif act == "language":
            await self._change_language(participant)
        elif act in {"reconnect", "reconnect_move"}:
            await participant.move()
            if act == "reconnect_move":
                await self._change_room(participant)

    async def _change_room(self, participant: RoomParticipant) -> None:
        """Change the room; the participant of the first seat returns afterwards."""
        rooms = self.coordinator.plan.rooms
        other = self.chance.choice([room for room in range(rooms) if room != self.room] or [0])
        await participant.leave()
        await self._enter(participant, other)
        if self.number == 0:
            await asyncio.sleep(self.chance.uniform(*AWAY_S))
            await participant.leave()
            await self._enter(participant, self.room)
        else:
            self.room = other

    async def _change_language(self, participant: RoomParticipant) -> None:
        if participant.lang:
            others = [lang for lang in LANGUAGES if lang != participant.lang]
            await participant.request_language(self.chance.choice(others))

    async def _change_midway(self, participant: RoomParticipant) -> None:
        """Change the room in the middle of an utterance: the change cuts it."""
        chunks, pace_s = self._length(participant)
        await participant.begin(chunks, pace_s)
        number = participant.mark(chunks, "change")
        self.coordinator.sent += 1
        await self._change_room(participant)
        await participant.be_cut(number)


async def play(plan: RoomPlan) -> None:
    """Run all participants as the lines on stdin request."""
    message_recorder.install()
    coordinator = RoomCoordinator(plan)
    seats = [
        Seat(coordinator, room, number, Random(plan.seed * 10_000 + room * 100 + number))
        for number in range(plan.size)
        for room in range(plan.rooms)
    ]
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(seat.run()) for seat in seats]
        async with asyncio.timeout(READY_S):
            for seat in seats:
                await seat.is_ready.wait()
        say("ready")
        telling = group.create_task(_tell_progress(coordinator))
        async for word in lines_of_stdin():
            await _follow(word, coordinator)
            if word == "close":
                break
        await asyncio.wait(lives, timeout=CLOSE_S)
        telling.cancel()
        for life in lives:
            life.cancel()
    say("closed")


async def _follow(word: str, coordinator: RoomCoordinator) -> None:
    step: asyncio.Event = getattr(coordinator, word)
    step.set()
    if word == "stop":
        coordinator.heard_at = monotonic()
        with contextlib.suppress(HarnessFailed):  # the checker finds what is missing then
            await until(coordinator.is_quiet, QUIET_BOUND_S, "all is quiet")
        say("progress", coordinator.sent, 0)
        say("quiet")


async def _tell_progress(coordinator: RoomCoordinator) -> None:
    while True:
        say("progress", coordinator.sent, 0)
        await asyncio.sleep(PROGRESS_S)


if __name__ == "__main__":
    uvloop.run(play(msgspec.json.decode(sys.argv[1], type=RoomPlan)))
