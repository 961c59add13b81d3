"""Which models of the catalogue bring which directions: what to install for a language. Pure.

Only data; that it is true is shown by the tests, which look at what the installed models serve.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from lingua_scheduler.speech.routing.routes import directions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lingua_scheduler.speech.routing.routes import Direction, Route


def _both(*pairs: tuple[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset({*pairs, *((target, source) for source, target in pairs)})


# Model -> the engine that uses it, and the directions it brings.
OFFERS: Final[Mapping[str, tuple[str, frozenset[tuple[str, str]]]]] = {
    "bergamot-eng-por": ("bergamot", _both(("en", "pt"))),
    "apertium-eng-spa": ("apertium", _both(("en", "es"))),
    "apertium-fra-spa": ("apertium", _both(("fr", "es"))),
    "apertium-spa-por": ("apertium", _both(("es", "pt"))),
    "apertium-spa-ita": ("apertium", _both(("es", "it"))),
    "apertium-eng-cat": ("apertium", _both(("en", "ca"))),
    "argos-zho-eng": ("opus", frozenset({("zh", "en")})),
    "opus-eng-fra": ("opus", _both(("en", "fr"))),
}
# Hundreds of megabytes: for who wants it better, not for who only wants it at all.
LARGE: Final = frozenset({"opus-eng-fra"})

# A way has three steps at most.
MODELS_MAX: Final = 3


def pairs_with(
    installed: Mapping[str, Collection[Direction]], models: Collection[str]
) -> dict[str, set[Direction]]:
    """Return the directions of each engine if these models were installed, too."""
    found = {name: set(pairs) for name, pairs in installed.items()}
    for model in models:
        engine, pairs = OFFERS[model]
        found.setdefault(engine, set()).update(pairs)
    return found


def to_install(direction: Direction, installed: Collection[Direction] = ()) -> tuple[str, ...]:
    """Return the fewest models, no large one, that bring a direction; none: nothing does."""
    for count in range(1, MODELS_MAX + 1):
        for models in combinations([name for name in OFFERS if name not in LARGE], count):
            if direction in directions(pairs_with({"": installed}, models)):
                return models
    return ()


def bringing(route: Route, installed: Mapping[str, Collection[Direction]]) -> tuple[str, ...]:
    """Return the models that a route lacks; none: it is there, or nothing brings it."""
    found: dict[str, None] = {}
    for engine, source, target in route.steps:
        if (source, target) in installed.get(engine, ()):
            continue
        models = _models_for(engine, (source, target))
        if not models:
            return ()
        found |= dict.fromkeys(models)
    return tuple(found)


def _models_for(engine: str, direction: Direction) -> tuple[str, ...]:
    """Return the fewest models of one engine with which it does a direction by itself."""
    own = [model for model, (user, _) in OFFERS.items() if user == engine]
    for count in range(1, MODELS_MAX + 1):
        for models in combinations(own, count):
            if direction in directions(pairs_with({}, models)):
                return models
    return ()
