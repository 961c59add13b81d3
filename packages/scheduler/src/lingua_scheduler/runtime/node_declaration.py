"""The abilities that a node declares in its messages, as `nodes/capability.py` needs them. Pure.

Nodes of the older protocol declare them in several fields at once. A heartbeat updates the fields
that it contains; the others stay as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.nodes.capability import Declared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_wire.from_node import NodeHeartbeat, NodeRegister
    from lingua_wire.shared import (
        CapabilityByType,
        InstalledService,
        LanguageCapabilities,
    )

CORE = frozenset({"asr", "nmt", "tts"})


class NodeDeclaration(msgspec.Struct, frozen=True):
    """The latest value of everything a node declared."""

    register: NodeRegister
    services: tuple[InstalledService, ...]
    by_type: tuple[CapabilityByType, ...]
    languages: LanguageCapabilities | None

    @classmethod
    def of_registration(cls, register: NodeRegister) -> NodeDeclaration:
        """Return what a registration declares."""
        return cls(
            register,
            register.installed_services or (),
            register.capability_by_type,
            register.language_capabilities,
        )

    def after(self, beat: NodeHeartbeat) -> NodeDeclaration:
        """Return the declaration after a heartbeat; the same object if nothing changed."""
        services = self.services if beat.installed_services is None else beat.installed_services
        by_type = self.by_type if beat.capability_by_type is None else beat.capability_by_type
        languages = beat.language_capabilities or self.languages
        if (services, by_type, languages) == (self.services, self.by_type, self.languages):
            return self
        return NodeDeclaration(self.register, services, by_type, languages)

    def streams_within(self, slots_max: int | None) -> int:
        """Return how many streams the node takes; no more than the slots that it is allowed."""
        streams = self.register.max_streams or 0
        return streams if slots_max is None else min(streams, slots_max)

    @property
    def is_fit(self) -> bool:
        """Tell whether any core service works, which makes a heartbeat a good one."""
        return bool(CORE & ready_services(self.services, self.by_type).keys())


def declared(declaration: NodeDeclaration, *, tenant: str) -> Declared:
    """Return what a node declares, with its languages from all fields that name them."""
    register = declaration.register
    languages = declaration.languages
    pairs: list[tuple[str, str]] = []
    targets: list[str] = []
    if languages is not None:
        pairs += [(pair.src, pair.tgt) for pair in languages.supported_language_pairs or ()]
        for model in languages.nmt_capabilities or ():
            pairs += [(pair.src, pair.tgt) for pair in model.supported_pairs or ()]
            targets += [*model.tgt_langs, *model.languages]
    features = register.features_supported
    return Declared(
        services=ready_services(declaration.services, declaration.by_type),
        features=features.names() if features is not None else frozenset(),
        pairs=tuple(pairs),
        asr_languages=(languages.asr_languages or ()) if languages else (),
        nmt_targets=tuple(targets),
        semantic_languages=(languages.semantic_languages or ()) if languages else (),
        tts_languages=(languages.tts_languages or ()) if languages else (),
        model_pairs=tuple(
            (model.src_lang or "", model.tgt_lang or "")
            for model in register.installed_models
            if model.kind == "nmt" and model.enabled is not False
        ),
        labels=register.labels or (),
        # A tenant's node gets no speech of other tenants, even if it declares to accept it.
        private_to=None if register.accept_public_jobs and not tenant else tenant,
    )


def ready_services(
    services: Iterable[InstalledService], by_type: Iterable[CapabilityByType]
) -> dict[str, tuple[str, ...]]:
    """Return service type -> ids that run it, for the types that work now."""
    running: dict[str, list[str]] = {}
    for service in services:
        if service.status == "running":
            running.setdefault(service.type, []).append(service.service_id)
    stated = {entry.type: entry for entry in by_type}
    if not stated:
        return {kind: tuple(ids) for kind, ids in running.items()}
    return {
        kind: entry.ready_impl_ids or tuple(running.get(kind, ()))
        for kind, entry in stated.items()
        if entry.ready
    }
