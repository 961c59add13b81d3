"""The abilities of a node, derived from its declaration. Pure.

Declarations of the wire (language lists, services with their state, features, models) become one
`Capability`. Nodes with equal capabilities share a pool. The store keeps the packed form and
derives the pool's name itself, because marks of unavailable services change it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import InvalidNode
from lingua_wire.labels import checked_labels
from lingua_wire.languages import language

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Services, features and tenants that are valid in a demand.
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
# Owner of a private node without a tenant: only sessions paired with it may use it.
PAIRED_ONLY = "!"
# The breadth of a node that declares no languages: it is tried last.
ANY_BREADTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Declared:
    """The parts of a registration or a heartbeat that declare abilities."""

    # Ready service type -> ids of the implementations that run it (may be empty).
    services: Mapping[str, tuple[str, ...]]
    features: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()
    asr_languages: tuple[str, ...] = ()
    nmt_targets: tuple[str, ...] = ()
    semantic_languages: tuple[str, ...] = ()
    tts_languages: tuple[str, ...] = ()
    # (source, target) of each installed translation model; a missing side is ''.
    model_pairs: tuple[tuple[str, str], ...] = ()
    # The labels given by operators.
    labels: tuple[str, ...] = ()
    # Tenant of a node that does not accept public jobs; '' is private to paired sessions only.
    private_to: str | None = None


@dataclass(frozen=True, slots=True)
class Capability:
    """The abilities of a node in canonical form. `None` as a language set means any language."""

    services: Mapping[str, tuple[str, ...]]
    features: tuple[str, ...] = ()
    pairs: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    speech: tuple[str, ...] | None = None
    owner: str = ""
    labels: tuple[str, ...] = ()
    breadth: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "breadth", self._count_pairs())

    @property
    def serves_any(self) -> bool:
        """Tell whether the node declared no language."""
        return self.pairs is None and self.sources is None and self.targets is None

    def _count_pairs(self) -> int:
        if self.serves_any:
            return ANY_BREADTH
        if self.pairs is not None:
            return len(self.pairs)
        return min(ANY_BREADTH, len(self.sources or range(100)) * len(self.targets or range(100)))

    def packed(self) -> bytes:
        """Return the packed form for the scripts."""
        langs: dict[str, object] = {"any": self.serves_any}
        lists = {"pairs": self.pairs, "src": self.sources, "tgt": self.targets, "tts": self.speech}
        langs |= {name: items for name, items in lists.items() if items is not None}
        return msgspec.msgpack.encode(
            {
                "langs": msgspec.json.encode(langs).decode(),
                "breadth": self.breadth,
                "services": {name: list(ids) for name, ids in sorted(self.services.items())},
                "features": list(self.features),
                "owner": self.owner,
                "labels": list(self.labels),
            }
        )


def capability(declared: Declared) -> Capability:
    """Return the abilities of a declaration, or raise if it is not valid.

    Explicit pairs come first; else recognised languages times the targets of translation, or the
    semantic or spoken languages; else the languages of the installed models. A node that names no
    language serves any.
    """
    for name in (*declared.services, *declared.features, declared.private_to or "-"):
        if not NAME.fullmatch(name):
            raise InvalidNode("not usable as a name", name)
    pairs, sources, targets = _languages(declared)
    owner = "" if declared.private_to is None else declared.private_to or PAIRED_ONLY
    return Capability(
        services={name: tuple(sorted(ids)) for name, ids in declared.services.items()},
        features=tuple(sorted(declared.features)),
        pairs=pairs,
        sources=sources,
        targets=targets,
        speech=_codes(declared.tts_languages),
        owner=owner,
        labels=checked_labels(declared.labels),
    )


def read_descriptor(raw: bytes) -> tuple[Capability, frozenset[str]]:
    """Read a pool's descriptor: the abilities of its nodes, and the services that work now."""
    pool = msgspec.json.decode(raw)

    def names(key: str) -> tuple[str, ...] | None:
        return tuple(pool[key]) if key in pool else None

    can = Capability(
        services=dict.fromkeys(pool["services"], ()),
        features=tuple(pool["features"]),
        pairs=names("pairs"),
        sources=names("src"),
        targets=names("tgt"),
        speech=names("tts"),
        owner=pool["owner"],
        labels=names("labels") or (),
    )
    return can, frozenset(pool["services"])


_Names = tuple[str, ...] | None


def _languages(declared: Declared) -> tuple[_Names, _Names, _Names]:
    if declared.pairs:
        return _pairs(declared.pairs), None, None
    heard = declared.asr_languages
    targets = declared.nmt_targets or declared.semantic_languages or declared.tts_languages
    named = heard or declared.nmt_targets or declared.semantic_languages
    if named and (targets or not declared.model_pairs):
        return None, _codes(heard), _codes(targets)
    return _from_models(declared.model_pairs)


def _from_models(models: tuple[tuple[str, str], ...]) -> tuple[_Names, _Names, _Names]:
    """Return the pairs of models; a model without a source or target serves any there."""
    if models and all(source and target for source, target in models):
        return _pairs(models), None, None
    sources = [source for source, _ in models]
    targets = [target for _, target in models]
    return (
        None,
        _codes(sources) if all(sources) else None,
        _codes(targets) if all(targets) else None,
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({f"{language(source)}>{language(target)}" for source, target in pairs}))


def _codes(codes: Iterable[str]) -> _Names:
    return tuple(sorted({language(code) for code in codes})) or None
