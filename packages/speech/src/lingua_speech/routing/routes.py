"""The routes that translators form together from one language to another, the best first. Pure.

A step is one translator in one direction. A route is one step or several, each starting where the
last one ended. Measured routes come first, the better one before the worse; the others follow, the
shorter one first. The score for the kind of sentence counts (`kinds`): the best route for prompts
need not be the best for conversation.
"""

from __future__ import annotations

import re
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.routing.kinds import EVERYDAY, PROMPTS
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lingua_speech.routing.table import Score

Direction = tuple[str, str]

STEP = re.compile(r"(?P<engine>[\w.-]+):(?P<source>[a-z0-9-]+)>(?P<target>[a-z0-9-]+)")
# The order of sets for a direction that was not measured on the set of its kind.
SETS: Final = (EVERYDAY, "interface", PROMPTS)
# The maximum number of routes tried for a direction.
ROUTES_MAX: Final = 8


class RouteStep(NamedTuple):
    """One translator in one direction."""

    engine: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.engine}:{self.source}>{self.target}"


class TranslationRoute(NamedTuple):
    """Steps from one language to another."""

    steps: tuple[RouteStep, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> TranslationRoute:
        """Parse a route, such as `bergamot:en>pt apertium:pt>es`; raises `ConfigError`."""
        found = [STEP.fullmatch(word) for word in text.split()]
        steps = tuple(RouteStep(*one.group("engine", "source", "target")) for one in found if one)
        is_chain = all(one.target == other.source for one, other in pairwise(steps))
        if not steps or len(steps) != len(found) or not is_chain:
            raise ConfigError(
                "route", f"{text!r} is not a route such as 'bergamot:en>pt apertium:pt>es'"
            )
        return cls(steps)

    @property
    def direction(self) -> Direction:
        """Return the first and the last language."""
        return self.steps[0].source, self.steps[-1].target

    @property
    def engines(self) -> frozenset[str]:
        """Return the required translators."""
        return frozenset(step.engine for step in self.steps)


class RankedRoute(NamedTuple):
    """A route and its score; None if it was not measured."""

    route: TranslationRoute
    score: Score | None


def directions(engines: Mapping[str, Collection[Direction]]) -> tuple[Direction, ...]:
    """Return every direction that these translators cover together."""
    known = sorted({code for pairs in engines.values() for pair in pairs for code in pair})
    return tuple(
        pair
        for pair in permutations(known, 2)
        if _base(pair[0]) != _base(pair[1]) and candidates(engines, pair)
    )


def candidates(
    engines: Mapping[str, Collection[Direction]], direction: Direction
) -> tuple[TranslationRoute, ...]:
    """Return the routes of a direction: direct or by one intermediate language, else by two."""
    steps = [RouteStep(name, *pair) for name, pairs in engines.items() for pair in sorted(pairs)]
    one = [TranslationRoute((step,)) for step in steps if (step.source, step.target) == direction]
    two = [TranslationRoute(chain) for chain in _chains(engines, steps, direction, 2)]
    if one or two:
        return (*one, *two)
    return tuple(TranslationRoute(chain) for chain in _chains(engines, steps, direction, 3))


def _chains(
    engines: Mapping[str, Collection[Direction]],
    steps: Sequence[RouteStep],
    direction: Direction,
    length: int,
) -> Iterator[tuple[RouteStep, ...]]:
    """Yield the routes of this many steps that use no language twice and no needless step."""
    chains: list[tuple[RouteStep, ...]] = [(step,) for step in steps if step.source == direction[0]]
    for _ in range(length - 1):
        chains = [
            (*chain, step)
            for chain in chains
            for step in steps
            if step.source == chain[-1].target
            and _is_new(chain, step)
            and not _is_one_step(engines, chain[-1], step)
        ]
    yield from (chain for chain in chains if chain[-1].target == direction[1])


def _is_new(chain: tuple[RouteStep, ...], step: RouteStep) -> bool:
    visited = {_base(code) for one in chain for code in (one.source, one.target)}
    return _base(step.target) not in visited


def _is_one_step(
    engines: Mapping[str, Collection[Direction]], one: RouteStep, other: RouteStep
) -> bool:
    """Tell whether one engine covers both steps itself, which is better."""
    return one.engine == other.engine and (one.source, other.target) in engines[one.engine]


def ranked(
    routes: Iterable[TranslationRoute], scores: Iterable[Score], kind: str = EVERYDAY
) -> tuple[RankedRoute, ...]:
    """Return the routes of one direction, the best for a kind of sentence first."""
    routes = tuple(routes)
    by_set = _scores_of(routes, scores)
    order = (kind, *SETS, *sorted(by_set))
    decides = next((name for name in order if name in by_set), "")
    known = by_set.get(decides, {})
    found = [RankedRoute(route, known.get(str(route))) for route in routes]
    # The sort is stable: equal routes stay in the order of preference.
    found.sort(key=_rank)
    return tuple(found[:ROUTES_MAX])


def _rank(one: RankedRoute) -> tuple[bool, float, int]:
    return one.score is None, -one.score.chrf if one.score else 0.0, len(one.route.steps)


def _scores_of(
    routes: Sequence[TranslationRoute], scores: Iterable[Score]
) -> dict[str, dict[str, Score]]:
    """Return set -> route -> score of these routes."""
    names = {str(route) for route in routes}
    found: dict[str, dict[str, Score]] = {}
    for score in scores:
        if score.route in names:
            found.setdefault(score.set, {})[score.route] = score
    return found


def plan(
    engines: Mapping[str, Collection[Direction]], scores: Sequence[Score], kind: str = EVERYDAY
) -> dict[Direction, tuple[RankedRoute, ...]]:
    """Return every direction with its routes, the best for a kind of sentence first."""
    found = {pair: ranked(candidates(engines, pair), scores, kind) for pair in directions(engines)}
    return {pair: _with_general(engines, pair, found) for pair in found}


def _with_general(
    engines: Mapping[str, Collection[Direction]],
    direction: Direction,
    found: Mapping[Direction, tuple[RankedRoute, ...]],
) -> tuple[RankedRoute, ...]:
    """Return the routes of a direction; those of a regional target follow the general language.

    The general routes were measured. If the engine of the last step has the region, it is used.
    """
    source, target = direction
    general = found.get((source, _base(target)), ()) if "-" in target else ()
    regional = []
    for route, score in general:
        *before, last = route.steps
        is_known = (last.source, target) in engines[last.engine]
        end = last._replace(target=target) if is_known else last
        regional.append(RankedRoute(TranslationRoute((*before, end)), score))
    known = {one.route for one in regional}
    return (*regional, *(one for one in found[direction] if one.route not in known))[:ROUTES_MAX]


def _base(code: str) -> str:
    return code.partition("-")[0]
