"""`lingua languages`: the directions served here, their routes and scores, and possible additions.

The translators are loaded as a node would load them, so the output shows what works. The scores are
those of `lingua bench translation`; nothing is measured here.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_cli.logs import configure_logs
from lingua_cli.table import render_table
from lingua_speech.commands.models import print_json, size
from lingua_speech.models import default_store
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from lingua_speech.plugins import Spec
    from lingua_speech.routing.routes import Direction, RankedRoute
    from lingua_speech.routing.table import Score

HEADERS = ("from", "to", "route", "chrF", "set", "p50", "for better: lingua models install")
# The least improvement for which an installation is suggested.
BETTER_CHRF = 1.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua languages`."""
    parser = subparsers.add_parser(
        "languages", help="show the directions translated here, their routes and scores"
    )
    parser.add_argument("--json", action="store_true", help="print JSON rather than text")
    parser.add_argument(
        "--engines",
        nargs="+",
        metavar="ROLE=NAME",
        default=["default"],
        help="the translators (default: those of the default node)",
    )
    parser.set_defaults(run=run_languages)


def run_languages(args: argparse.Namespace) -> int:
    """Load the translators and show their directions."""
    from lingua_speech.presets import translators_of  # noqa: PLC0415 as in `translate`

    configure_logs(sys.stderr, "warning", as_json=not sys.stderr.isatty())
    installed = asyncio.run(_load(translators_of(args.engines)))
    rows = list(directions_of(installed))
    if args.json:
        print_json({"directions": rows, "left_out": installed.left_out})
    else:
        print(page(rows, installed.left_out))
    return 0


class InstalledTranslators(NamedTuple):
    """The installed translators, and the scores of their routes."""

    # Translator -> its own directions.
    pairs: Mapping[str, Sequence[Direction]]
    scores: Sequence[Score]
    # Translator -> why it cannot be loaded.
    left_out: Mapping[str, str]


async def _load(specs: Sequence[Spec]) -> InstalledTranslators:
    """Load every translator, those of a router one by one, and return their directions."""
    from lingua_speech.engine import EngineError  # noqa: PLC0415 as in `translate`
    from lingua_speech.engines.router import NAME, pairs_of, settings_of  # noqa: PLC0415
    from lingua_speech.host import WorkerPool, WorkerPoolRules  # noqa: PLC0415
    from lingua_speech.routing import table  # noqa: PLC0415

    members: list[Spec] = []
    scores: tuple[Score, ...] = table.load()
    for spec in specs:
        if spec.name == NAME:
            settings = settings_of(spec.options)
            members += settings.members
            scores = settings.scores
        else:
            members.append(spec)
    pool = WorkerPool(members, WorkerPoolRules())
    left_out = {}
    try:
        await pool.start()
    except EngineError as error:
        # None of them works; this is the error of the first.
        left_out = {members[0].name: error.message}
    finally:
        await pool.close()
    pairs = {
        spec.name: pairs_of(pool.abouts[at]) for at, spec in enumerate(members) if at in pool.abouts
    }
    left_out |= {members[at].name: error.message for at, error in pool.failures.items()}
    return InstalledTranslators(pairs, scores, left_out)


def directions_of(installed: InstalledTranslators) -> Iterator[dict[str, Any]]:
    """Yield every direction between known languages, those served here first."""
    from lingua_speech.routing import offers, routes  # noqa: PLC0415 as above

    served = routes.plan(installed.pairs, installed.scores)
    for pair in sorted(served):
        yield _served(pair, served[pair], installed)
    offered = offers.pairs_with(installed.pairs, offers.OFFERS)
    known = sorted({base_of(code) for pairs in offered.values() for pair in pairs for code in pair})
    flat = {pair for pairs in installed.pairs.values() for pair in pairs}
    for pair in permutations(known, 2):
        if pair not in served:
            models = offers.to_install(pair, flat)
            yield {"from": pair[0], "to": pair[1], "route": None, "install": list(models)}


def _served(
    pair: Direction, ranked: Sequence[RankedRoute], installed: InstalledTranslators
) -> dict[str, Any]:
    route, score = ranked[0]
    facts = {"from": pair[0], "to": pair[1], "route": str(route), **_score_facts(score)}
    facts["others"] = [{"route": str(one.route), **_score_facts(one.score)} for one in ranked[1:]]
    facts["better"] = _better(pair, score, installed)
    return facts


def _score_facts(score: Score | None) -> dict[str, Any]:
    if score is None:
        return {"chrf": None}
    return {
        "chrf": score.chrf,
        "bleu": score.bleu,
        "set": score.set,
        "p50_ms": score.p50_ms,
        "p95_ms": score.p95_ms,
        "date": score.date,
    }


def _better(
    pair: Direction, score: Score | None, installed: InstalledTranslators
) -> dict[str, Any] | None:
    """Return the best route that could be installed, if it is clearly better."""
    from lingua_speech.routing import offers, routes  # noqa: PLC0415 as above

    measured = [
        one
        for one in installed.scores
        if one.direction == ">".join(pair) and (score is None or one.set == score.set)
    ]
    for one in sorted(measured, key=lambda one: -one.chrf):
        if score is not None and one.chrf < score.chrf + BETTER_CHRF:
            return None
        models = offers.missing_models(routes.TranslationRoute.parse(one.route), installed.pairs)
        if models:
            return {
                "route": one.route,
                "chrf": one.chrf,
                "install": list(models),
                "download_bytes": _download_bytes(models),
            }
    return None


def _download_bytes(models: Sequence[str]) -> int:
    """Return the size of the downloads that these models and their requirements still need."""
    store = default_store()
    wanted = store.catalogue.expand(models)
    return sum(model.download_bytes() for model in wanted if not store.has(model.name))


def _offer(better: Mapping[str, Any]) -> str:
    return f"{better['chrf']:.1f}, {size(better['download_bytes'])}"


def page(rows: Sequence[dict[str, Any]], left_out: Mapping[str, str]) -> str:
    """Return the directions as text."""
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
    score = f"{row['chrf']:.1f}", row["set"], f"{row['p50_ms']:.0f} ms"
    return row["from"], row["to"], row["route"], *score, more
