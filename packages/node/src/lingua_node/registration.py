"""The registration of a node: its settings and its machine in the terms of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lingua_node.machine import hardware, platform_name
from lingua_wire import __version__
from lingua_wire.errors import ConfigError, InvalidLabel, InvalidLanguage
from lingua_wire.from_node import NodeRegister
from lingua_wire.labels import checked_labels
from lingua_wire.languages import language
from lingua_wire.shared import (
    CapabilityByType,
    FeatureFlags,
    InstalledService,
    LanguageCapabilities,
    LanguagePair,
    NmtCapability,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_node.settings import NodeSettings

CAPABILITY_SCHEMA: Final = "2.0"
REASON_CHARACTERS_MAX: Final = 256


def registration_of(settings: NodeSettings) -> NodeRegister:
    """Return the registration of a node whose services all work; raises `ConfigError`."""
    return NodeRegister(
        node_id=settings.node_id,
        version=__version__,
        capability_schema_version=CAPABILITY_SCHEMA,
        platform=platform_name(),
        hardware=hardware(settings.gpus),
        installed_models=tuple(settings.models),
        installed_services=_services_of(settings),
        capability_by_type=capabilities_of(settings, {}),
        features_supported=FeatureFlags(**dict.fromkeys(settings.features, True)),
        accept_public_jobs=settings.accept_public_jobs,
        language_capabilities=_languages_of(settings),
        boot_id=settings.boot_id,
        max_jobs=settings.max_jobs,
        sends_acks=settings.acks,
        batches_acks=True,
        labels=_labels_of(settings),
    )


def capabilities_of(
    settings: NodeSettings, problems: Mapping[str, str]
) -> tuple[CapabilityByType, ...]:
    """Return which types of service work; `problems` gives the reasons of those that do not."""
    ids: dict[str, list[str]] = {kind: [] for kind in settings.service_types}
    for service in _services_of(settings):
        ids[service.type].append(service.service_id)
    return tuple(_capability(kind, tuple(ids[kind]), problems.get(kind)) for kind in ids)


def _capability(kind: Any, ids: tuple[str, ...], problem: str | None) -> CapabilityByType:
    if problem is None:
        return CapabilityByType(type=kind, ready=True, ready_impl_ids=ids)
    return CapabilityByType(type=kind, ready=False, reason=problem[:REASON_CHARACTERS_MAX])


def _services_of(settings: NodeSettings) -> tuple[InstalledService, ...]:
    device = "gpu" if settings.gpus else "cpu"
    return tuple(
        _service(one, device) if isinstance(one, str) else one for one in settings.services
    )


def _service(name: Any, device: str) -> InstalledService:
    return InstalledService(service_id=name, type=name, device=device, version=__version__)


def _labels_of(settings: NodeSettings) -> tuple[str, ...] | None:
    try:
        return checked_labels(settings.labels) or None
    except InvalidLabel as error:
        raise ConfigError("labels", str(error)) from None


def _languages_of(settings: NodeSettings) -> LanguageCapabilities | None:
    pairs = tuple(_pair(text) for text in settings.pairs)
    targets = _codes("target_languages", settings.target_languages)
    models = (NmtCapability(model_id="nmt", tgt_langs=targets),) if targets else None
    declared = LanguageCapabilities(
        asr_languages=_codes("asr_languages", settings.asr_languages),
        tts_languages=_codes("tts_languages", settings.tts_languages),
        nmt_capabilities=models,
        supported_language_pairs=pairs or None,
    )
    return None if declared == LanguageCapabilities() else declared


def _pair(text: str) -> LanguagePair:
    source, arrow, target = text.partition(">")
    if not arrow:
        raise ConfigError("pairs", f"{text!r} must be like en>es")
    return LanguagePair(src=_code("pairs", source), tgt=_code("pairs", target))


def _codes(setting: str, codes: Sequence[str]) -> tuple[str, ...] | None:
    return tuple(_code(setting, code) for code in codes) or None


def _code(setting: str, code: str) -> str:
    try:
        return language(code.strip())
    except InvalidLanguage as error:
        raise ConfigError(setting, str(error)) from None
