"""Opening the store: the one place where `local` and `cross_instance` differ.

`local` starts a private server and connects to its Unix socket; `cross_instance` connects to the
server or the cluster of the settings. Everything that uses the connection is the same code.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lingua_scheduler.config import ssl_context
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.embedded import EmbeddedServer
from lingua_scheduler.state.link import Address, LinkOptions
from lingua_scheduler.state.single import SingleConnection
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from urllib.parse import SplitResult

    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.connection import Connection

DEFAULT_PORT = 6379


@asynccontextmanager
async def open_connection(settings: Settings) -> AsyncIterator[Connection]:
    """Open the store of the settings; at the end, close it and stop a started server."""
    if settings.deployment_mode == "local":
        async with EmbeddedServer(store_directory(settings)) as server:
            connection: Connection = await SingleConnection.open(
                Address.unix(str(server.socket_path)), link_options(settings, urlsplit(""))
            )
            try:
                yield connection
            finally:
                await connection.close()
        return
    connection = await connect(settings)
    try:
        yield connection
    finally:
        await connection.close()


def store_directory(settings: Settings) -> Path:
    """Return the directory of the private server of local mode."""
    return settings.data_dir / "store"


async def connect(settings: Settings) -> Connection:
    """Connect to the server or the cluster that the settings name."""
    redis = settings.redis
    if redis.mode == "cluster":
        urls = [urlsplit(url.reveal()) for url in redis.urls]
        options = link_options(settings, urls[0])
        return await ClusterConnection.open([address_of(url) for url in urls], options)
    url = urlsplit(redis.url.reveal())
    return await SingleConnection.open(address_of(url), link_options(settings, url))


def address_of(url: SplitResult) -> Address:
    """Return the address of a URL: host and port, or the path of a Unix socket."""
    if url.scheme == "unix":
        return Address.unix(unquote(url.path))
    if not url.hostname:
        raise ConfigError("redis.url", "names no host")
    return Address(host=url.hostname, port=url.port or DEFAULT_PORT)


def link_options(settings: Settings, url: SplitResult) -> LinkOptions:
    """Return the login and the timeouts of connections."""
    number = url.path.strip("/") if url.scheme != "unix" else ""
    return LinkOptions(
        call_timeout_ms=settings.redis.call_timeout_ms,
        connect_timeout_ms=settings.redis.connect_timeout_ms,
        username=unquote(url.username) if url.username else None,
        password=unquote(url.password) if url.password else None,
        tls=ssl_context(settings),
        db=int(number or 0),
    )
