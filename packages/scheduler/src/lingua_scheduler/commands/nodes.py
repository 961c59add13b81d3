"""`lingua nodes`: the nodes of a deployment, and an operator's actions on them.

`drain` gives a node no new jobs and lets it finish those it has, `resume` undoes that, `pair` makes
a code that lets one session use the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.commands.scheduler_client import (
    add_limit,
    add_options,
    age_text,
    count_text,
    id_path,
    scheduler_of,
)
from lingua_scheduler.edge.answers import (
    DrainAnswer,
    NodeAnswer,
    NodeLanguages,
    NodePage,
    PairingAnswer,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from lingua_scheduler.commands.scheduler_client import SchedulerClient

HEADERS = ("node", "status", "busy", "hears", "languages", "services", "beat", "runs", "instance")
LANGUAGES_CHARS = 40


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua nodes` and its actions."""
    parser = subparsers.add_parser("nodes", help="show the nodes, or drain, resume or pair one")
    add_options(parser)
    add_limit(parser)
    parser.set_defaults(run=run_nodes)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    kinds: tuple[tuple[str, str, Callable[[argparse.Namespace], int]], ...] = (
        ("drain", "give a node no new work", run_drain),
        ("resume", "give a node work again", run_resume),
        ("pair", "make a code that lets one session use a node", run_pair),
    )
    for name, text, run in kinds:
        action = actions.add_parser(name, help=text)
        action.add_argument("id", metavar="ID", help="id of the node")
        add_options(action, is_nested=True)
        action.set_defaults(run=run)


def run_nodes(args: argparse.Namespace) -> int:
    """Print the nodes."""
    scheduler = scheduler_of(args)
    page = scheduler.get_list("/api/v1/nodes", NodePage, "nodes", args.limit)
    print(msgspec.json.encode(page).decode() if args.json else shown(page, scheduler))
    return 0


def run_drain(args: argparse.Namespace) -> int:
    """Give a node no new work."""
    return _drain(args, draining=True)


def run_resume(args: argparse.Namespace) -> int:
    """Give a node work again."""
    return _drain(args, draining=False)


def run_pair(args: argparse.Namespace) -> int:
    """Make a pairing code."""
    path = f"{id_path('nodes', args.id)}/pairing"
    answer = scheduler_of(args).post(path, PairingAnswer, {})
    if args.json:
        print(msgspec.json.encode(answer).decode())
    else:
        print(
            f"{answer.code}\n"
            f"one session may use {answer.id} with `pairing_code` {answer.code} within "
            f"{answer.expires_in_s // 60} minutes"
        )
    return 0


def _drain(args: argparse.Namespace, *, draining: bool) -> int:
    path = f"{id_path('nodes', args.id)}/drain"
    answer = scheduler_of(args).post(path, DrainAnswer, {"draining": draining})
    if args.json:
        print(msgspec.json.encode(answer).decode())
    elif draining:
        print(
            f"{answer.id} drains: no new work, {count_text(answer.leased, 'job')} to finish; "
            f"it stays so over restarts until `lingua nodes resume {answer.id}`"
        )
    else:
        print(f"{answer.id} gets work again")
    return 0


def shown(page: NodePage, scheduler: SchedulerClient) -> str:
    """Return a page of nodes as text."""
    if not page.nodes:
        return (
            f"no nodes are known to {scheduler.url}\n"
            f"start one: lingua node --simulate --url {scheduler.sockets}/ws/node"
        )
    return f"{summary(page)}\n\n{table(page.nodes)}"


def summary(page: NodePage) -> str:
    """Return a summary of the nodes in one line."""
    ready = [node for node in page.nodes if condition(node) == "ready"]
    slots = sum(node.slots for node in ready)
    free = sum(max(0, node.slots - node.leased - node.extra) for node in ready)
    more = " (there are more: --limit)" if page.next else ""
    head = f"{count_text(len(page.nodes), 'node')}{more}, {len(ready)} ready"
    return f"{head}, {free} of {count_text(slots, 'slot')} free"


def table(nodes: Sequence[NodeAnswer]) -> str:
    """Return one row per node, by id."""
    return render_table(HEADERS, [row(node) for node in sorted(nodes, key=lambda n: n.id)])


def row(node: NodeAnswer) -> tuple[str, ...]:
    """Return the cells of one node."""
    return (
        node.id,
        state_text(node),
        f"{node.leased + node.extra}/{node.slots}",
        f"{node.streams_open}/{node.streams}" if node.streams else "-",
        languages_in_words(node.languages),
        " ".join(node.services),
        age_text(node.beat_age_ms),
        f"{node.platform} {node.version}".strip() or "-",
        node.instance,
    )


def condition(node: NodeAnswer) -> str:
    """Return `ready` if a node accepts jobs, else the reason why not."""
    if node.status == "offline":
        return "offline (drained)" if node.drained_by_operator else "offline"
    if node.draining:
        # Drained by an operator until `resume`; otherwise the node itself is stopping.
        return "drained" if node.drained_by_operator else "draining"
    return "overloaded" if node.over and node.status == "ready" else node.status


def state_text(node: NodeAnswer) -> str:
    """Return its condition, with the numbers behind it: `overloaded: cpu 97 % > 90 %`."""
    state = condition(node)
    over = [f"{one.resource} {one.percent:.0f} % > {one.percent_max:g} %" for one in node.over_by]
    return f"{state}: {', '.join(over)}" if over and state == "overloaded" else state


def languages_in_words(can: NodeLanguages | None) -> str:
    """Return the languages of a node, shortened to the column; `--json` has all of them."""
    if can is None:
        return "unknown"
    if can.pairs is not None:
        return listed([pair.replace(">", " to ") for pair in can.pairs])
    if can.sources is None and can.targets is None:
        return "any"
    half = LANGUAGES_CHARS // 2
    return f"{listed(can.sources, half)} to {listed(can.targets, half)}"


def listed(names: Sequence[str] | None, room: int = LANGUAGES_CHARS) -> str:
    """Return as many names as fit, and the number of the others."""
    if names is None:
        return "any"
    text = names[0] if names else "none"
    for shown, name in enumerate(names[1:], 1):
        if len(text) + len(name) + 2 > room:
            return f"{text} and {len(names) - shown} more"
        text = f"{text}, {name}"
    return text
