"""The requirements of a job: languages, services, features. Pure.

Feature flags name modules, modules depend on modules, and the expanded set determines the services
and features that a node must have. A `Demand` is the requirement as canonical text: the name of a
queue, the key of the cell's cache of pools, and an argument of the placement scripts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lingua_scheduler.errors import InvalidDemand
from lingua_wire.languages import AUTO, language

# The characters of a part of a demand: without the separators.
PART = re.compile(r"[A-Za-z0-9_.:*>-]{0,128}")

SERVICES = ("asr", "nmt", "tts", "semantic", "tone")


@dataclass(frozen=True, slots=True)
class Module:
    """One ability that a feature flag can request, and its dependencies."""

    needs: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


MODULES = {
    "asr": Module(services=("asr",)),
    "nmt": Module(services=("nmt",)),
    "tts": Module(services=("tts",)),
    "vad": Module(),
    "emotion_detection": Module(("asr",), (), ("emotion-xlm-r",)),
    "speaker_identification": Module((), ("tone",), ("speaker-id-ecapa",)),
    "voice_cloning": Module(("speaker_identification",), ("tone",), ("vc-model-v1",)),
    "speech_rate_detection": Module(("asr",), (), ("sr-d-v1",)),
    "speech_rate_control": Module(("speech_rate_detection", "tts"), (), ("tts-vocoder-v1",)),
    "persona_adaptation": Module(("asr",), (), ("persona-style-transformer",)),
}

# Feature flag on the wire -> module.
FEATURES = {
    "emotion_detection": "emotion_detection",
    "voice_style_detection": "voice_cloning",
    "speech_rate_detection": "speech_rate_detection",
    "speech_rate_control": "speech_rate_control",
    "speaker_identification": "speaker_identification",
    "persona_adaptation": "persona_adaptation",
}
FEATURE_OF_MODULE = {module: feature for feature, module in FEATURES.items()}


@dataclass(frozen=True, slots=True)
class PipelineStages:
    """The stages that a client requested."""

    use_asr: bool = True
    use_nmt: bool = True
    use_tts: bool = True
    use_semantic: bool = False
    use_tone: bool = False

    def services(self) -> frozenset[str]:
        """Return the services of the flags."""
        flags = (self.use_asr, self.use_nmt, self.use_tts, self.use_semantic, self.use_tone)
        return frozenset(name for name, wanted in zip(SERVICES, flags, strict=True) if wanted)


@dataclass(frozen=True, slots=True)
class Requirement:
    """The services, features and models that a node must have."""

    services: frozenset[str]
    features: frozenset[str]
    models: frozenset[str]


def expand_modules(modules: frozenset[str]) -> frozenset[str]:
    """Return the modules and all of their dependencies."""
    found: set[str] = set()
    stack = list(modules)
    while stack:
        name = stack.pop()
        if name in found:
            continue
        if name not in MODULES:
            raise InvalidDemand("no such module", name)
        found.add(name)
        stack.extend(MODULES[name].needs)
    return frozenset(found)


def require(pipeline: PipelineStages, features: frozenset[str]) -> Requirement:
    """Return the requirement of the stages and the features, from the *expanded* modules."""
    unknown = features - FEATURES.keys()
    if unknown:
        raise InvalidDemand("no such feature", ", ".join(sorted(unknown)))
    modules = expand_modules(frozenset(FEATURES[name] for name in features))
    services = pipeline.services().union(*(MODULES[name].services for name in modules))
    return Requirement(
        services=frozenset(services),
        features=frozenset(FEATURE_OF_MODULE[m] for m in modules if m in FEATURE_OF_MODULE),
        models=frozenset(model for name in modules for model in MODULES[name].models),
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """A requirement in the terms of placement. `directions`: `src>tgt`, `*>tgt` or `src>`."""

    directions: tuple[str, ...]
    services: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    # The languages of speech synthesis.
    speech: tuple[str, ...] = ()
    tenant: str = ""
    # The labels that the tenant is pinned to: a node must have all of them.
    labels: tuple[str, ...] = ()
    # The node that the session is paired with: allowed although it is private.
    paired: str = ""
    text: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lists = (self.directions, self.services, self.features, self.speech)
        for part in (
            *(item for items in lists for item in items),
            *self.labels,
            self.tenant,
            self.paired,
        ):
            if not PART.fullmatch(part):
                raise InvalidDemand("not usable in a demand", part)
        parts = [",".join(sorted(items)) for items in lists]
        parts += [self.tenant, ",".join(sorted(self.labels)), self.paired]
        object.__setattr__(self, "text", "|".join(parts))

    @classmethod
    def parse(cls, text: str) -> Demand:
        """Read the canonical text back."""
        directions, services, features, speech, tenant, labels, paired = text.split("|")

        def items(part: str) -> tuple[str, ...]:
            return tuple(part.split(",")) if part else ()

        return cls(
            directions=items(directions),
            services=items(services),
            features=items(features),
            speech=items(speech),
            tenant=tenant,
            labels=items(labels),
            paired=paired,
        )


@dataclass(frozen=True, slots=True)
class Languages:
    """The languages of a session."""

    source: str
    target: str
    # For source `auto`: the possible languages; empty: any.
    auto: tuple[str, ...] = ()
    # `two_way_auto`: both directions of this pair.
    two_way: tuple[str, str] | None = None

    def directions(self, *, translated: bool) -> tuple[str, ...]:
        """Return the directions that a node must serve; `src>` is recognition only."""
        if self.two_way is not None:
            one, other = (language(code) for code in self.two_way)
            return (f"{one}>{other}", f"{other}>{one}") if translated else (f"{one}>", f"{other}>")
        target = language(self.target) if translated else ""
        if self.source.lower() != AUTO:
            return (f"{language(self.source)}>{target}",)
        if not self.auto:
            return (f"*>{target}",)
        sources = sorted({language(code) for code in self.auto})
        return tuple(f"{source}>{target if source != target else ''}" for source in sources)

    def spoken(self) -> tuple[str, ...]:
        """Return the languages of the spoken results."""
        codes = self.two_way if self.two_way is not None else (self.target,)
        return tuple(language(code) for code in codes)


def demand(
    languages: Languages,
    pipeline: PipelineStages,
    features: frozenset[str] = frozenset(),
    *,
    tenant: str = "",
    labels: tuple[str, ...] = (),
    paired: str = "",
) -> Demand:
    """Return the demand of a job of these languages, stages and features."""
    needed = require(pipeline, features)
    translated = "nmt" in needed.services
    return Demand(
        directions=languages.directions(translated=translated),
        services=tuple(sorted(needed.services)),
        features=tuple(sorted(needed.features)),
        speech=tuple(sorted(languages.spoken())) if "tts" in needed.services else (),
        tenant=tenant,
        labels=labels,
        paired=paired,
    )
