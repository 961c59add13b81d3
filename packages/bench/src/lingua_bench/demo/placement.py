"""The story of `lingua demo placement`: a small fleet, a full fleet, a lost node, order kept.

The store, its scripts and every answer shown are real, on a temporary private server. Only nodes
and listeners are simulated: nothing is recognised or translated. The story checks what it claims;
`tell_story` returns the claims that did not hold. The `DemoOutput` decides how it looks.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lingua_scheduler.config import Settings
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot, read_fleet
from lingua_scheduler.jobs.placement import PlacementRequest, explain
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.opening import open_connection
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat, job_id_of
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lingua_scheduler.jobs.dispatcher import Work
    from lingua_scheduler.jobs.requirement import Demand
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.records import Placement, Released, Settled

LANE = "es"
ALL_SERVICES = {"asr": (), "nmt": (), "tts": ()}
# The order in which results of Ana's utterances come in.
ARRIVALS = (5, 3, 0, 1, 4, 2)
PAGE = 500


class DemoOutput(Protocol):
    """The output of a story."""

    def title(self, text: str) -> None:
        """Begin a scene."""

    def say(self, text: str, tone: str = "plain") -> None:
        """Print one line; the tone is plain, good, wait, bad or note."""

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Print a table."""

    async def pause(self) -> None:
        """Let a reader catch up."""


@dataclass(frozen=True, slots=True)
class DemoNode:
    """A node of the story."""

    name: str
    declared: Declared
    slots: int
    about: str


FLEET = (
    DemoNode("madrid", Declared(ALL_SERVICES, pairs=(("en", "es"),)), 2, "en>es, nothing else"),
    DemoNode(
        "polyglot",
        Declared(ALL_SERVICES, asr_languages=("en", "de", "fr"), nmt_targets=("es", "it", "pt")),
        2,
        "en, de, fr > es, it, pt",
    ),
    DemoNode("tokyo", Declared(ALL_SERVICES, pairs=(("ja", "en"),)), 2, "ja>en"),
    DemoNode(
        "mute", Declared({"asr": (), "nmt": ()}, pairs=(("en", "es"),)), 2, "en>es, but no voice"
    ),
    DemoNode(
        "acme-gpu",
        Declared(ALL_SERVICES, pairs=(("en", "es"),), private_to="acme"),
        2,
        "en>es, private to acme",
    ),
)
NEWCOMER = DemoNode(
    "lisbon", Declared(ALL_SERVICES, pairs=(("en", "es"), ("en", "pt"))), 4, "en>es, en>pt"
)

# Results of `explain` in words.
BECAUSE = {
    "chosen": "serves little else and is free",
    "could take it": "serves more, so it comes later",
    "lang_pair_unsupported": "does not serve this language pair",
    "model_not_available": "lacks a service this needs",
    "not_in_public_pool": "private to another tenant",
    "capacity_exceeded": "all its slots are taken",
}


async def tell_story(screen: DemoOutput) -> list[str]:
    """Run the demo on a private server; return the claims that did not hold."""
    with tempfile.TemporaryDirectory(prefix="lingua-demo-") as directory:
        async with open_connection(Settings(data_dir=Path(directory))) as connection:
            screen.say("The store is a real server, private to this demo and removed afterwards.")
            screen.say(
                "Nodes and speakers are simulated; every placement below is the store's own."
            )
            story = Story(connection, screen)
            for scene in story.scenes():
                await screen.pause()
                await scene()
    return story.problems


@dataclass(frozen=True, slots=True)
class AdmittedUtterance:
    """One admitted utterance."""

    session: str
    index: int

    def __str__(self) -> str:
        return f"{self.session} #{self.index}"


class Story:
    """The scenes, and what must be true at the end."""

    def __init__(self, connection: Connection, screen: DemoOutput) -> None:
        cells = Cells("demo", 1)
        policy = FleetPolicy()
        self._cell = cells.all[0]
        self._store = Store(connection, policy)
        self._dispatcher = Dispatcher(self._store, cells, FleetSnapshot(self._store, cells), policy)
        self._screen = screen
        # Promises that did not hold.
        self.problems: list[str] = []
        # Every admitted utterance by job id, in order.
        self._admitted: dict[str, AdmittedUtterance] = {}
        # Job id -> its current attempt, once it has one.
        self._held: dict[str, Placement] = {}

    def scenes(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """Return the scenes in order."""
        return (
            self._fleet_registers,
            self._first_question,
            self._fleet_fills,
            self._tenant_has_its_own,
            self._node_joins,
            self._node_is_lost,
            self._results_arrive,
            self._sum_up,
        )

    async def _fleet_registers(self) -> None:
        self._screen.title("Five nodes register")
        for node in FLEET:
            await self._register(node)
        rows = [(node.name, node.about, node.slots) for node in FLEET]
        self._screen.table(("node", "serves", "slots"), rows)

    async def _first_question(self) -> None:
        self._screen.title(
            "Ana speaks English and wants to be heard in Spanish: which nodes can do it?"
        )
        await self._store.sessions.open(self._cell, "ana", "demo")
        chosen = await self._explain()
        self._check(chosen == "madrid", f"madrid is the specialist, but {chosen} was chosen")
        self._screen.say("Specialists first: a broad node is kept for what only it can do.", "note")

    async def _fleet_fills(self) -> None:
        self._screen.title("She speaks six sentences before any result arrives")
        for index in range(len(ARRIVALS)):
            await self._submit(AdmittedUtterance("ana", index))
        waiting = len(self._admitted) - len(self._held)
        self._check(waiting == 2, f"two utterances should wait, not {waiting}")
        self._screen.say("So it stands, as `lingua explain` shows it for a deployment:", "note")
        await self._explain()

    async def _tenant_has_its_own(self) -> None:
        self._screen.title("Ben of the tenant acme speaks too: acme-gpu serves his tenant")
        await self._store.sessions.open(self._cell, "ben", "demo", tenant="acme")
        job = await self._submit(AdmittedUtterance("ben", 0), tenant="acme")
        held = self._held.get(job)
        self._check(held is not None and held.node == "acme-gpu", "acme-gpu should serve acme")

    async def _node_joins(self) -> None:
        self._screen.title(f"A node joins: {NEWCOMER.name}, {NEWCOMER.about}")
        placed = await self._register(NEWCOMER)
        for placement in placed:
            self._place(placement, "taken from the queue")
        self._check(len(placed) == 2, "both waiting utterances should be placed")

    async def _node_is_lost(self) -> None:
        self._screen.title("The socket of polyglot breaks in the middle of its work")
        lost = {job: held for job, held in self._held.items() if held.node == "polyglot"}
        _, work = await self._dispatcher.node_lost("polyglot", "socket of polyglot")
        for placement in sorted(work.push, key=lambda each: self._admitted[each.job].index):
            self._place(placement, "moved from polyglot")
        moved = {placement.job for placement in work.push if placement.attempt == 2}
        self._check(moved == {*lost} and len(lost) == 2, "both should move, to attempt 2")
        job, late = next(iter(lost.items()))
        answer, work = await self._settle(job, late)
        refused = f"refused, attempt {answer.current_attempt} counts"
        late_result = f"late result of attempt {late.attempt} from polyglot"
        self._screen.say(f"{self._admitted[job]}  {late_result}: {refused}", "bad")
        self._check(answer.reply is Reply.STALE_ATTEMPT, "a late result must be refused")
        self._check(not work.deliver, "a late result must not come out")

    async def _results_arrive(self) -> None:
        self._screen.title("Results arrive in any order, and are delivered in hers")
        for said in (
            *(AdmittedUtterance("ana", index) for index in ARRIVALS),
            AdmittedUtterance("ben", 0),
        ):
            held = self._held.get(job_of(said))
            self._check(held is not None, f"{said} was never placed")
            if held is not None:
                await self._report(said, held)

    async def _sum_up(self) -> None:
        self._screen.title("The sum")
        heard = {
            session: (await self._store.outbox.read(self._cell, session)).entries
            for session in ("ana", "ben")
        }
        rows = await self._store.cells.nodes(self._cell, limit=PAGE)
        self.problems += outcome_problems(self._admitted, heard)
        taken, slots = sum(row.leased for row in rows), sum(row.max for row in rows)
        self._check(taken == 0, f"{taken} slots are still taken")
        for session, outcomes in heard.items():
            listed = " ".join(f"#{outcome.utterance}" for outcome in outcomes)
            self._screen.say(f"{session} was heard: {listed}")
        count = sum(len(outcomes) for outcomes in heard.values())
        self._screen.say(
            f"{len(self._admitted)} utterances admitted, {count} outcomes, "
            f"{taken} of {slots} slots taken.",
            "bad" if self.problems else "good",
        )
        if not self.problems:
            self._screen.say("Every utterance has exactly one outcome, in order.", "good")

    # What the scenes are made of

    async def _report(self, said: AdmittedUtterance, held: Placement) -> None:
        """Settle an utterance and show the outcomes that this releases."""
        answer, work = await self._settle(held.job, held)
        self._check(answer.reply is Reply.SETTLED, f"{said} should settle, not {answer}")
        out = [f"#{o.utterance}" for sent in work.deliver for o in sent.released]
        came = f"{said}  from {held.node:<8}  "
        if out:
            self._screen.say(f"{came}comes out: {' '.join(out)}", "good")
        else:
            self._screen.say(f"{came}kept back, an earlier one is missing", "wait")

    async def _register(self, node: DemoNode) -> tuple[Placement, ...]:
        """Register a node and let it report once; return the jobs that it gets."""
        about = NodeAbout(instance="demo", max=node.slots, silence_ms=60_000)
        can, conn = capability(node.declared).packed(), f"socket of {node.name}"
        await self._store.nodes.register(
            self._cell, node.name, "boot-1", conn=conn, can=can, about=about
        )
        answer = await self._store.nodes.beat(self._cell, node.name, "boot-1", NodeBeat())
        self._check(answer.status == "ready", f"{node.name} should be ready, not {answer.status}")
        return answer.placed

    async def _submit(self, said: AdmittedUtterance, tenant: str = "") -> str:
        job = job_of(said)
        spec = JobSpec(
            session=said.session, index=said.index, lane=LANE, demand=wanted(tenant).text
        )
        verdict, lines = explain(
            await read_fleet(self._store, self._cell), PlacementRequest(wanted(tenant))
        )
        full = sorted(line.node for line in lines if line.removed_by == "capacity_exceeded")
        answer, _ = await self._dispatcher.submit(self._cell, job, spec, b"")
        self._check(answer.reply in (Reply.PLACED, Reply.QUEUED), f"{said} gave {answer}")
        self._admitted[job] = said
        went_to = answer.placement.node if answer.placement else ""
        self._check(went_to == verdict.node, f"{said} went to {went_to!r}, not as explained")
        if answer.placement is not None:
            self._place(answer.placement, are_full(full) if full else "the specialist")
        else:
            self._screen.say(f"{said}  waits: {are_full(full)} ({answer.label})", "wait")
        return job

    def _place(self, placement: Placement, note: str = "") -> None:
        self._held[placement.job] = placement
        said, where = self._admitted[placement.job], f"{placement.node:<8}"
        text = f"{said}  -> {where}  attempt {placement.attempt}  {note}"
        self._screen.say(text.rstrip(), "good")

    async def _settle(self, job: str, held: Placement) -> tuple[Settled, Work]:
        payload = result_of(self._admitted[job], held.attempt)
        return await self._dispatcher.settle(
            self._cell, job, held.attempt, held.node, kind="completed", payload=payload
        )

    async def _explain(self) -> str:
        """Show what excludes each node for Ana, and return the one that would be chosen."""
        fleet = await read_fleet(self._store, self._cell)
        verdict, lines = explain(fleet, PlacementRequest(wanted("")))
        rows = []
        for line in sorted(lines, key=lambda line: (not line.chosen, line.removed_by)):
            node = fleet.nodes[line.node]
            result = "chosen" if line.chosen else line.removed_by or "could take it"
            rows.append((line.node, f"{node.leased} of {node.max_jobs}", result, why(result)))
        self._screen.table(("node", "taken", "result", "why"), rows)
        return verdict.node

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


def outcome_problems(
    admitted: Mapping[str, AdmittedUtterance], heard: Mapping[str, Sequence[Released]]
) -> list[str]:
    """Return what is wrong with the outcomes: each utterance must have exactly one, in order."""
    problems = []
    for session, outcomes in heard.items():
        indexes = [outcome.utterance for outcome in outcomes]
        due = [said.index for said in admitted.values() if said.session == session]
        if indexes != sorted(due):
            problems.append(f"{session} said {sorted(due)}, but heard are {indexes}")
        if [outcome.seq for outcome in outcomes] != [n + 1 for n in range(len(outcomes))]:
            problems.append(f"the outcomes of {session} are not numbered in order")
        problems += [
            f"{session} #{outcome.utterance} carries another result"
            for outcome in outcomes
            if outcome.job not in admitted
            or outcome.payload != result_of(admitted[outcome.job], outcome.attempt)
        ]
    unheard = {said.session for said in admitted.values()} - heard.keys()
    return problems + [f"{session} was not heard" for session in sorted(unheard)]


def why(result: str) -> str:
    """Return what a result of `explain` means."""
    return BECAUSE.get(result, "")


def are_full(names: Sequence[str]) -> str:
    """Print the nodes that have no slot left."""
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} full"


def wanted(tenant: str) -> Demand:
    """Return what the speakers need from a node."""
    return demand(Languages("en", LANE), PipelineStages(), tenant=tenant)


def job_of(said: AdmittedUtterance) -> str:
    """Return the id of an utterance's job."""
    return job_id_of(said.session, f"r{said.index}")


def result_of(said: AdmittedUtterance, attempt: int) -> bytes:
    """Return what a node of the story reports."""
    return f"{said} by attempt {attempt}".encode()
