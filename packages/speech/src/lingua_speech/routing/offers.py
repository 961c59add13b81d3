"""The directions that each model of the catalogue provides: what to install for a language. Pure.

Data only; the tests compare it with the abilities of the installed models.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from lingua_speech.routing.routes import directions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lingua_speech.routing.routes import Direction, TranslationRoute


def _both(*pairs: tuple[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset({*pairs, *((target, source) for source, target in pairs)})


# Model -> the engine that uses it, and the directions it provides.
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
# Hundreds of megabytes: suggested for better quality, not for a missing direction.
LARGE: Final = frozenset({"opus-eng-fra"})

# A route has at most three steps.
MODELS_MAX: Final = 3


def pairs_with(
    installed: Mapping[str, Collection[Direction]], models: Collection[str]
) -> dict[str, set[Direction]]:
    """Return the directions of each engine with these models installed as well."""
    found = {name: set(pairs) for name, pairs in installed.items()}
    for model in models:
        engine, pairs = OFFERS[model]
        found.setdefault(engine, set()).update(pairs)
    return found


def to_install(direction: Direction, installed: Collection[Direction] = ()) -> tuple[str, ...]:
    """Return the fewest models, without large ones, that provide a direction; empty if none do."""
    for count in range(1, MODELS_MAX + 1):
        for models in combinations([name for name in OFFERS if name not in LARGE], count):
            if direction in directions(pairs_with({"": installed}, models)):
                return models
    return ()


def missing_models(
    route: TranslationRoute, installed: Mapping[str, Collection[Direction]]
) -> tuple[str, ...]:
    """Return the models that a route lacks; empty if it is complete or cannot be completed."""
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
    """Return the fewest models of one engine that provide a direction."""
    own = [model for model, (user, _) in OFFERS.items() if user == engine]
    for count in range(1, MODELS_MAX + 1):
        for models in combinations(own, count):
            if direction in directions(pairs_with({}, models)):
                return models
    return ()
