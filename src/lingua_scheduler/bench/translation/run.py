"""The benchmark itself: every way that the installed translators make, on every set it can be.

The translators run in a worker process, as in a node. Each route is walked step by step, without
the router's care, so that its own worth is measured; then the router, as a node has it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_scheduler.bench.translation.bleu import bleu
from lingua_scheduler.bench.translation.report import NODE, QUOTED, TranslationReport
from lingua_scheduler.bench.translation.sets import Direction, all_sets
from lingua_scheduler.interpret import quantile
from lingua_scheduler.models import default_store
from lingua_scheduler.speech.engine import EngineError, Rendered, text_of
from lingua_scheduler.speech.engines.router import default_members, pairs_of
from lingua_scheduler.speech.host import Crew, CrewRules
from lingua_scheduler.speech.plugins import Spec
from lingua_scheduler.speech.routing import routes, table
from lingua_scheduler.speech.routing.table import Score
from lingua_scheduler.speech.scores import chrf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lingua_scheduler.bench.translation.sets import Sentences
    from lingua_scheduler.speech.routing.routes import Route

TIMEOUT_S: Final = 30.0
# Said once before anything counts: programs are started by the first sentence.
WARM_UP: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    # Only the node, only in the directions that are quoted, on the sets that decide there.
    is_quick: bool = False
    # Only these; none: all that there are sentences for.
    directions: frozenset[Direction] = frozenset()
    # Translators beside which the router is measured.
    use: tuple[str, ...] = field(default_factory=default_members)


async def measure_translation(plan: Plan, tell: Callable[[str], None]) -> TranslationReport:
    """Measure all that a plan asks for."""
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
    plan: Plan, sets: Sequence[Sentences], report: TranslationReport, tell: Callable[[str], None]
) -> None:
    async with _crew([f"mt={name}" for name in plan.use]) as crew:
        numbers = {name: at for at, name in enumerate(plan.use) if at in crew.abouts}
        pairs = {name: pairs_of(crew.abouts[at]) for name, at in numbers.items()}
        for one in sets:
            for route in routes.candidates(pairs, one.direction):
                tell(f"{one.name}: {route}")
                walk = _Walk(crew, numbers, route)
                said, took_ms = await _translations(walk, one.texts)
                report.routes.append(_score(one, str(route), said, took_ms))


class _Walk:
    """A route, walked step by step."""

    def __init__(self, crew: Crew, numbers: dict[str, int], route: Route) -> None:
        self._crew = crew
        self._numbers = numbers
        self._route = route

    async def __call__(self, text: str) -> Rendered:
        for step in self._route.steps:
            if not text:
                break
            call = (self._numbers[step.engine], text, step.source, step.target)
            try:
                text = text_of(await self._crew.call(*call, timeout_s=TIMEOUT_S))
            except EngineError:
                # What fails is worth nothing.
                text = ""
        return Rendered(text)


# What a node gives


async def _measure_node(
    plan: Plan, sets: Sequence[Sentences], report: TranslationReport, tell: Callable[[str], None]
) -> None:
    remarks: Counter[str] = Counter()
    async with _router(plan, report.routes) as crew:
        served = set(crew.abouts[0].pairs)
        for one in (one for one in sets if one.direction in served):
            tell(f"{one.name}: the node, {'>'.join(one.direction)}")
            direction = one.direction

            async def ask(text: str, direction: tuple[str, str] = direction) -> Rendered:
                said: Rendered = await crew.call(0, text, *direction, timeout_s=TIMEOUT_S)
                remarks.update(said.remarks)
                return said

            said, took_ms = await _translations(ask, one.texts)
            report.node.append(_score(one, NODE, said, took_ms))
            report.took_ms += took_ms
    report.remarks = dict(remarks.most_common())


@asynccontextmanager
async def _router(plan: Plan, measured: Sequence[Score]) -> AsyncIterator[Crew]:
    """Start a router that decides by what was measured just now, and by the table else."""
    with NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write(table.written(table.merged(table.load(), measured)))
        file.flush()
        async with _crew([f"mt={NODE}:use={'+'.join(plan.use)},scores={file.name}"]) as crew:
            yield crew


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
async def _crew(words: Sequence[str]) -> AsyncIterator[Crew]:
    crew = Crew([Spec.parse(word) for word in words], CrewRules())
    await crew.start()
    try:
        yield crew
    finally:
        await crew.close()
