"""The router: several translators as one; each sentence takes the best installed route.

For each direction it knows the routes that its translators offer together (direct, or through a
pivot language) and takes the one with the best measured score (`routing/scores.tsv`, written by
`lingua bench translation`). If a translation fails or cannot be right (`routing/guards.py`), the
sentence takes the next route. Addresses, codes and account names are kept on every route. A
translator that cannot be loaded is left out, which is reported on stderr; `opus` is left out
silently if it is not requested and none of its models is installed.

| option | default | what it is |
|---|---|---|
| use | bergamot+small+opus+apertium | the translators; their order counts without a score |
| NAME.OPTION | | an option of one of them: `apertium.pairs=en-es` |
| scores | | another table than the package's |
| tries | 3 | how many routes a sentence may try |
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lingua_speech import plugins
from lingua_speech.engine import (
    About,
    EngineError,
    ModelMissing,
    Rendered,
    Stopped,
    Translator,
    Watch,
    text_of,
)
from lingua_speech.engines import options as reading
from lingua_speech.engines import opus, sentences
from lingua_speech.engines.language_pairs import matching_pairs
from lingua_speech.plugins import Spec
from lingua_speech.routing import guards, kinds, protected, routes, table
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_speech.routing.routes import Direction, RankedRoute, TranslationRoute

KNOWN: Final = {"use": "bergamot+small+opus+apertium", "scores": "", "tries": "3"}
NAME: Final = "router"


def make(options: Mapping[str, str]) -> Router:
    """Load the translators; raises `ModelMissing` if none can be loaded."""
    settings = settings_of(options)
    engines: dict[str, Translator] = {}
    missing: list[ModelMissing] = []
    for spec in settings.members:
        try:
            engines[spec.name] = cast("Translator", plugins.make(spec))
        except ModelMissing as error:
            missing.append(error)
            print(f"{NAME}: without {spec.name}: {error.message}", file=sys.stderr)  # noqa: T201
    if not engines:
        raise missing[0]
    return Router(engines, settings.scores, settings.tries)


class RouterSettings(NamedTuple):
    """The options of a router, read and checked."""

    members: tuple[Spec, ...]
    scores: tuple[table.Score, ...]
    tries: int


def default_members() -> tuple[str, ...]:
    """Return the translators of a router without options; `opus` only if it is installed."""
    names = KNOWN["use"].split("+")
    return tuple(name for name in names if name != "opus" or opus.is_installed())


def settings_of(options: Mapping[str, str]) -> RouterSettings:
    """Read the options of a router; raises `ConfigError`."""
    names = reading.listed({**KNOWN, **options}, "use")
    if not names or NAME in names or len(set(names)) < len(names):
        raise ConfigError(
            "engines", f"use={options.get('use')!r} must name other translators, each once"
        )
    used = names if "use" in options else default_members()
    own, members = dict(options), []
    for name in names:
        own, of_it = reading.family(own, name)
        if name in used:
            members.append(Spec("mt", name, of_it))
    taken = plugins.take(own, KNOWN)
    for spec in members:
        plugins.check(spec)
    scores = table.load(Path(taken["scores"]).expanduser() if taken["scores"] else None)
    return RouterSettings(
        tuple(members), scores, reading.whole(taken, "tries", 1, routes.ROUTES_MAX)
    )


class RouteAttempt(NamedTuple):
    """The translation of a sentence on one route, and the findings about it."""

    text: str
    route: TranslationRoute
    found: tuple[str, ...]

    def without(self, name: str) -> RouteAttempt:
        """Return the attempt without one of its findings."""
        return self._replace(found=tuple(one for one in self.found if one != name))


class Router:
    """Translates each sentence on the best route of its translators."""

    def __init__(
        self, engines: Mapping[str, Translator], scores: Sequence[table.Score], tries: int
    ) -> None:
        self._engines = engines
        self._tries = tries
        self._abouts = {name: engine.about() for name, engine in engines.items()}
        pairs = {name: pairs_of(about) for name, about in self._abouts.items()}
        # Kind of sentence -> direction -> its routes, the best first.
        self._routes = {
            kind: routes.plan(pairs, scores, kind) for kind in (kinds.EVERYDAY, kinds.PROMPTS)
        }

    def about(self) -> About:
        """Return the abilities of all translators together."""
        return About(
            engine=NAME,
            model="+".join(self._engines),
            licence="; ".join(f"{name}: {about.licence}" for name, about in self._abouts.items()),
            pairs=tuple(sorted(self._routes[kinds.EVERYDAY])),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> Rendered:
        """Translate a text, each sentence on the best route that works."""
        # One kind for the whole text, because its sentences rarely differ in kind.
        routes_of = self._routes[kinds.kind_of(text, source)]
        ranked = routes_of[self._direction(source, target)]
        masked = protected.mask(sentences.plain(text), source)
        translated: list[str] = []
        used: Counter[str] = Counter()
        remarks: dict[str, None] = {}
        pieces = sentences.split(masked.text)
        for sentence in pieces:
            done = self._sentence(sentence, ranked, watch)
            translated.append(done.text)
            used[str(done.route)] += 1
            remarks |= dict.fromkeys(done.found)
        route = used.most_common(1)[0][0] if used else ""
        whole = guards.joined(pieces, translated)
        return Rendered(protected.restore(whole, masked.kept), route, tuple(remarks))

    def close(self) -> None:
        """Close all translators."""
        for engine in self._engines.values():
            engine.close()

    def _direction(self, source: str, target: str) -> Direction:
        for pair in matching_pairs(source, target):
            if pair in self._routes[kinds.EVERYDAY]:
                return pair
        raise EngineError("UNSUPPORTED_FEATURE", f"no route from {source!r} to {target!r}")

    def _sentence(self, sentence: str, ranked: Sequence[RankedRoute], watch: Watch) -> RouteAttempt:
        if not sentences.is_speakable(protected.STAND_IN.sub("", sentence)):
            return RouteAttempt(sentence, ranked[0].route, ())
        best = self._best(sentence, ranked[: self._tries], watch)
        if guards.SPANS in best.found:
            best = self._translate_around(sentence, best, watch)
        if guards.LOOP in best.found:
            cut = guards.without_loops(sentence, best.text)
            best = best._replace(text=cut, found=(*best.found, guards.REPAIRED))
        if guards.EMPTY in best.found:
            # No translator has a translation: the source can at least be read.
            return best._replace(text=sentence, found=(*best.found, guards.COPIED))
        return best

    def _best(self, sentence: str, ranked: Sequence[RankedRoute], watch: Watch) -> RouteAttempt:
        """Return the first plausible attempt, else the least bad one."""
        tried: list[RouteAttempt] = []
        failed: list[EngineError] = []
        for candidate in ranked:
            try:
                attempt = self._attempt(sentence, candidate.route, watch)
            except Stopped:
                raise
            except EngineError as error:
                failed.append(error)
                continue
            tried.append(attempt)
            if not _faults(attempt):
                break
        if not tried:
            raise failed[-1]
        if all(guards.NAMES in one.found for one in tried) and len(tried) > 1:
            # All routes agree on another name, so it is probably right.
            tried = [one.without(guards.NAMES) for one in tried]
        best = min(tried, key=lambda one: guards.weight(_faults(one)))
        before = tried[: tried.index(best)]
        # An engine that only reports uncertainty did its work.
        is_worse = any(set(_faults(one)) - {guards.UNSURE} for one in before)
        if not is_worse and not (failed and best.route != ranked[0].route):
            return best
        return best._replace(found=(guards.FALLBACK, *best.found))

    def _attempt(self, sentence: str, route: TranslationRoute, watch: Watch) -> RouteAttempt:
        direction = route.direction
        output, said = self._follow(sentence, route, watch)
        repaired = guards.with_numbers(sentence, output, direction)
        found = guards.findings(sentence, repaired, direction)
        repair = (guards.REPAIRED,) if repaired != output else ()
        return RouteAttempt(repaired, route, (*repair, *found, *said))

    def _follow(
        self, sentence: str, route: TranslationRoute, watch: Watch
    ) -> tuple[str, tuple[str, ...]]:
        """Return the translation of a sentence on a route, and the remarks of the engines."""
        remarks: dict[str, None] = {}
        for step in route.steps:
            watch.check()
            engine = self._engines[step.engine]
            said = engine.translate(sentence, step.source, step.target, watch)
            sentence = " ".join(text_of(said).split())
            remarks |= dict.fromkeys(said.remarks if isinstance(said, Rendered) else ())
        return sentence, tuple(remarks)

    def _translate_around(self, sentence: str, best: RouteAttempt, watch: Watch) -> RouteAttempt:
        """Translate only the text between the protected spans, so that these cannot change."""
        said = [
            part
            if not sentences.is_speakable(protected.STAND_IN.sub("", part))
            else self._follow(part, best.route, watch)[0]
            for part in protected.parts(sentence)
        ]
        found = (*best.without(guards.SPANS).found, guards.REPAIRED)
        return best._replace(text=" ".join(filter(None, said)), found=found)


def _faults(attempt: RouteAttempt) -> tuple[str, ...]:
    return tuple(name for name in attempt.found if name in guards.WEIGHTS)


def pairs_of(about: About) -> tuple[Direction, ...]:
    """Return the directions of a translator; languages without pairs mean all directions."""
    known = about.languages
    return about.pairs or tuple((one, other) for one in known for other in known if one != other)
