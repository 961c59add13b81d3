"""The router: several translators as one, each sentence by the best way that is installed.

For each direction it knows the ways that its translators make together (direct, over another
language) and takes the one that was measured to be best (`routing/scores.tsv`, written by `lingua
bench translation`). A sentence whose translation fails or cannot be right (`routing/guards.py`)
goes the next way; addresses, codes and names of accounts come through all of them. A translator
that cannot be loaded is left out, and that is said on stderr; of `opus`, if nobody named it and
none of its models is installed, nothing is said.

| option | default | what it is |
|---|---|---|
| use | bergamot+small+opus+apertium | the translators, the preferred first if none was measured |
| NAME.OPTION | | an option of one of them: `apertium.pairs=en-es` |
| scores | | another table than the package's |
| tries | 3 | how many ways a sentence may go |
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.languages import base_of
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import (
    About,
    EngineError,
    ModelMissing,
    Rendered,
    Stopped,
    Translator,
    Watch,
    text_of,
)
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.engines import opus, sentences
from lingua_scheduler.speech.plugins import Spec
from lingua_scheduler.speech.routing import guards, kinds, protected, routes, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_scheduler.speech.routing.routes import Direction, Ranked, Route

KNOWN: Final = {"use": "bergamot+small+opus+apertium", "scores": "", "tries": "3"}
NAME: Final = "router"


def make(options: Mapping[str, str]) -> Router:
    """Load the translators; raises `ModelMissing` if none of them can be."""
    team = team_of(options)
    engines: dict[str, Translator] = {}
    missing: list[ModelMissing] = []
    for spec in team.members:
        try:
            engines[spec.name] = cast("Translator", plugins.make(spec))
        except ModelMissing as error:
            missing.append(error)
            print(f"{NAME}: without {spec.name}: {error.message}", file=sys.stderr)  # noqa: T201
    if not engines:
        raise missing[0]
    return Router(engines, team.scores, team.tries)


class Team(NamedTuple):
    """What a router is made of."""

    members: tuple[Spec, ...]
    scores: tuple[table.Score, ...]
    tries: int


def default_members() -> tuple[str, ...]:
    """Return the translators of a router that is told nothing: what is large only if installed."""
    names = KNOWN["use"].split("+")
    return tuple(name for name in names if name != "opus" or opus.is_installed())


def team_of(options: Mapping[str, str]) -> Team:
    """Read the options of a router; raises `ConfigError`."""
    names = reading.listed({**KNOWN, **options}, "use")
    if not names or NAME in names or len(set(names)) < len(names):
        raise ConfigError("engines", f"use={options.get('use')!r} must be other translators, once")
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
    return Team(tuple(members), scores, reading.whole(taken, "tries", 1, routes.ROUTES_MAX))


class Attempt(NamedTuple):
    """A sentence that went one way."""

    text: str
    route: Route
    found: tuple[str, ...]

    def without(self, name: str) -> Attempt:
        """Return it with one thing less found."""
        return self._replace(found=tuple(one for one in self.found if one != name))


class Router:
    """Translates by the best way of those that its translators make."""

    def __init__(
        self, engines: Mapping[str, Translator], scores: Sequence[table.Score], tries: int
    ) -> None:
        self._engines = engines
        self._tries = tries
        self._abouts = {name: engine.about() for name, engine in engines.items()}
        pairs = {name: pairs_of(about) for name, about in self._abouts.items()}
        # For each kind of sentences every direction with its routes, the best first.
        self._routes = {
            kind: routes.plan(pairs, scores, kind) for kind in (kinds.EVERYDAY, kinds.PROMPTS)
        }

    def about(self) -> About:
        """Tell what its translators can do together."""
        return About(
            engine=NAME,
            model="+".join(self._engines),
            licence="; ".join(f"{name}: {about.licence}" for name, about in self._abouts.items()),
            pairs=tuple(sorted(self._routes[kinds.EVERYDAY])),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> Rendered:
        """Say it in another language, each sentence by the best way that works."""
        # Of the whole text: its sentences are hardly of two kinds.
        ways_of = self._routes[kinds.kind_of(text, source)]
        ways = ways_of[self._direction(source, target)]
        masked = protected.mask(sentences.plain(text), source)
        said: list[str] = []
        taken: Counter[str] = Counter()
        remarks: dict[str, None] = {}
        pieces = sentences.split(masked.text)
        for sentence in pieces:
            done = self._sentence(sentence, ways, watch)
            said.append(done.text)
            taken[str(done.route)] += 1
            remarks |= dict.fromkeys(done.found)
        route = taken.most_common(1)[0][0] if taken else ""
        whole = guards.joined(pieces, said)
        return Rendered(protected.restore(whole, masked.kept), route, tuple(remarks))

    def close(self) -> None:
        """Close all of them."""
        for engine in self._engines.values():
            engine.close()

    def _direction(self, source: str, target: str) -> Direction:
        for pair in ((source, target), (base_of(source), target), (source, base_of(target)),
                     (base_of(source), base_of(target))):  # fmt: skip
            if pair in self._routes[kinds.EVERYDAY]:
                return pair
        raise EngineError("UNSUPPORTED_FEATURE", f"no way from {source!r} to {target!r}")

    def _sentence(self, sentence: str, ways: Sequence[Ranked], watch: Watch) -> Attempt:
        if not sentences.is_speakable(protected.STAND_IN.sub("", sentence)):
            return Attempt(sentence, ways[0].route, ())
        best = self._best(sentence, ways[: self._tries], watch)
        if guards.SPANS in best.found:
            best = self._around(sentence, best, watch)
        if guards.LOOP in best.found:
            cut = guards.uncircled(sentence, best.text)
            best = best._replace(text=cut, found=(*best.found, guards.REPAIRED))
        if guards.EMPTY in best.found:
            # Nobody has a word for it: as it is it can at least be read.
            return best._replace(text=sentence, found=(*best.found, guards.COPIED))
        return best

    def _best(self, sentence: str, ways: Sequence[Ranked], watch: Watch) -> Attempt:
        """Return the first attempt that is plausible, else the least bad one."""
        tried: list[Attempt] = []
        failed: list[EngineError] = []
        for way in ways:
            try:
                attempt = self._attempt(sentence, way.route, watch)
            except Stopped:
                raise
            except EngineError as error:
                failed.append(error)
                continue
            tried.append(attempt)
            if not _bad(attempt):
                break
        if not tried:
            raise failed[-1]
        if all(guards.NAMES in one.found for one in tried) and len(tried) > 1:
            # They agree that it is called otherwise there.
            tried = [one.without(guards.NAMES) for one in tried]
        best = min(tried, key=lambda one: guards.weight(_bad(one)))
        before = tried[: tried.index(best)]
        # An engine that says itself that others know better did its work.
        is_worse = any(set(_bad(one)) - {guards.UNSURE} for one in before)
        if not is_worse and not (failed and best.route != ways[0].route):
            return best
        return best._replace(found=(guards.FALLBACK, *best.found))

    def _attempt(self, sentence: str, route: Route, watch: Watch) -> Attempt:
        direction = route.direction
        output, said = self._along(sentence, route, watch)
        repaired = guards.with_numbers(sentence, output, direction)
        found = guards.findings(sentence, repaired, direction)
        repair = (guards.REPAIRED,) if repaired != output else ()
        return Attempt(repaired, route, (*repair, *found, *said))

    def _along(self, sentence: str, route: Route, watch: Watch) -> tuple[str, tuple[str, ...]]:
        """Return what a sentence became, and what the engines remarked on the way."""
        remarks: dict[str, None] = {}
        for step in route.steps:
            watch.check()
            engine = self._engines[step.engine]
            said = engine.translate(sentence, step.source, step.target, watch)
            sentence = " ".join(text_of(said).split())
            remarks |= dict.fromkeys(said.remarks if isinstance(said, Rendered) else ())
        return sentence, tuple(remarks)

    def _around(self, sentence: str, best: Attempt, watch: Watch) -> Attempt:
        """Translate what is between the protected pieces, so that nothing can happen to these."""
        said = [
            part if not sentences.is_speakable(protected.STAND_IN.sub("", part))
            else self._along(part, best.route, watch)[0]
            for part in protected.parts(sentence)
        ]  # fmt: skip
        found = (*best.without(guards.SPANS).found, guards.REPAIRED)
        return best._replace(text=" ".join(filter(None, said)), found=found)


def _bad(attempt: Attempt) -> tuple[str, ...]:
    return tuple(name for name in attempt.found if name in guards.WEIGHTS)


def pairs_of(about: About) -> tuple[Direction, ...]:
    """Return a translator's directions; one that names languages knows each into each."""
    known = about.languages
    return about.pairs or tuple((one, other) for one in known for other in known if one != other)
