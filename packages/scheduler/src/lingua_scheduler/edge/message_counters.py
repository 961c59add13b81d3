"""Counters of received messages, one per type, looked up once per process, not per message."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.metrics import Counter, LiveMetrics


@lru_cache(maxsize=16)
def counters(metrics: LiveMetrics, socket: str, messages: Any) -> Mapping[type, Counter]:
    """Return the counter of each message type of a union."""
    total = metrics.sockets.messages_total
    return {
        kind: total.labels(socket=socket, type=kind.__struct_config__.tag)
        for kind in get_args(messages)
    }
