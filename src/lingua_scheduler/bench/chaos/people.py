"""The people of the harness: rooms full of them in one process, who come, speak, move and go.

Every room has seats; on each sits one person after another. The first seat of a room is kept by
one person for the whole run; the others are for people who say something and are gone again, by
`close` or without a word, and every few of them are clients of the older protocol. What is
dangerous is done on purpose in the moment it is: changes follow the end of an utterance at once,
when its results are on their way. Talked to in lines as `speaker.py` is.
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

from lingua_scheduler.bench.chaos import ear as ears
from lingua_scheduler.bench.chaos.ear import Ear
from lingua_scheduler.bench.chaos.history import Gone, Recorder
from lingua_scheduler.bench.chaos.person import Lost, NoRoom, Person
from lingua_scheduler.bench.chaos.process import HarnessFailed, until
from lingua_scheduler.bench.chaos.speaker import PROGRESS_S, lines_of_stdin, say
from lingua_scheduler.bench.chaos.speech import (
    FIRST_PERSON,
    LANGUAGES,
    QUIET_BOUND_S,
    RoomPlan,
)
from lingua_scheduler.client import SessionLost, SessionRefused

OWNERS: Final = "owners.map"
PEOPLE_MAX: Final = 50_000
# How much one who does not stay says, and how many of these are what.
SAYS: Final = (2, 7)
OLD, SILENT, ALONE, ABANDONS = 0.2, 0.06, 0.25, 0.4
READY_S: Final = 60.0
CLOSE_S: Final = 25.0
AWAY_S: Final = (0.1, 0.8)


class Stage:
    """The rooms, and what everybody here knows of each other: enough to wait for each other."""

    def __init__(self, plan: RoomPlan) -> None:
        self.plan = plan
        self.recorder = Recorder(Path(plan.place) / "rooms.people")
        self.go, self.stop, self.close = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.codes: list[str] = [""] * plan.rooms
        self.locks = [asyncio.Lock() for _ in range(plan.rooms)]
        self.sent = self.people = 0
        # Who is in a session; what is expected to be heard of it, by session and index.
        self.present: dict[str, Person] = {}
        self.open: dict[tuple[str, int], set[int]] = {}
        self.heard_at = monotonic()
        self._owners = _owners_map(Path(plan.place))

    def ear(self) -> Ear:
        """Return the ear of the next person."""
        self.people += 1
        number = FIRST_PERSON + self.people - 1
        return Ear(number, self.recorder.note, self._at_url, self.heard)

    def _at_url(self, person: int, url: str) -> None:
        """Note for the nemesis whose instance a person is on."""
        self._owners[person - FIRST_PERSON] = 1 + self.plan.urls.index(url)

    def heard(self, person: int, session: str, index: int) -> None:
        """Take note that somebody heard something."""
        self.heard_at = monotonic()
        left = self.open.get((session, index), set())
        left.discard(person)
        if not left:
            self.open.pop((session, index), None)

    def expect(self, speaker: Person, index: int) -> None:
        """Somebody's utterance will be heard by those who sit in the room now."""
        others = [
            one for one in self.present.values()
            if one.room and one.room == speaker.room and one is not speaker and one.lang
        ]  # fmt: skip
        if any(one.lang != speaker.source for one in others):
            self.open[speaker.ear.session, index] = {one.number for one in others}

    async def is_quiet(self) -> bool:
        """Tell whether everything expected was heard, or nothing more comes."""
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
    """One place in a room, and who sits there."""

    stage: Stage
    room: int
    number: int
    chance: Random
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_kept(self) -> bool:
        """Tell whether one person has it for the whole run."""
        return self.number == 0 or self.number % 3 == 1

    async def run(self) -> None:
        """Have one person after another sit here until the end."""
        while not self.stage.stop.is_set():
            await self._seat_one()

    async def _seat_one(self) -> None:
        stage, chance = self.stage, self.chance
        ear = stage.ear()
        if not self.is_kept and chance.random() < OLD:
            ear.kind = "old"
        lang = LANGUAGES[self.number % len(LANGUAGES)]
        targets = tuple(chance.sample([one for one in LANGUAGES if one != lang], 1))
        person = Person(ear, stage.recorder.note, lang, targets)
        if not self.is_kept and chance.random() < SILENT:
            person.lang = ""
        urls, at = stage.plan.urls, chance.randrange(len(stage.plan.urls))
        how, problem = "dropped", ""
        try:
            async with person.open([*urls[at:], *urls[:at]]):
                stage.present[ear.session] = person
                how = await self._live(person)
        except (Lost, SessionLost, SessionRefused, OSError) as error:
            problem = "" if ear.kind == "old" or ear.is_abandoned else f"{error}"
        finally:
            stage.present.pop(ear.session, None)
        if how == "dropped":
            self._gone(person, how, problem)
            await asyncio.sleep(chance.uniform(*AWAY_S))

    def _gone(self, person: Person, how: str, problem: str = "") -> None:
        self.stage.recorder.note(Gone(monotonic(), person.number, how, problem))

    # A life

    async def _live(self, person: Person) -> str:
        """Live one life; returns how it ended, with that noted."""
        stage, chance = self.stage, self.chance
        left = sys.maxsize if self.is_kept else chance.randint(*SAYS)
        if stage.go.is_set() and chance.random() < ALONE:
            await self._utter(person)
        await self._enter(person, self.room)
        self.is_ready.set()
        while left > 0 and not stage.stop.is_set():
            await asyncio.sleep(chance.uniform(0, 2 * stage.plan.pause_s))
            await stage.go.wait()
            if person.ear.is_abandoned:
                raise Lost("the socket is gone")
            if not stage.stop.is_set():
                await self._speak(person)
                left -= 1
        return await self._end(person)

    async def _end(self, person: Person) -> str:
        stage = self.stage
        if self.is_kept or stage.stop.is_set():
            await stage.close.wait()
            self._gone(person, "stayed")
            await person.close()
            return "stayed"
        if self.chance.random() < ABANDONS:
            self._gone(person, "abandoned")
            person.abandon()
            return "abandoned"
        self._gone(person, "closed")
        await person.close()
        return "closed"

    async def _enter(self, person: Person, room: int) -> None:
        stage = self.stage
        for _ in range(5):
            async with stage.locks[room]:
                if not stage.codes[room]:
                    stage.codes[room] = await person.create()
                    return
            code = stage.codes[room]
            try:
                await person.join(code)
            except NoRoom:
                if stage.codes[room] == code:
                    stage.codes[room] = ""
            else:
                return
        raise Lost("no room could be entered")

    # Speaking, and what follows at once

    async def _utter(self, person: Person) -> None:
        chunks = self.chance.randint(1, self.stage.plan.chunks_most)
        await person.begin(chunks)
        await person.end(chunks)
        self.stage.sent += 1
        self.stage.expect(person, person.said - 1)

    async def _speak(self, person: Person) -> None:
        act = "plain"
        if self.chance.random() < self.stage.plan.restless:
            act = self.chance.choice(self.stage.plan.acts)
        if act == "midway":
            await self._change_midway(person)
            return
        await self._utter(person)
        if act == "move":
            await self._change_room(person)
        elif act == "leave":
            await person.leave()
            await asyncio.sleep(self.chance.uniform(*AWAY_S))
            if self.chance.random() < ALONE:
                await self._utter(person)
            await self._enter(person, self.room)
        elif act == "language":
            await self._change_language(person)
        elif act in {"reconnect", "reconnect_move"}:
            await person.move()
            if act == "reconnect_move":
                await self._change_room(person)

    async def _change_room(self, person: Person) -> None:
        """Go to another room, or stay a moment outside; who keeps a seat comes back to it."""
        rooms = self.stage.plan.rooms
        other = self.chance.choice([room for room in range(rooms) if room != self.room] or [0])
        await person.leave()
        await self._enter(person, other)
        if self.number == 0:
            await asyncio.sleep(self.chance.uniform(*AWAY_S))
            await person.leave()
            await self._enter(person, self.room)
        else:
            self.room = other

    async def _change_language(self, person: Person) -> None:
        if person.lang:
            others = [lang for lang in LANGUAGES if lang != person.lang]
            await person.hear_in(self.chance.choice(others))

    async def _change_midway(self, person: Person) -> None:
        """Change the room in the middle of an utterance: that is where it is cut."""
        chunks = self.chance.randint(1, self.stage.plan.chunks_most)
        await person.begin(chunks)
        number = person.mark(chunks, "change")
        self.stage.sent += 1
        await self._change_room(person)
        await person.be_cut(number)


async def play(plan: RoomPlan) -> None:
    """Have everybody live as the lines on stdin say."""
    ears.install()
    stage = Stage(plan)
    seats = [
        Seat(stage, room, number, Random(plan.seed * 10_000 + room * 100 + number))
        for number in range(plan.size)
        for room in range(plan.rooms)
    ]
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(seat.run()) for seat in seats]
        async with asyncio.timeout(READY_S):
            for seat in seats:
                await seat.is_ready.wait()
        say("ready")
        telling = group.create_task(_tell_progress(stage))
        async for word in lines_of_stdin():
            await _follow(word, stage)
            if word == "close":
                break
        await asyncio.wait(lives, timeout=CLOSE_S)
        telling.cancel()
        for life in lives:
            life.cancel()
    say("closed")


async def _follow(word: str, stage: Stage) -> None:
    step: asyncio.Event = getattr(stage, word)
    step.set()
    if word == "stop":
        stage.heard_at = monotonic()
        with contextlib.suppress(HarnessFailed):  # what is missing then is the checker's to find
            await until(stage.is_quiet, QUIET_BOUND_S, "all is quiet")
        say("progress", stage.sent, 0)
        say("quiet")


async def _tell_progress(stage: Stage) -> None:
    while True:
        say("progress", stage.sent, 0)
        await asyncio.sleep(PROGRESS_S)


if __name__ == "__main__":
    uvloop.run(play(msgspec.json.decode(sys.argv[1], type=RoomPlan)))
