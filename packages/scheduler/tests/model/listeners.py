"""The part of the twin about listeners: each gets an outcome once and in order.

Until all listeners have it, the outcome stays in its speaker's list. See `relay.lua`, `hear.lua`
and `readers_*.lua` of the includes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lingua_scheduler.session.ordering import Lane, LaneEntry
from lingua_scheduler.state.records import AS_SPOKEN, JobSpec

RELAY_MS = 1000
ABSENT_MS = 5000


@dataclass
class Item:
    """An outcome for others than its speaker."""

    id: str
    at: int
    kind: str
    head: str
    audience: str
    # Who of a large room still waits, once that was noted.
    waiting: str | None = None

    @property
    def speaker(self) -> str:
        return self.id.lstrip("!").split("|")[0]

    @property
    def number(self) -> tuple[int, int]:
        _, epoch, number = self.id.split("|")
        return int(epoch), int(number)

    @property
    def is_kept(self) -> bool:
        return not self.id.startswith("!")

    @property
    def line(self) -> str:
        return f"{self.id} {self.at} {self.kind} {self.head}\n{self.left}"

    @property
    def left(self) -> str:
        return self.audience if self.waiting is None else self.waiting


@dataclass
class Step:
    """What one walk over a speaker's list does besides."""

    # 'cell id' that were reached elsewhere.
    done: frozenset[str] = frozenset()
    # Listeners here, and '/cell' of others, that an earlier outcome has not reached.
    held: set[str] = field(default_factory=set)
    ahead: list[tuple[str, str, int, list[str]]] = field(default_factory=list)
    # How many listeners may still get an outcome; whether some must wait for the next step.
    left: int = 0
    is_cut: bool = False


class Listeners:
    """What a cell does about listeners; a part of `CellTwin`."""

    def audience_of(self, session_id: str, lane: str, index: int, job: str) -> str:
        if job[0] in "-=":
            return self.sessions[session_id].refused.get((lane, index), "")
        spec = self.jobs[job].spec
        return spec.readers if lane == AS_SPOKEN else spec.audience

    def relay_begin(self, session_id: str, kind: str, head: str, audience: str, out: list) -> int:
        """An outcome for others was released; the model's payload is there if a job reported it."""
        session = self.sessions[session_id]
        session.said_count += 1
        mark = "" if head.split(" ")[2] in self.paid and kind != "missing" else "!"
        item = Item(
            f"{mark}{session_id}|{session.epoch}|{session.said_count}", self.now, kind, head, ""
        )
        item.audience = audience
        if item.is_kept:
            self.heards[item.id] = {"#"}
        self.relays.setdefault(session_id, []).append(item)
        return self.relay_walk(session_id, out, Step(left=self.policy.hear_at_once))

    def relay_walk(self, session_id: str, out: list, step: Step) -> int:
        items, is_first, seq = self.relays.get(session_id, []), True, 0
        for item in list(items):
            elsewhere, waits = self.relay_hear(item, step)
            if waits:
                is_first, seq = False, 0
                if elsewhere:
                    line = f"{item.kind} {item.head}"
                    step.ahead.append((item.id, line, self.now - item.at, elsewhere))
            elif is_first:
                items.remove(item)
                seq = self.passed(session_id, item, out)
        if is_first:
            self.due.pop(f"x|{session_id}", None)
            self.relays.pop(session_id, None)
        else:
            self.due[f"x|{session_id}"] = self.now + RELAY_MS
        return seq

    def relay_hear(self, item: Item, step: Step) -> tuple[list[str], bool]:
        elsewhere: list[str] = []
        cells: set[str] = set()
        waiting: list[str] = []
        is_cut = False
        for where in item.left.split():
            cell, _, name = where.partition("/")
            waits, before = False, len(self.log)
            if cell != self.name:
                if f"{cell} {item.id}" not in step.done:
                    cells.add(f"/{cell}")
                    waits = True
                    if f"/{cell}" not in step.held:
                        elsewhere.append(where)
            elif name in step.held:
                waits = True
            elif not step.left:
                step.held.add(name)
                waits = is_cut = True
            elif not self.hear(name, item):
                self.unreached.add((name, item.id))
                if self.now - item.at < ABSENT_MS:
                    step.held.add(name)
                    waits = True
            step.left -= len(self.log) - before
            waiting += [where] if waits else []
        step.held |= cells
        step.is_cut |= is_cut
        if is_cut:
            item.waiting = " ".join(waiting)
        return elsewhere, bool(waiting)

    def hear(self, name: str, item: Item) -> bool:
        if name.startswith("@"):
            # Captions of a room; their texts are looked at in `state/test_caption_scripts.py`.
            places = self.captions.setdefault(name[1:], {})
            places[item.speaker] = max(item.number, places.get(item.speaker, (0, 0)))
            return True
        session = self.sessions.get(name)
        if session is None:
            return False
        if session.closed:
            self.unreached.add((name, item.id))
            return True
        if item.number <= session.froms.get(item.speaker, (0, 0)):
            return True
        index, lane, job, attempt, reason = item.head.split(" ")
        session.seq += 1
        session.outbox.append(("heard", int(index), lane, job, int(attempt), reason))
        session.heard_ids[session.seq] = item.id
        session.froms[item.speaker] = item.number
        if session.seq - 1 - session.trimmed >= self.policy.outbox_max:
            session.trimmed += 1
            self.forget(name, session.trimmed)
            session.dropped = max(session.dropped, session.trimmed)
        if item.is_kept:
            self.heards.setdefault(item.id, set()).add(name)
        self.log.append((name, item.id))
        self.heard_in_life.append((name, session.epoch, item.id))
        return True

    def passed(self, session_id: str, item: Item, out: list) -> int:
        """Nobody waits for it any more; that everybody has it is looked at by `Audiences`."""
        self.over.append(item)
        if item.is_kept:
            self.drop(item.id, "#")
        index, lane, job, attempt, reason = item.head.split(" ")
        session = self.sessions.get(session_id)
        if lane == AS_SPOKEN or session is None or item.number[0] < session.born:
            return 0
        session.seq += 1
        row = (f"+{item.kind}", int(index), lane, job, int(attempt), reason)
        session.outbox.append(row)
        out.append((session.seq, *row))
        return session.seq

    def forget(self, name: str, place: int) -> None:
        """A listener's outbox does not refer any more to what it had at a place."""
        heard_id = self.sessions[name].heard_ids.pop(place, "")
        if heard_id and not heard_id.startswith("!"):
            self.drop(heard_id, name)

    def drop(self, heard_id: str, holder: str) -> None:
        holders = self.heards.get(heard_id)
        if holders is not None:
            holders.discard(holder)
            if not holders:
                del self.heards[heard_id]

    # The scripts

    def relay_run(self, session_id: str, done: list[str]) -> tuple[list, list, bool]:
        released: list = []
        step = Step(frozenset(done), left=4 * self.policy.hear_at_once)
        self.relay_walk(session_id, released, step)
        return released, step.ahead, step.is_cut

    def outbox_put(self, heard_id: str, line: str, names: list[str]) -> list[str]:
        kind, _, head = line.partition(" ")
        item = Item(heard_id, self.now, kind, head, "")
        if item.is_kept:
            self.heards.setdefault(heard_id, set())
        absent = [name for name in names if not self.hear(name, item)]
        self.unreached |= {(name, heard_id) for name in absent}
        if item.is_kept:
            self.drop(heard_id, "")
        return absent

    # Readers

    def readers_put(self, spec: JobSpec) -> None:
        session = self.sessions[spec.session]
        lane = session.lanes.get(AS_SPOKEN, Lane())
        if spec.index in lane.entries or spec.index < lane.next_index:
            return
        lane.admit(spec.index, f"~{spec.lanes}", self.now, spec.readers_from)
        session.lanes[AS_SPOKEN] = lane
        self.arm_gap(
            JobSpec(
                session=spec.session, index=spec.index, lane=AS_SPOKEN, demand="",
                unwanted_from=spec.readers_from,
            )
        )  # fmt: skip

    def readers_end(self, spec: JobSpec, job: str, kind: str, reason: str, out: list) -> None:
        lane = self.sessions[spec.session].lanes.get(AS_SPOKEN, Lane())
        entry = lane.entries.get(spec.index)
        if entry is None or entry.outcome is not None:
            return
        left = int(entry.job[1:])
        if kind != "completed" and left > 1:
            entry.job = f"~{left - 1}"
            return
        lane.entries[spec.index] = LaneEntry(job, entry.put_ms, (kind, reason))
        if job == "-":
            self.sessions[spec.session].refused[AS_SPOKEN, spec.index] = spec.readers
        self.push(spec.session, AS_SPOKEN, out)
