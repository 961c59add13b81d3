"""Serves the metrics of a node to Prometheus over HTTP, from a thread of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import disable_created_metrics, start_http_server

from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from lingua_speech.metrics import NodeMetrics


@asynccontextmanager
async def metrics_server(metrics: NodeMetrics, host: str, port: int) -> AsyncIterator[str]:
    """Serve `/metrics` and yield its URL; raises `ConfigError` if the address cannot be bound."""
    # The creation time of each series would double their number.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    shown = f"[{host}]" if ":" in host else host
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        # Usually because another node on this machine has the port.
        where = f"http://{shown}:{port}"
        raise ConfigError("--metrics", f"{where}: {error.strerror or error}") from error
    try:
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        await asyncio.to_thread(_stop, server, thread)


def _stop(server: WSGIServer, thread: Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()
