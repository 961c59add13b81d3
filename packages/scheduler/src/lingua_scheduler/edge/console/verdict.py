"""Whether all is well, and why not: the sentence at the top of the console. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.edge.console.documents import ConsoleProblem, ConsoleVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_scheduler.edge.console.documents import (
        ConsoleInstance,
        ConsoleNode,
        ConsoleQueue,
    )
    from lingua_scheduler.edge.console.rates import RecentTraffic

# Names that a problem has; there may be hundreds.
ABOUT_MAX = 8
# More waiting jobs than slots take longer than an utterance: people notice.
INBOX_LONG = 100
# The event loop is late: this instance does more than one core can.
LAG_WARN_MS, LAG_BAD_MS = 20.0, 200.0
# A share of utterances without a result that is more than single accidents.
FAILED_SHARE, FAILED_MIN = 0.02, 3
LOST = ("failed", "expired", "missing")
LEVELS = ("bad", "warn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a verdict is about."""

    store_up: bool
    draining: bool
    instances: Sequence[ConsoleInstance]
    nodes: Sequence[ConsoleNode]
    queues: Sequence[ConsoleQueue]
    dead_letters: int
    sessions: int
    traffic: RecentTraffic


def judge(seen: Observed) -> ConsoleVerdict:
    """Return the verdict, the worst problems first."""
    problems = [
        *_of_store(seen),
        *_of_nodes(seen.nodes),
        *_of_queues(seen),
        *_of_instances(seen),
        *_of_traffic(seen.traffic),
        *_of_letters(seen),
    ]
    problems.sort(key=lambda problem: LEVELS.index(problem.level))
    if not problems:
        return ConsoleVerdict(state="well", sentence=f"all is well: {_counts(seen)}")
    first, more = problems[0], len(problems) - 1
    rest = f", and {more} more" if more else ""
    return ConsoleVerdict(
        state=first.level, sentence=f"{first.text}{rest}", problems=tuple(problems)
    )


def _of_store(seen: Observed) -> Iterable[ConsoleProblem]:
    if not seen.store_up:
        yield bad("store", "the store does not answer: what follows is what was known before")
    if seen.draining:
        yield warn("draining", "this service is draining: it takes no new sessions and nodes")


def _of_nodes(nodes: Sequence[ConsoleNode]) -> Iterable[ConsoleProblem]:
    if not nodes:
        yield bad("no_nodes", "no node is registered: nothing can be translated")
        return
    if not any(node.health in ("ready", "full", "busy") for node in nodes):
        yield bad("no_node_ready", "no node takes work: nothing can be translated")
    offline = [node.id for node in nodes if node.health == "offline"]
    if offline:
        yield warn("nodes_offline", _text(offline, "node", "offline"), offline)
    degraded = [node.id for node in nodes if node.health == "degraded"]
    if degraded:
        yield warn("nodes_degraded", _text(degraded, "node", "degraded"), degraded)
    busy = [node.id for node in nodes if node.health == "busy"]
    if busy:
        yield warn("nodes_busy", _text(busy, "node", "on machines that are too busy"), busy)
    held = [node.id for node in nodes if node.health == "drained"]
    if held:
        yield warn("nodes_drained", f"{_text(held, 'node', 'drained')} by an operator", held)


def _of_queues(seen: Observed) -> Iterable[ConsoleProblem]:
    waiting = sum(queue.waiting for queue in seen.queues)
    working = [node for node in seen.nodes if node.health in ("ready", "full", "busy")]
    slots = sum(node.slots for node in working)
    is_full = bool(working) and all(node.health == "full" for node in working)
    if waiting:
        where = [queue.cell for queue in seen.queues if queue.waiting]
        text = f"{counted(waiting, 'job')} wait{'s' if waiting == 1 else ''} for a node"
        if is_full:
            text += f": all {slots} slots are taken"
        yield (bad if waiting > slots else warn)("queue", text, where)
    elif is_full:
        yield warn("full", f"all {slots} slots are taken: further utterances will wait")


def _of_instances(seen: Observed) -> Iterable[ConsoleProblem]:
    for state, level, what in (
        ("dead", warn, "silent: others take over"),
        ("orphan", warn, "gone, but left an inbox"),
    ):
        names = [one.id for one in seen.instances if one.state == state]
        if names:
            yield level(f"instances_{state}", _text(names, "instance", what), names)
    full = [one.id for one in seen.instances if one.inbox > INBOX_LONG]
    if full:
        yield warn("inboxes", f"messages pile up for {listed(full)}", full)


def _of_traffic(traffic: RecentTraffic) -> Iterable[ConsoleProblem]:
    ended = sum(traffic.outcomes.values())
    lost = {name: traffic.outcomes[name] for name in LOST if traffic.outcomes.get(name)}
    if (count := sum(lost.values())) >= max(FAILED_MIN, FAILED_SHARE * ended):
        reasons = ", ".join(f"{value} {name}" for name, value in lost.items())
        text = f"{count} of the last {ended} utterances have no result ({reasons})"
        yield (bad if count * 5 > ended else warn)("lost", text)
    for start, code, text in (
        ("no node: ", "no_node", "found no node at once"),
        ("connection: ", "connections", "connections were refused"),
    ):
        found = {
            name.removeprefix(start): value
            for name, value in traffic.refused.items()
            if name.startswith(start)
        }
        if found:
            reasons = ", ".join(
                f"{value} {name}" for name, value in sorted(found.items(), key=lambda x: -x[1])[:3]
            )
            number = sum(found.values())
            noun = f"{number} {text}" if code == "connections" else f"{number} jobs {text}"
            yield warn(code, f"{noun} in the last minute ({reasons})")
    if traffic.lag_ms >= LAG_WARN_MS:
        level = bad if traffic.lag_ms >= LAG_BAD_MS else warn
        yield level("lag", f"this service is {traffic.lag_ms:.0f} ms late: its core is full")


def _of_letters(seen: Observed) -> Iterable[ConsoleProblem]:
    if seen.dead_letters:
        yield warn("dead_letters", f"{counted(seen.dead_letters, 'dead letter')} (`lingua dlq ls`)")


def _counts(seen: Observed) -> str:
    alive = sum(one.state in ("alive", "draining") for one in seen.instances)
    known = ((alive, "instance"), (len(seen.nodes), "node"), (seen.sessions, "session"))
    return ", ".join(counted(number, noun) for number, noun in known)


def _text(names: Sequence[str], noun: str, what: str) -> str:
    if len(names) == 1:
        return f"{noun} {names[0]} is {what}"
    return f"{counted(len(names), noun)} are {what}"


def bad(code: str, text: str, about: Sequence[str] = ()) -> ConsoleProblem:
    """Return a problem that people notice."""
    return ConsoleProblem(level="bad", code=code, text=text, about=tuple(about[:ABOUT_MAX]))


def warn(code: str, text: str, about: Sequence[str] = ()) -> ConsoleProblem:
    """Return a problem that an operator should look at."""
    return ConsoleProblem(level="warn", code=code, text=text, about=tuple(about[:ABOUT_MAX]))


def counted(number: int, noun: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - ABOUT_MAX
    return ", ".join(names[:ABOUT_MAX]) + (f" and {more} more" if more > 0 else "")
