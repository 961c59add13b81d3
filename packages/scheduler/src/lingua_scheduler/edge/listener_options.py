"""What a listener is told about its connections: the paths of its WebSockets, limits, TLS."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.edge.request_head import RequestHead
from lingua_scheduler.edge.websocket import Receiver, WebSocket, WebSocketLimits

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

# Decides whether a WebSocket may open, and returns its receiver; raises `Refusal` otherwise.
# Nothing can be sent on the WebSocket before it returns.
AcceptSocket = Callable[[WebSocket, RequestHead], Receiver]


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """How the WebSockets of one path are accepted."""

    accept: AcceptSocket
    limits: WebSocketLimits = field(default_factory=WebSocketLimits)
    # Subprotocols of the server; the first offered one that is among them is chosen, else none.
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What unauthenticated peers may cost, in total and per address; 0 is unlimited."""

    head_bytes_max: int = 16 * 1024
    head_ms: int = 5000
    connections_max: int = 10_000
    connections_per_ip_max: int = 0


def _log_error(error: BaseException) -> None:
    _log.error("a receiver failed", exc_info=error)


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """How a listener treats connections."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    # Origins of web pages that may connect; see `is_origin_allowed` for an empty list.
    origins: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    # The peers are proxies, which name their clients; without one, such names are not believed.
    behind_proxy: bool = False
    # Called with every error that a receiver or an accept function raises.
    on_error: Callable[[BaseException], None] = _log_error
