"""`lingua node`: a node of real engines (`--engines`), or simulated nodes (`--simulate`).

Connects to a running scheduler, prints changes of the connection, and a summary at the end. Ctrl-C
or SIGTERM drains; a second one ends it at once. This module has the options and the simulated
nodes; `node_engines.py` has the real engines. Nothing of the scheduler is used.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING

from lingua_cli.certificates import add_ca, tls_of
from lingua_cli.language_arguments import pair_argument
from lingua_node import Node, NodeRefused
from lingua_node.machine import default_node_id
from lingua_node.node import DRAIN_REASON, fastest_loop
from lingua_node.old_node import OldNode
from lingua_node.settings import DEFAULT_URL
from lingua_node.simulate import Simulation
from lingua_speech.commands import node_engines
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT_MAX = 1000
MAX_JOBS = 4
NO_ENGINES = (
    "choose the engines of the node: --engines default (after: lingua models install default), "
    "or --simulate for a node that only pretends to translate"
)
TOTALS = (
    ("jobs", "jobs"),
    ("succeeded", "done"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("refused", "refused as too many"),
    ("reconnects", "reconnects"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua node`."""
    parser = subparsers.add_parser("node", help="connect a node that translates, or pretends to")
    parser.set_defaults(run=run_nodes)
    add = parser.add_argument
    _add_engines(parser)
    add(
        "--url",
        action="append",
        dest="urls",
        metavar="URL",
        help="the scheduler; repeat it for several instances: the next one is tried when one is "
        f"lost (default: {DEFAULT_URL})",
    )
    add("--node-id", metavar="ID", help="the name of the node (default: from the host name)")
    _add_languages(parser)
    _add_behaviour(parser)
    add(
        "--max-jobs",
        type=whole(1, 1024),
        metavar="N",
        help=f"jobs at a time (default: measured at the start; simulated: {MAX_JOBS})",
    )
    add(
        "--streams",
        type=whole(0, 1024),
        metavar="N",
        help="speakers it hears while they speak (default: measured with the jobs; simulated: 0)",
    )
    add(
        "--count",
        type=whole(1, COUNT_MAX),
        default=1,
        metavar="N",
        help="number of nodes in this process, with numbered ids (default: 1)",
    )
    _add_token(parser)
    add(
        "--label",
        dest="labels",
        action="append",
        default=[],
        metavar="WORD",
        help="a label by which operators select the node, such as eu (may be repeated)",
    )
    add_ca(parser)
    add("--json-wire", action="store_true", help="JSON instead of MessagePack")
    add("--old-protocol", action="store_true", help="behave as nodes of the older protocol")
    node_engines.add_options(parser)


def _add_engines(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--engines",
        nargs="+",
        metavar="ENGINE",
        help="real engines: default, or like asr=whisper:model=small mt=apertium tts=espeak, or a "
        "file.toml",
    )
    kind.add_argument("--simulate", action="store_true", help="pretend to translate")


def _add_languages(parser: argparse.ArgumentParser) -> None:
    languages = parser.add_mutually_exclusive_group()
    languages.add_argument(
        "--pairs",
        type=pairs,
        default=(),
        metavar="EN>ES,EN>FR",
        help="directions to serve, as 'en>es,en>fr' or en:es,en:fr",
    )
    languages.add_argument("--any", action="store_true", help="serve any direction (the default)")


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token",
        metavar="T",
        default=os.environ.get(node_engines.TOKEN_VARIABLE) or None,
        help=f"node token, if the scheduler requires one (default: ${node_engines.TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        help="a file with the token, read whenever one is needed, so it may be replaced",
    )


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    kinds = {
        "delay-ms": (50.0, "duration of a job"),
        "jitter-ms": (0.0, "random extra duration, up to this"),
        "fail-percent": (0.0, "jobs that fail"),
        "silent-percent": (0.0, "jobs that are never answered"),
        "empty-percent": (0.0, "jobs answered as silence"),
    }
    for name, (default, text) in kinds.items():
        kind = percent if name.endswith("percent") else not_negative
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{text} ({default:g})"
        )
    parser.add_argument(
        "--partials", type=whole(0, 100), default=0, metavar="N", help="partial texts per job (0)"
    )
    parser.add_argument(
        "--parts",
        type=whole(0, 100),
        default=0,
        metavar="N",
        help="parts of the speech per job (0)",
    )
    parser.add_argument(
        "--sentence-words",
        type=whole(0, 100),
        default=0,
        metavar="N",
        help="words after which a stream hints at the end of a sentence (0: never)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the random numbers (0)"
    )
    parser.add_argument(
        "--echo", action="store_true", help="do no work, to measure everything else"
    )


def run_nodes(args: argparse.Namespace) -> int:
    """Serve until stopped; exit code 1 if a node was refused."""
    if args.engines:
        return node_engines.run_engines(args)
    if not args.simulate:
        print(f"lingua: {NO_ENGINES}", file=sys.stderr)
        return 2
    if args.old_protocol and (args.token or args.token_file):
        raise ConfigError("--token", "nodes of the older protocol have no token")
    nodes = SimulatedNodes(args)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(nodes.serve())


class SimulatedNodes:
    """The simulated nodes of one command, and its output."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._urls = _urls_of(args, 0)
        base = args.node_id or default_node_id()
        names = [base] if args.count == 1 else [f"{base}-{n}" for n in range(1, args.count + 1)]
        build = _old_node if args.old_protocol else _node
        # Node id -> node.
        self._nodes = {
            name: build(args, name, number, self._listener(name))
            for number, name in enumerate(names)
        }
        # A stop was already requested.
        self._is_stopping = False
        # Messages printed since a node was registered, so that each is printed once.
        self._printed: dict[str, set[str]] = {name: set() for name in names}

    async def serve(self) -> int:
        """Serve with all nodes; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle_signal)
        began = monotonic()
        where = ", ".join(self._urls)
        _print(f"connecting to {where} with {len(self._nodes)} simulated node(s)")
        served = [self._serve_one(name) for name in self._nodes]
        are_refused = await asyncio.gather(*served)
        self._print_summary(monotonic() - began)
        return 1 if any(are_refused) else 0

    async def _serve_one(self, name: str) -> bool:
        """Serve with one node; return whether it was refused."""
        try:
            await self._nodes[name].serve()
        except NodeRefused as refused:
            _print(f"{name}: refused for good: {node_engines.refusal(refused)}")
            return True
        return False

    def _handle_signal(self) -> None:
        if not self._is_stopping:
            _print("stopping after the current jobs (repeat to stop at once)")
        for node in self._nodes.values():
            if isinstance(node, Node) and not self._is_stopping:
                node.drain(DRAIN_REASON)
            else:
                node.stop()
        self._is_stopping = True

    def _listener(self, name: str) -> Callable[[str, str], None]:
        def watch(word: str, detail: str) -> None:
            printed = self._printed[name]
            if word == "registered":
                printed.clear()
                _print(f"{name}: {word} {detail}")
            elif word not in {"connecting", "draining"} and word + detail not in printed:
                # Repeated attempts are reported once.
                printed.add(word + detail)
                _print(f"{name}: {word}: {detail}")

        return watch

    def _print_summary(self, seconds: float) -> None:
        stats = [node.stats for node in self._nodes.values()]
        counts = {name: sum(getattr(one, name) for one in stats) for name, _ in TOTALS}
        parts = [
            f"{counts[name]} {words}" for name, words in TOTALS if counts[name] or name == "jobs"
        ]
        _print(f"{', '.join(parts)} in {seconds:.1f} s")


def _node(
    args: argparse.Namespace, name: str, number: int, watch: Callable[[str, str], None]
) -> Node:
    node = Node(
        _urls_of(args, number),
        node_id=name,
        pairs=args.pairs,
        max_jobs=args.max_jobs or MAX_JOBS,
        token=node_engines.token_of(args),
        labels=args.labels,
        max_streams=args.streams or 0,
        tls=tls_of(args.ca),
        json_wire=args.json_wire,
        reports_usage=False,
        watch=watch,
    )
    simulation = _simulation(args, number)
    node.job(simulation.handler())
    if args.streams:
        node.stream(simulation.stream_handler())
    return node


def _old_node(
    args: argparse.Namespace, name: str, number: int, watch: Callable[[str, str], None]
) -> OldNode:
    return OldNode(
        _urls_of(args, number),
        node_id=name,
        pairs=args.pairs,
        simulation=_simulation(args, number),
        watch=watch,
    )


def _urls_of(args: argparse.Namespace, number: int) -> list[str]:
    """Return the addresses, rotated for each node, so that the nodes spread."""
    urls = args.urls or [DEFAULT_URL]
    first = number % len(urls)
    return [*urls[first:], *urls[:first]]


def _simulation(args: argparse.Namespace, number: int) -> Simulation:
    return Simulation(
        delay_ms=args.delay_ms,
        jitter_ms=args.jitter_ms,
        fail_percent=args.fail_percent,
        silent_percent=args.silent_percent,
        empty_percent=args.empty_percent,
        partials=args.partials,
        audio_parts=args.parts,
        sentence_words=args.sentence_words,
        # Nodes of one command must not fail at the same time.
        seed=args.seed + number,
        echo=args.echo,
    )


def pairs(text: str) -> tuple[str, ...]:
    """Parse directions; a colon may replace the arrow, which a shell would interpret."""
    return tuple(pair_argument(pair.replace(":", ">")) for pair in text.split(",") if pair)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser for whole numbers within limits."""

    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}")
        return value

    return number


def not_negative(text: str) -> float:
    """Parse a number that is not negative."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def percent(text: str) -> float:
    """Parse a percentage."""
    number = not_negative(text)
    if number > 100:
        raise argparse.ArgumentTypeError("must be from 0 to 100")
    return number


def _print(line: str) -> None:
    print(line, flush=True)
