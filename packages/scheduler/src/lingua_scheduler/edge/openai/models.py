"""The models that a request may name: aliases for clients of OpenAI, and the models of nodes.

The name does not select a node: languages and services do. Only models of nodes with a socket on
this instance are listed, because the store keeps the capabilities of nodes and not model names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge.openai.answers import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.runtime.node import LiveNode

# Names that existing clients use; they stand for any model of this deployment.
ALIASES = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
    "gpt-realtime-translate",
)
OWNER = "lingua"


def model_list(nodes: Mapping[str, LiveNode], tenant: str = "") -> tuple[ModelAnswer, ...]:
    """Return the models a tenant may name, the aliases first, each once."""
    found = {name: ModelAnswer(id=name, owned_by=OWNER) for name in ALIASES}
    for node in nodes.values():
        for name in declared_by(node) if node.tenant in ("", tenant) else ():
            found.setdefault(name, ModelAnswer(id=name, owned_by="node"))
    return tuple(found.values())


def declared_by(node: LiveNode) -> list[str]:
    """Return the names of a node's models, from its registration or its services."""
    said = node.declaration
    models = said.register.installed_models
    names = [model.model_id for model in models if model.enabled is not False]
    # Older nodes name models only with their services.
    return [name for name in names if name] or [
        service.model_id for service in said.services if service.model_id
    ]
