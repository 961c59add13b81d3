"""The steps about listeners: utterances for listeners, also in other cells.

A part of the machine in `test_machine.py`. An outcome reaches another cell in three steps
(`relay_run`, `outbox_put`, `relay_run` again). Each is a rule of its own, so that an instance may
die between any two, and another one may begin from the start at the same time.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lingua_scheduler.state.records import AS_SPOKEN, JobSpec, UndeliveredOutcome, job_id_of
from model.answers import released_rows
from model.owners import chance, pick, seldom
from model.samples import DEMANDS, LANES, SESSIONS

# One that nobody ever opened: the store lost it, or it is gone for long.
NOBODY = "s9"
ROOM = "123456"


class Audiences:
    """What speakers say to others."""

    def member(self, name: str) -> str:
        return f"{self.world.cells.home_of(name).name}/{name}"

    async def open_rooms(self) -> None:
        """Have a room in every cell, in which captions are kept."""
        for cell in self.world.cells.all:
            words = ("HSET", cell.key("room", ROOM), "tenant", "", "version", 1)
            await self.world.connection.command(cell.slot, *words)

    @rule(
        which=pick, heard_by=st.integers(1, 7), read_by=st.integers(0, 3), nobody=seldom,
        captions=chance,
    )  # fmt: skip
    def speak_to_others(self, which, heard_by, read_by, nobody, captions) -> None:
        """One utterance into one or two languages, each for some of the others."""
        speaker = SESSIONS[which % len(SESSIONS)]
        others = [name for name in SESSIONS if name != speaker]
        if nobody:
            others.append(NOBODY)
        lanes = LANES[: 1 + which % 2]
        index = max(self.after(speaker, lane) for lane in (*lanes, AS_SPOKEN))
        readers = [self.member(name) for at, name in enumerate(others) if read_by & (1 << at)]
        cells = self.world.cells.all
        kept = [f"{cells[which % len(cells)].name}/@{ROOM}|"] if captions else []
        if readers and kept:
            readers.insert(0, f"{kept[0]}~")
        for at, lane in enumerate(lanes):
            chosen = [name for bit, name in enumerate(others) if (heard_by >> at) & (1 << bit)]
            spec = JobSpec(
                session=speaker, index=index, lane=lane, demand=DEMANDS[at].text,
                unwanted_from=self.after(speaker, lane), lanes=len(lanes),
                audience=" ".join(
                    [f"{place}{lane}" for place in kept]
                    + [self.member(name) for name in chosen or others[:1]]
                ),
                readers=" ".join(readers), readers_from=self.after(speaker, AS_SPOKEN),
                fence=self.fence_of(speaker, mine=True),
            )  # fmt: skip
            self.send_to_others(spec)

    def send_to_others(self, spec: JobSpec) -> None:
        """As an owner does: what is refused gets its outcome, which its audience is told."""
        cell, twin = self.home(spec.session)
        before = len(self.requests)
        self.send(cell, twin, job_id_of(spec.session, f"r{before}"), spec, 0)
        if len(self.requests) == before and spec.session in twin.sessions:
            fence = spec.fence
            self.fill(
                cell, twin, spec.session, spec.lane, spec.index, spec.unwanted_from, fence, spec
            )

    # The way to other cells, step by step

    @precondition(lambda self: self.speakers())
    @rule(which=pick, tells=chance)
    def relay_goes_on(self, which, tells) -> None:
        """An instance asks what is to be brought, and says what was (if it lived to)."""
        speakers = self.speakers()
        self.relay(speakers[which % len(speakers)], tells=tells)

    def speakers(self) -> list[str]:
        """Those some of whose listeners wait."""
        twins = getattr(self, "twins", {})
        return sorted(name for twin in twins.values() for name in twin.relays)

    def relay(self, speaker: str, *, tells: bool) -> None:
        cell, twin = self.home(speaker)
        done = sorted(self.reached) if tells else []
        effects, ahead, is_cut = self.world.run(self.store.outbox.relay(cell, speaker, done))
        rows = [(a.id, f"{a.kind} {a.head}", a.age_ms, list(a.listeners)) for a in ahead]
        expected = twin.relay_run(speaker, done)
        assert (released_rows(effects.released), rows, is_cut) == expected
        self.ahead = [*ahead, *self.ahead][:8]
        self.world.replies["relayed" if ahead else "relay is done"] += 1

    @precondition(lambda self: getattr(self, "ahead", None))
    @rule(which=pick)
    def bring(self, which) -> None:
        """What is for another cell arrives there: late, again, or in its turn."""
        item: UndeliveredOutcome = self.ahead[which % len(self.ahead)]
        by_cell: dict[str, list[str]] = {}
        for where in item.listeners:
            name, _, listener = where.partition("/")
            by_cell.setdefault(name, []).append(listener)
        for name, listeners in by_cell.items():
            cell, twin = self.world.cells.named(name), self.twins[name]
            effects, absent = self.world.run(self.store.outbox.put(cell, item, listeners))
            before = len(twin.log)
            line = f"{item.kind} {item.head}"
            assert list(absent) == twin.outbox_put(item.id, line, listeners)
            told = [(row.session, h.id) for h in effects.heard for row in h.listeners]
            assert told == twin.log[before:]
            if not absent:
                self.reached.add(f"{name} {item.id}")
            self.world.replies["brought" if told else "brought before"] += 1

    def relay_all(self, speaker: str) -> None:
        """What the timer asks for, by an instance that lives."""
        for _ in range(3):
            self.relay(speaker, tells=True)
            for at in range(len(self.ahead)):
                self.bring(at)

    @rule(which=pick, lane=st.sampled_from(LANES), read=chance)
    def refuse_to_others(self, which, lane, read) -> None:
        """An utterance for a room is not taken: its listeners are told so in its place."""
        speaker = SESSIONS[which % len(SESSIONS)]
        others = [self.member(name) for name in SESSIONS if name != speaker]
        cell, twin = self.home(speaker)
        index = max(self.after(speaker, name) for name in (lane, AS_SPOKEN))
        spec = JobSpec(
            session=speaker, index=index, lane=lane, demand="", audience=others[0],
            readers=others[1] if read else "", readers_from=self.after(speaker, AS_SPOKEN),
        )  # fmt: skip
        self.fill(cell, twin, speaker, lane, index, self.after(speaker, lane), 0, spec)

    def everybody_has_what_passed(self) -> None:
        """Whoever an outcome was for has it when its speaker is told so, in whatever cell."""
        for twin in self.twins.values():
            for item in twin.over:
                for where in item.audience.split():
                    cell, _, name = where.partition("/")
                    there = self.twins[cell]
                    listener = there.sessions.get(name)
                    if listener is None or listener.closed or (name, item.id) in there.unreached:
                        continue
                    assert (name, item.id) in there.log, f"{where} never got {item}"
            twin.over.clear()

    def each_once_and_in_order(self) -> None:
        """Nobody hears an outcome twice, or a later one of a speaker first."""
        latest: dict[tuple[str, str, str], tuple[int, int]] = {}
        for twin in self.twins.values():
            for listener, life, heard_id in twin.heard_in_life:
                speaker, epoch, number = heard_id.lstrip("!").split("|")
                assert latest.get((listener, life, speaker), (0, 0)) < (int(epoch), int(number))
                latest[listener, life, speaker] = (int(epoch), int(number))
