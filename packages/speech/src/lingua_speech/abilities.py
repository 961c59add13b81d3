"""The combined abilities of a set of loaded engines, and the engine for each task. Pure.

They are derived from what the engines report (`About`), never from the configuration. The node
declares them and the pipeline follows them, so the two cannot differ. Of several engines in one
role, the first that has a language is used. An engine that knows `en` also serves `en-us`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lingua_wire.languages import base_of
from lingua_wire.shared import InstalledModel, InstalledService

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_speech.engine import About, Role
    from lingua_wire.shared import ServiceType

# The form of an id; the model of a translator may be a list of directions, which does not match.
WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# The roles that are services of the protocol.
SERVICES: dict[Role, ServiceType] = {"asr": "asr", "mt": "nmt", "tts": "tts"}


class LoadedEngine(NamedTuple):
    """A loaded engine: its index in its worker pool, and what it reports about itself."""

    number: int
    about: About
    role: Role
    # The stage of its worker pool, if it is not the stage of its role.
    stage: str = ""

    @property
    def service_id(self) -> str:
        """Return its service id in the protocol."""
        return name_of(self.about)


class TranslatorMatch(NamedTuple):
    """A translator for a direction, and the two languages as this engine names them."""

    engine: LoadedEngine
    source: str
    target: str


def name_of(about: About) -> str:
    """Return the name of an engine and its model in the form of an id."""
    model = about.model if WORD.fullmatch(about.model) else ""
    if not model or model.startswith(about.engine):
        return model or about.engine
    return f"{about.engine}-{model}"


class Abilities:
    """The abilities of the engines of one node."""

    def __init__(self, engines: dict[Role, Sequence[LoadedEngine]]) -> None:
        self._of = {role: tuple(found) for role, found in engines.items()}

    def engines(self, role: Role) -> tuple[LoadedEngine, ...]:
        """Return the engines in a role, the preferred one first."""
        return self._of.get(role, ())

    def recogniser(self, languages: Sequence[str]) -> LoadedEngine | None:
        """Return the recogniser that knows all of these languages, else most of them."""
        best, most = None, 0
        for engine in self.engines("asr"):
            if not languages:
                return engine
            known = sum(1 for code in languages if closest(engine.about.languages, code))
            if known > most:
                best, most = engine, known
        return best

    def route(self, source: str, target: str) -> TranslatorMatch | None:
        """Return the translator for a direction, if any."""
        for engine in self.engines("mt"):
            pairs = engine.about.pairs
            if not pairs:
                known = engine.about.languages
                one, other = closest(known, source), closest(known, target)
                if one and other:
                    return TranslatorMatch(engine, one, other)
            for one, other in _spellings(source, target):
                if (one, other) in pairs:
                    return TranslatorMatch(engine, one, other)
        return None

    def recogniser_target(self, source: str, target: str) -> str:
        """Return the target as the recogniser names it if it can translate, else ''."""
        engine = self.recogniser((source,))
        if engine is None:
            return ""
        for one, other in _spellings(source, target):
            if (one, other) in engine.about.pairs:
                return other
        return ""

    def voice(self, language: str) -> tuple[LoadedEngine, str] | None:
        """Return the preferred voice for a language, and the language as this engine names it."""
        return next(iter(self.voices(language)), None)

    def voices(self, language: str) -> tuple[tuple[LoadedEngine, str], ...]:
        """Return all voices for a language, the preferred one first."""
        return tuple(
            (engine, known)
            for engine in self.engines("tts")
            if (known := closest(engine.about.languages, language))
        )

    def serves(self, source: str, target: str) -> bool:
        """Tell whether speech in one language can become text in the other."""
        if self.recogniser((source,)) is None:
            return False
        if base_of(source) == base_of(target) or self.route(source, target):
            return True
        return bool(self.recogniser_target(source, target))

    def sources(self, target: str) -> tuple[str, ...]:
        """Return the languages that can be translated into another one; empty means any."""
        return tuple(code for code in self.recognised_languages() if self.serves(code, target))

    def recognised_languages(self) -> tuple[str, ...]:
        """Return the languages with a recogniser; empty means any."""
        return _union(engine.about.languages for engine in self.engines("asr"))

    def spoken_languages(self) -> tuple[str, ...]:
        """Return the languages with a voice; empty means any."""
        return _union(engine.about.languages for engine in self.engines("tts"))

    def pairs(self) -> tuple[str, ...]:
        """Return every direction served, as `en>es`; recognition without translation is `en>en`."""
        translated = {pair for engine in self.engines("mt") for pair in self._pairs_of(engine)}
        by_recogniser = {pair for engine in self.engines("asr") for pair in engine.about.pairs}
        directions = translated | by_recogniser
        recognised = self.recognised_languages() or tuple({source for source, _ in directions})
        found = {(code, code) for code in recognised}
        found |= {pair for pair in directions if self.serves(*pair)}
        return tuple(sorted(f"{source}>{target}" for source, target in found))

    def _pairs_of(self, engine: LoadedEngine) -> set[tuple[str, str]]:
        """Return an engine's directions; all combinations if it names only languages."""
        if engine.about.pairs:
            return set(engine.about.pairs)
        known = engine.about.languages or _union(
            (self.recognised_languages(), self.spoken_languages())
        )
        return {(one, other) for one in known for other in known if one != other}

    @property
    def translates(self) -> bool:
        """Tell whether a translator or a recogniser can translate."""
        return bool(self.engines("mt")) or any(one.about.pairs for one in self.engines("asr"))

    def services(self) -> tuple[InstalledService, ...]:
        """Return the services to declare; a recogniser is also `nmt` if only it can translate."""
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
    """Return a language as it is named in `known` (empty: any); '' if it is missing."""
    if not known or code in known:
        return code
    return base_of(code) if base_of(code) in known else ""


def _spellings(source: str, target: str) -> Iterable[tuple[str, str]]:
    """Yield the spellings of a direction, the most specific first."""
    for one in dict.fromkeys((source, base_of(source))):
        for other in dict.fromkeys((target, base_of(target))):
            yield one, other


def _union(several: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return all languages in order; empty if one of the lists is empty, which means any."""
    found: dict[str, None] = {}
    for codes in several:
        if not codes:
            return ()
        found |= dict.fromkeys(codes)
    return tuple(found)


def _service(engine: LoadedEngine, kind: ServiceType) -> InstalledService:
    about = engine.about
    return InstalledService(
        service_id=engine.service_id,
        type=kind,
        device=about.device,
        version=about.version or None,
        model_id=about.model[:128] or None,
        engine=about.engine,
    )
