"""What a node serves, from what it declares. Pure.

Declarations of the wire (language lists, services with their state, features, models) become one
`Capability`. Nodes with equal capabilities share a pool. The store keeps the packed form and
derives the pool's name itself, because marks of unavailable services change it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The breadth of a node that declares no languages at all: it comes after every other.
ANY_BREADTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Declared:
    """The parts of a registration or a heartbeat that say what a node can do."""

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
    # Tenant of a node that does not accept public jobs.
    private_to: str = ""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a node serves, in canonical form. `None` for a language set means any language."""

    services: Mapping[str, tuple[str, ...]]
    features: tuple[str, ...] = ()
    pairs: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    speech: tuple[str, ...] | None = None
    owner: str = ""
    breadth: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "breadth", self._count_pairs())

    @property
    def serves_any(self) -> bool:
        """Tell whether the node declared no language at all."""
        return self.pairs is None and self.sources is None and self.targets is None

    def _count_pairs(self) -> int:
        if self.serves_any:
            return ANY_BREADTH
        if self.pairs is not None:
            return len(self.pairs)
        return min(ANY_BREADTH, len(self.sources or range(100)) * len(self.targets or range(100)))

    def packed(self) -> bytes:
        """Return the form the scripts read."""
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
            }
        )


def capability(declared: Declared) -> Capability:
    """Return what the declarations amount to.

    Explicit pairs win; else recognised languages times the targets of translation, or of the
    semantic or spoken languages; else what the installed models say; a node that names no language
    serves any.
    """
    pairs, sources, targets = _languages(declared)
    return Capability(
        services={name: tuple(sorted(ids)) for name, ids in declared.services.items()},
        features=tuple(sorted(declared.features)),
        pairs=pairs,
        sources=sources,
        targets=targets,
        speech=_sorted(declared.tts_languages) if declared.tts_languages else None,
        owner=declared.private_to,
    )


def read_descriptor(raw: bytes) -> tuple[Capability, frozenset[str]]:
    """Read a pool's descriptor back: what its nodes can do, and the services that work now."""
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
    )
    return can, frozenset(pool["services"])


_Names = tuple[str, ...] | None


def _languages(declared: Declared) -> tuple[_Names, _Names, _Names]:
    if declared.pairs:
        return _sorted(f"{source}>{target}" for source, target in declared.pairs), None, None
    heard = declared.asr_languages
    targets = declared.nmt_targets or declared.semantic_languages or declared.tts_languages
    if heard or declared.nmt_targets or declared.semantic_languages:
        return None, _sorted(heard) if heard else None, _sorted(targets) if targets else None
    if declared.model_pairs:
        known = {(s, t) for s, t in declared.model_pairs if s and t}
        return _sorted(f"{source}>{target}" for source, target in known), None, None
    return None, None, None


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
