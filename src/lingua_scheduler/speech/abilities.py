"""What a set of loaded engines can do together, and which of them does what. Pure.

Made of what the engines say of themselves (`About`), never of what was configured: a node declares
this, and the pipeline works by it, so the two cannot differ. Of several engines in one role the
first that has a language does it. Who knows `en` knows `en-us`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.languages import base_of
from lingua_scheduler.messages.shared import InstalledModel, InstalledService

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_scheduler.messages.shared import ServiceType
    from lingua_scheduler.speech.engine import About, Role

# What an id may be made of; the model of a translator may be a list of directions.
WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# The roles that are services of the protocol.
SERVICES: dict[Role, ServiceType] = {"asr": "asr", "mt": "nmt", "tts": "tts"}


class Engine(NamedTuple):
    """A loaded engine: where it is in its crew, and what it says of itself."""

    number: int
    about: About
    role: Role
    # Which crew that is, if it is not the one of its role.
    stage: str = ""

    @property
    def service_id(self) -> str:
        """Return its name as the scheduler knows it."""
        return name_of(self.about)


class Route(NamedTuple):
    """Who translates, and the two languages as that engine names them."""

    engine: Engine
    source: str
    target: str


def name_of(about: About) -> str:
    """Return an engine and its model as one word that an id may be."""
    model = about.model if WORD.fullmatch(about.model) else ""
    if not model or model.startswith(about.engine):
        return model or about.engine
    return f"{about.engine}-{model}"


class Abilities:
    """What the engines of one node can do."""

    def __init__(self, engines: dict[Role, Sequence[Engine]]) -> None:
        self._of = {role: tuple(found) for role, found in engines.items()}

    def engines(self, role: Role) -> tuple[Engine, ...]:
        """Return the engines in a role, the preferred one first."""
        return self._of.get(role, ())

    def recogniser(self, languages: Sequence[str]) -> Engine | None:
        """Return who understands all of these languages, else who understands most of them."""
        best, most = None, 0
        for engine in self.engines("asr"):
            if not languages:
                return engine
            known = sum(1 for code in languages if closest(engine.about.languages, code))
            if known > most:
                best, most = engine, known
        return best

    def route(self, source: str, target: str) -> Route | None:
        """Return who translates from one language into the other."""
        for engine in self.engines("mt"):
            pairs = engine.about.pairs
            if not pairs:
                known = engine.about.languages
                one, other = closest(known, source), closest(known, target)
                if one and other:
                    return Route(engine, one, other)
            for one, other in _spellings(source, target):
                if (one, other) in pairs:
                    return Route(engine, one, other)
        return None

    def translates_itself(self, source: str, target: str) -> str:
        """Return the target as the recogniser names it if it translates by itself, else ''."""
        engine = self.recogniser((source,))
        if engine is None:
            return ""
        for one, other in _spellings(source, target):
            if (one, other) in engine.about.pairs:
                return other
        return ""

    def voice(self, language: str) -> tuple[Engine, str] | None:
        """Return who speaks a language, and the language as that engine names it."""
        return next(iter(self.voices(language)), None)

    def voices(self, language: str) -> tuple[tuple[Engine, str], ...]:
        """Return all who speak a language, the preferred one first."""
        return tuple(
            (engine, known)
            for engine in self.engines("tts")
            if (known := closest(engine.about.languages, language))
        )

    def serves(self, source: str, target: str) -> bool:
        """Tell whether speech in one language can be given as text in the other."""
        if self.recogniser((source,)) is None:
            return False
        if base_of(source) == base_of(target) or self.route(source, target):
            return True
        return bool(self.translates_itself(source, target))

    def sources(self, target: str) -> tuple[str, ...]:
        """Return the languages that can be given in another one; none means any."""
        return tuple(code for code in self.heard() if self.serves(code, target))

    def heard(self) -> tuple[str, ...]:
        """Return the languages understood; none means any."""
        return _union(engine.about.languages for engine in self.engines("asr"))

    def spoken(self) -> tuple[str, ...]:
        """Return the languages with a voice; none means any."""
        return _union(engine.about.languages for engine in self.engines("tts"))

    def pairs(self) -> tuple[str, ...]:
        """Return every direction served, as `en>es`; hearing without translating is `en>en`."""
        translated = {pair for engine in self.engines("mt") for pair in self._pairs_of(engine)}
        itself = {pair for engine in self.engines("asr") for pair in engine.about.pairs}
        directions = translated | itself
        heard = self.heard() or tuple({source for source, _ in directions})
        found = {(code, code) for code in heard}
        found |= {pair for pair in directions if self.serves(*pair)}
        return tuple(sorted(f"{source}>{target}" for source, target in found))

    def _pairs_of(self, engine: Engine) -> set[tuple[str, str]]:
        """Return an engine's directions; one that names languages only knows each into each."""
        if engine.about.pairs:
            return set(engine.about.pairs)
        known = engine.about.languages or _union((self.heard(), self.spoken()))
        return {(one, other) for one in known for other in known if one != other}

    @property
    def translates(self) -> bool:
        """Tell whether anything here translates: an engine for it, or a recogniser by itself."""
        return bool(self.engines("mt")) or any(one.about.pairs for one in self.engines("asr"))

    def services(self) -> tuple[InstalledService, ...]:
        """Return the services to declare; a recogniser that translates alone is `nmt` too."""
        found = [
            _service(engine, kind)
            for role, kind in SERVICES.items()
            for engine in self.engines(role)
        ]
        if self.translates and not self.engines("mt"):
            found += [_service(one, "nmt") for one in self.engines("asr") if one.about.pairs]
        return tuple(found)

    def models(self) -> tuple[InstalledModel, ...]:
        """Return the models to declare, one entry for each engine."""
        return tuple(
            InstalledModel(
                model_id=engine.service_id,
                kind=SERVICES.get(role, role),
                version=engine.about.version,
                enabled=True,
            )
            for role in self._of
            for engine in self.engines(role)
            if role != "file"
        )


def closest(known: Sequence[str], code: str) -> str:
    """Return a language as who knows these (none: any) names it; '' if it is not among them."""
    if not known or code in known:
        return code
    return base_of(code) if base_of(code) in known else ""


def _spellings(source: str, target: str) -> Iterable[tuple[str, str]]:
    """Give a direction as it may be named, the most exact first."""
    for one in dict.fromkeys((source, base_of(source))):
        for other in dict.fromkeys((target, base_of(target))):
            yield one, other


def _union(several: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return all languages in order; none if one of them stands for any."""
    found: dict[str, None] = {}
    for codes in several:
        if not codes:
            return ()
        found |= dict.fromkeys(codes)
    return tuple(found)


def _service(engine: Engine, kind: ServiceType) -> InstalledService:
    about = engine.about
    return InstalledService(
        service_id=engine.service_id,
        type=kind,
        device=about.device,
        version=about.version or None,
        model_id=about.model[:128] or None,
        engine=about.engine,
    )
