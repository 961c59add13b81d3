"""The node's end of one WebSocket: the messages of the node socket over `dial.py`.

What the messages mean, registering and coming back after a loss are `link.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.dial import Dialect, Socket, dial
from lingua_scheduler.messages.codec import ASSIGNMENTS, NODE_MESSAGES
from lingua_scheduler.messages.from_node import FromNode
from lingua_scheduler.messages.to_node import SchedulerToNode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

NodeSocket = Socket[SchedulerToNode, FromNode]


async def connect(
    url: str,
    offered: Sequence[str],
    receive: Callable[[SchedulerToNode], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> NodeSocket:
    """Open a socket that ends by itself when the peer gives no sign of life for `silence_s`."""
    dialect = Dialect(ASSIGNMENTS, NODE_MESSAGES, tuple(offered))
    return await dial(url, dialect, receive, silence_s=silence_s, tls=tls)
