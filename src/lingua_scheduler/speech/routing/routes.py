"""The ways that translators make together from one language to another, the best first. Pure.

A step is one translator in one direction, a route is one step or several, each beginning where the
last one ended. Of two routes the one that was measured to be better is taken; one that nobody
measured comes behind, and among those the shorter one. What was measured is what counts for the
kind of sentence (`kinds`): a way that is best for prompts need not be best for talk.
"""

from __future__ import annotations

import re
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.speech.routing.kinds import EVERYDAY, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lingua_scheduler.speech.routing.table import Score

Direction = tuple[str, str]

STEP = re.compile(r"(?P<engine>[\w.-]+):(?P<source>[a-z0-9-]+)>(?P<target>[a-z0-9-]+)")
# Which set decides, if a direction was not measured on the one of the kind of sentence.
SETS: Final = (EVERYDAY, "interface", PROMPTS)
# Routes of a direction beyond these are never tried.
ROUTES_MAX: Final = 8


class Step(NamedTuple):
    """One translator in one direction."""

    engine: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.engine}:{self.source}>{self.target}"


class Route(NamedTuple):
    """Steps from one language to another."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> Route:
        """Read one: `bergamot:en>pt apertium:pt>es`; raises `ConfigError`."""
        found = [STEP.fullmatch(word) for word in text.split()]
        steps = tuple(Step(*one.group("engine", "source", "target")) for one in found if one)
        is_chain = all(one.target == other.source for one, other in pairwise(steps))
        if not steps or len(steps) != len(found) or not is_chain:
            raise ConfigError("route", f"{text!r} is no route like 'bergamot:en>pt apertium:pt>es'")
        return cls(steps)

    @property
    def direction(self) -> Direction:
        """Return where it begins and ends."""
        return self.steps[0].source, self.steps[-1].target

    @property
    def engines(self) -> frozenset[str]:
        """Return the translators that it needs."""
        return frozenset(step.engine for step in self.steps)


class Ranked(NamedTuple):
    """A route and what it was worth; None: nobody measured it."""

    route: Route
    score: Score | None


def directions(engines: Mapping[str, Collection[Direction]]) -> tuple[Direction, ...]:
    """Return every direction that these translators make together."""
    known = sorted({code for pairs in engines.values() for pair in pairs for code in pair})
    return tuple(pair for pair in permutations(known, 2)
                 if _base(pair[0]) != _base(pair[1]) and candidates(engines, pair))  # fmt: skip


def candidates(
    engines: Mapping[str, Collection[Direction]], direction: Direction
) -> tuple[Route, ...]:
    """Return the routes of a direction: direct, over one language, else over two."""
    steps = [Step(name, *pair) for name, pairs in engines.items() for pair in sorted(pairs)]
    one = [Route((step,)) for step in steps if (step.source, step.target) == direction]
    two = [Route(way) for way in _chains(engines, steps, direction, 2)]
    if one or two:
        return (*one, *two)
    return tuple(Route(way) for way in _chains(engines, steps, direction, 3))


def _chains(
    engines: Mapping[str, Collection[Direction]],
    steps: Sequence[Step],
    direction: Direction,
    length: int,
) -> Iterator[tuple[Step, ...]]:
    """Give the ways of so many steps that visit no language twice, each step worth taking."""
    ways: list[tuple[Step, ...]] = [(step,) for step in steps if step.source == direction[0]]
    for _ in range(length - 1):
        ways = [
            (*way, step) for way in ways for step in steps
            if step.source == way[-1].target and _is_new(way, step)
            and not _is_one_step(engines, way[-1], step)
        ]  # fmt: skip
    yield from (way for way in ways if way[-1].target == direction[1])


def _is_new(way: tuple[Step, ...], step: Step) -> bool:
    visited = {_base(code) for one in way for code in (one.source, one.target)}
    return _base(step.target) not in visited


def _is_one_step(engines: Mapping[str, Collection[Direction]], one: Step, other: Step) -> bool:
    """Tell whether one engine does both steps at once: it knows better how."""
    return one.engine == other.engine and (one.source, other.target) in engines[one.engine]


def ranked(
    routes: Iterable[Route], scores: Iterable[Score], kind: str = EVERYDAY
) -> tuple[Ranked, ...]:
    """Return routes of one direction, the best first for a kind of sentences."""
    routes = tuple(routes)
    by_set = _scores_of(routes, scores)
    order = (kind, *SETS, *sorted(by_set))
    decides = next((name for name in order if name in by_set), "")
    known = by_set.get(decides, {})
    found = [Ranked(route, known.get(str(route))) for route in routes]
    # Sorting keeps the order of equals: that of preference.
    found.sort(key=lambda one: (one.score is None, -one.score.chrf if one.score else 0.0,
                                len(one.route.steps)))  # fmt: skip
    return tuple(found[:ROUTES_MAX])


def _scores_of(routes: Sequence[Route], scores: Iterable[Score]) -> dict[str, dict[str, Score]]:
    """Return set -> route -> score, of these routes."""
    names = {str(route) for route in routes}
    found: dict[str, dict[str, Score]] = {}
    for score in scores:
        if score.route in names:
            found.setdefault(score.set, {})[score.route] = score
    return found


def plan(
    engines: Mapping[str, Collection[Direction]], scores: Sequence[Score], kind: str = EVERYDAY
) -> dict[Direction, tuple[Ranked, ...]]:
    """Return every direction with its routes, the best first for a kind of sentences."""
    found = {pair: ranked(candidates(engines, pair), scores, kind) for pair in directions(engines)}
    return {pair: _with_general(engines, pair, found) for pair in found}


def _with_general(
    engines: Mapping[str, Collection[Direction]],
    direction: Direction,
    found: Mapping[Direction, tuple[Ranked, ...]],
) -> tuple[Ranked, ...]:
    """Return the routes into a regional language: those of the language, which were measured.

    Where the last step's engine has the region itself it is asked for that.
    """
    source, target = direction
    general = found.get((source, _base(target)), ()) if "-" in target else ()
    regional = []
    for route, score in general:
        *before, last = route.steps
        is_known = (last.source, target) in engines[last.engine]
        end = last._replace(target=target) if is_known else last
        regional.append(Ranked(Route((*before, end)), score))
    known = {one.route for one in regional}
    return (*regional, *(one for one in found[direction] if one.route not in known))[:ROUTES_MAX]


def _base(code: str) -> str:
    return code.partition("-")[0]
