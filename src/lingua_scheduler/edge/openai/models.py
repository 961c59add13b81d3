"""The models that may be named: an alias for clients of OpenAI, and what nodes say they have.

The name does not choose a node: languages and services do. Only nodes whose socket is on this
instance are asked, since the store keeps what they can do and not what it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge.openai.answers import ModelAnswer

if TYPE_CHECKING:
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.node import LiveNode

# Names that clients were written with: whatever recognises and translates here answers to them.
ALIASES = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
    "gpt-realtime-translate",
)
OWNER = "lingua"


def model_list(instance: Instance, tenant: str = "") -> tuple[ModelAnswer, ...]:
    """Return the models a tenant may name, the aliases first, each once."""
    found = {name: ModelAnswer(id=name, owned_by=OWNER) for name in ALIASES}
    for node in instance.board.nodes.values():
        for name in declared_by(node) if node.tenant in ("", tenant) else ():
            found.setdefault(name, ModelAnswer(id=name, owned_by="node"))
    return tuple(found.values())


def declared_by(node: LiveNode) -> list[str]:
    """Return the names of a node's models, wherever it told them."""
    said = node.said
    models = said.register.installed_models
    names = [model.model_id for model in models if model.enabled is not False]
    # Older nodes name models only with their services.
    return [name for name in names if name] or [
        service.model_id for service in said.services if service.model_id
    ]
