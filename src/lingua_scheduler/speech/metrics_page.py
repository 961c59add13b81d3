"""The page that shows a node's meters to Prometheus: one path over HTTP, on loopback by default."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_scheduler.speech.meters import Meters


@asynccontextmanager
async def metrics_page(meters: Meters, host: str, port: int) -> AsyncIterator[str]:
    """Serve `/metrics` meanwhile; gives its address, or raises `ConfigError` if it is taken."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=meters.registry.render(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", show)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await _bind(web.TCPSite(runner, host, port))
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{bound}/metrics"
    finally:
        await runner.cleanup()


async def _bind(site: web.TCPSite) -> None:
    try:
        await site.start()
    except OSError as error:
        # Another node of this machine, most likely.
        raise ConfigError("--metrics", f"{site.name}: {error.strerror or error}") from error
