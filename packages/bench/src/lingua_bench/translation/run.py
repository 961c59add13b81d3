"""The benchmark of translation: every route of the installed translators, on every set for it.

The translators run in a worker process, as in a node. Each route is taken step by step, without the
router's checks, so that its own score is measured; then the router, as a node has it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_bench.translation.bleu import bleu
from lingua_bench.translation.report import NODE, QUOTED, TranslationReport
from lingua_bench.translation.sets import Direction, all_sets
from lingua_speech.engine import EngineError, Rendered, text_of
from lingua_speech.engines.router import default_members, pairs_of
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_speech.routing import routes, table
from lingua_speech.routing.table import Score
from lingua_speech.scores import chrf
from lingua_translate import quantile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lingua_bench.translation.sets import Sentences
    from lingua_speech.routing.routes import TranslationRoute

TIMEOUT_S: Final = 30.0
# Translated once before anything counts: the first sentence starts the programs.
WARM_UP: Final = 3


@dataclass(frozen=True, slots=True)
class TranslationBenchmarkPlan:
    """What is measured."""

    # Only the node, only in the directions that are quoted, on the sets that decide there.
    is_quick: bool = False
    # Only these directions; empty: all that have sentences.
    directions: frozenset[Direction] = frozenset()
    # Translators that the router is compared with.
    use: tuple[str, ...] = field(default_factory=default_members)


async def measure_translation(
    plan: TranslationBenchmarkPlan, tell: Callable[[str], None]
) -> TranslationReport:
    """Measure everything that a plan asks for."""
    report = TranslationReport()
    sets = all_sets(default_store())
    if plan.directions:
        sets = [one for one in sets if one.direction in plan.directions]
    if plan.is_quick:
        sets = _deciding(sets)
    else:
        await _measure_routes(plan, sets, report, tell)
    await _measure_node(plan, sets, report, tell)
    return report


def _deciding(sets: Sequence[Sentences]) -> list[Sentences]:
    """Return for each direction that is quoted the set that decides there."""
    found: dict[Direction, Sentences] = {}
    for name in reversed(routes.SETS):
        found |= {one.direction: one for one in sets if one.name == name}
    return [found[direction] for direction in QUOTED if direction in found]


# Routes, one by one


async def _measure_routes(
    plan: TranslationBenchmarkPlan,
    sets: Sequence[Sentences],
    report: TranslationReport,
    tell: Callable[[str], None],
) -> None:
    async with _pool([f"mt={name}" for name in plan.use]) as pool:
        numbers = {name: at for at, name in enumerate(plan.use) if at in pool.abouts}
        pairs = {name: pairs_of(pool.abouts[at]) for name, at in numbers.items()}
        for one in sets:
            for route in routes.candidates(pairs, one.direction):
                tell(f"{one.name}: {route}")
                walk = _Walk(pool, numbers, route)
                said, took_ms = await _translations(walk, one.texts)
                report.routes.append(_score(one, str(route), said, took_ms))


class _Walk:
    """A route, taken step by step."""

    def __init__(self, pool: WorkerPool, numbers: dict[str, int], route: TranslationRoute) -> None:
        self._pool = pool
        self._numbers = numbers
        self._route = route

    async def __call__(self, text: str) -> Rendered:
        for step in self._route.steps:
            if not text:
                break
            call = (self._numbers[step.engine], text, step.source, step.target)
            try:
                text = text_of(await self._pool.call(*call, timeout_s=TIMEOUT_S))
            except EngineError:
                # A failed translation scores 0.
                text = ""
        return Rendered(text)


# The results of a node


async def _measure_node(
    plan: TranslationBenchmarkPlan,
    sets: Sequence[Sentences],
    report: TranslationReport,
    tell: Callable[[str], None],
) -> None:
    remarks: Counter[str] = Counter()
    async with _router(plan, report.routes) as pool:
        served = set(pool.abouts[0].pairs)
        for one in (one for one in sets if one.direction in served):
            tell(f"{one.name}: the node, {'>'.join(one.direction)}")
            direction = one.direction

            async def ask(text: str, direction: tuple[str, str] = direction) -> Rendered:
                said: Rendered = await pool.call(0, text, *direction, timeout_s=TIMEOUT_S)
                remarks.update(said.remarks)
                return said

            said, took_ms = await _translations(ask, one.texts)
            report.node.append(_score(one, NODE, said, took_ms))
            report.took_ms += took_ms
    report.remarks = dict(remarks.most_common())


@asynccontextmanager
async def _router(
    plan: TranslationBenchmarkPlan, measured: Sequence[Score]
) -> AsyncIterator[WorkerPool]:
    """Start a router that decides by the scores measured just now, and else by the table."""
    with NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write(table.written(table.merged(table.load(), measured)))
        file.flush()
        async with _pool([f"mt={NODE}:use={'+'.join(plan.use)},scores={file.name}"]) as pool:
            yield pool


async def _translations(
    ask: Callable[[str], Awaitable[Rendered]], texts: Sequence[str]
) -> tuple[list[str], list[float]]:
    """Return the translations and how long each took, in milliseconds."""
    for text in texts[:WARM_UP]:
        await ask(text)
    found, took_ms = [], []
    for text in texts:
        began = perf_counter()
        said = await ask(text)
        took_ms.append((perf_counter() - began) * 1000)
        found.append(said.text)
    return found, took_ms


def _score(one: Sentences, route: str, said: list[str], took_ms: list[float]) -> Score:
    return Score(
        direction=">".join(one.direction),
        route=route,
        set=one.name,
        sentences=len(said),
        chrf=round(chrf(said, one.references), 2),
        bleu=round(bleu(said, one.references), 2),
        p50_ms=round(quantile(took_ms, 0.5), 1),
        p95_ms=round(quantile(took_ms, 0.95), 1),
        date=datetime.now(UTC).date().isoformat(),
    )


@asynccontextmanager
async def _pool(words: Sequence[str]) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool([Spec.parse(word) for word in words], WorkerPoolRules())
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
