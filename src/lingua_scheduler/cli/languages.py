"""`lingua languages`: what is translated into what here, which way, how well, and what is missing.

The translators are loaded as a node would load them, so that what is shown is what works. Scores
are those of `lingua bench translation`; nothing is measured here.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.cli.models import print_json, size
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.languages import base_of
from lingua_scheduler.logs import configure_logs
from lingua_scheduler.models import default_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from lingua_scheduler.speech.plugins import Spec
    from lingua_scheduler.speech.routing.routes import Direction, Ranked
    from lingua_scheduler.speech.routing.table import Score

HEADERS = ("from", "to", "route", "chrF", "set", "p50", "for better: lingua models install")
# So much more is worth an installation.
BETTER_CHRF = 1.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua languages`."""
    parser = subparsers.add_parser(
        "languages", help="show what is translated into what here, which way and how well"
    )
    parser.add_argument("--json", action="store_true", help="print JSON rather than text")
    parser.add_argument(
        "--engines", nargs="+", metavar="ROLE=NAME", default=["default"],
        help="translators to look at (default: those of the default node)",
    )  # fmt: skip
    parser.set_defaults(run=run_languages)


def run_languages(args: argparse.Namespace) -> int:
    """Load the translators and show what they make together."""
    from lingua_scheduler.speech.presets import translators_of  # noqa: PLC0415 as in `translate`

    configure_logs(sys.stderr, "warning", as_json=not sys.stderr.isatty())
    there = asyncio.run(_look(translators_of(args.engines)))
    rows = list(directions_of(there))
    if args.json:
        print_json({"directions": rows, "left_out": there.left_out})
    else:
        print(page(rows, there.left_out))
    return 0


class There(NamedTuple):
    """What is installed."""

    # Translator -> the directions it does by itself.
    pairs: Mapping[str, Sequence[Direction]]
    scores: Sequence[Score]
    # Translator -> why it cannot be loaded.
    left_out: Mapping[str, str]


async def _look(specs: Sequence[Spec]) -> There:
    """Load every translator, those of a router one by one, and see what each can do."""
    from lingua_scheduler.speech.engine import EngineError  # noqa: PLC0415 as in `translate`
    from lingua_scheduler.speech.engines.router import NAME, pairs_of, team_of  # noqa: PLC0415
    from lingua_scheduler.speech.host import Crew, CrewRules  # noqa: PLC0415
    from lingua_scheduler.speech.routing import table  # noqa: PLC0415

    members: list[Spec] = []
    scores: tuple[Score, ...] = table.load()
    for spec in specs:
        if spec.name == NAME:
            team = team_of(spec.options)
            members += team.members
            scores = team.scores
        else:
            members.append(spec)
    crew = Crew(members, CrewRules())
    left_out = {}
    try:
        await crew.start()
    except EngineError as error:
        # None of them works, and this is why the first does not.
        left_out = {members[0].name: error.message}
    finally:
        await crew.close()
    pairs = {spec.name: pairs_of(crew.abouts[at]) for at, spec in enumerate(members)
             if at in crew.abouts}  # fmt: skip
    left_out |= {members[at].name: error.message for at, error in crew.failures.items()}
    return There(pairs, scores, left_out)


def directions_of(there: There) -> Iterator[dict[str, Any]]:
    """Give every direction between languages that are known, those that are served first."""
    from lingua_scheduler.speech.routing import offers, routes  # noqa: PLC0415 as above

    served = routes.plan(there.pairs, there.scores)
    for pair in sorted(served):
        yield _served(pair, served[pair], there)
    offered = offers.pairs_with(there.pairs, offers.OFFERS)
    known = sorted({base_of(code) for pairs in offered.values() for pair in pairs for code in pair})
    flat = {pair for pairs in there.pairs.values() for pair in pairs}
    for pair in permutations(known, 2):
        if pair not in served:
            models = offers.to_install(pair, flat)
            yield {"from": pair[0], "to": pair[1], "route": None, "install": list(models)}


def _served(pair: Direction, ways: Sequence[Ranked], there: There) -> dict[str, Any]:
    route, score = ways[0]
    facts = {"from": pair[0], "to": pair[1], "route": str(route), **_worth(score)}
    facts["others"] = [{"route": str(one.route), **_worth(one.score)} for one in ways[1:]]
    facts["better"] = _better(pair, score, there)
    return facts


def _worth(score: Score | None) -> dict[str, Any]:
    if score is None:
        return {"chrf": None}
    return {
        "chrf": score.chrf, "bleu": score.bleu, "set": score.set, "p50_ms": score.p50_ms,
        "p95_ms": score.p95_ms, "date": score.date,
    }  # fmt: skip


def _better(pair: Direction, score: Score | None, there: There) -> dict[str, Any] | None:
    """Return the best way that is not here but can be installed, if it is worth it."""
    from lingua_scheduler.speech.routing import offers, routes  # noqa: PLC0415 as above

    measured = [one for one in there.scores if one.direction == ">".join(pair)
                and (score is None or one.set == score.set)]  # fmt: skip
    for one in sorted(measured, key=lambda one: -one.chrf):
        if score is not None and one.chrf < score.chrf + BETTER_CHRF:
            return None
        models = offers.bringing(routes.Route.parse(one.route), there.pairs)
        if models:
            return {
                "route": one.route, "chrf": one.chrf, "install": list(models),
                "download_bytes": _download_bytes(models),
            }  # fmt: skip
    return None


def _download_bytes(models: Sequence[str]) -> int:
    """Return how much these and what they require have to be fetched, as far as they are not."""
    store = default_store()
    wanted = store.catalogue.expand(models)
    return sum(model.download_bytes() for model in wanted if not store.has(model.name))


def _offer(better: Mapping[str, Any]) -> str:
    return f"{better['chrf']:.1f}, {size(better['download_bytes'])}"


def page(rows: Sequence[dict[str, Any]], left_out: Mapping[str, str]) -> str:
    """Return what a person reads."""
    served = [row for row in rows if row["route"]]
    parts = [render_table(HEADERS, [_row(row) for row in served])] if served else []
    wanted: dict[str, list[str]] = {}
    for row in rows:
        if not row["route"] and row["install"]:
            wanted.setdefault(" ".join(row["install"]), []).append(f"{row['from']}>{row['to']}")
    parts.append(
        "\n".join(
            f"lingua models install {models}: {', '.join(pairs)}"
            for models, pairs in wanted.items()
        )
    )
    parts.append("\n".join(f"left out: {name}: {why}" for name, why in left_out.items()))
    return "\n\n".join(filter(None, parts)) or "nothing is translated here"


def _row(row: dict[str, Any]) -> tuple[str | None, ...]:
    better = row["better"]
    more = f"{' '.join(better['install'])} ({_offer(better)})" if better else None
    if row["chrf"] is None:
        return row["from"], row["to"], row["route"], "-", "-", "-", more
    return (
        row["from"], row["to"], row["route"], f"{row['chrf']:.1f}", row["set"],
        f"{row['p50_ms']:.0f} ms", more,
    )  # fmt: skip
