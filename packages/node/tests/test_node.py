"""A node needs one async handler and is served once at a time."""

from __future__ import annotations

import pytest

from lingua_node import Node
from lingua_wire.errors import ConfigError
from node_peer import (
    node_for,
    run,
    scripted_scheduler,
    serving,
)

pytestmark = pytest.mark.unit


def test_a_node_without_a_handler_or_served_twice_is_an_error() -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError):
            await Node().serve()
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            async with serving(node):
                await scheduler.connection()
                with pytest.raises(ConfigError):
                    await node.serve()

    run(scenario())


def test_a_handler_must_be_an_async_function() -> None:
    with pytest.raises(TypeError):
        Node().job(lambda job: None)  # type: ignore[arg-type, return-value]
