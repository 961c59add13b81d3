"""Opening the store: from settings to addresses and options, then to real servers of each kind."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lingua_scheduler.config import RedisSettings, Settings
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.secret import SecretUrl
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.link import Address, LinkOptions
from lingua_scheduler.state.opening import address_of, connect, link_options, open_connection
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.single import SingleConnection
from lingua_wire.errors import ConfigError
from servers import free_port, start_cluster, start_server

pytestmark = pytest.mark.store

ADD = Script.of("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


def external(url: str) -> Settings:
    return Settings(deployment_mode="cross_instance", redis=RedisSettings(url=SecretUrl(url)))


def options_of(url: str) -> LinkOptions:
    return link_options(external(url), urlsplit(url))


async def answers(settings: Settings) -> None:
    """See that what these settings open answers commands and runs scripts."""
    async with open_connection(settings) as connection:
        assert await connection.command(0, "PING") == b"PONG"
        assert await connection.run(ADD, 0, ("counter",), (2,)) == 2


async def fail_inside(settings: Settings, opened: list[Connection]) -> None:
    async with open_connection(settings) as connection:
        opened.append(connection)
        raise ZeroDivisionError


def closes_behind_itself(settings: Settings) -> None:
    """Leave by an error; the connection must be closed and no task left."""

    async def scenario() -> None:
        before = asyncio.all_tasks()
        opened: list[Connection] = []
        with pytest.raises(ZeroDivisionError):
            await fail_inside(settings, opened)
        assert asyncio.all_tasks() == before
        with pytest.raises(StoreUnavailable, match="closed by this process"):
            await opened[0].command(0, "PING")

    asyncio.run(scenario())


# Addresses.


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://store.example", Address("store.example", 6379)),
        ("redis://store.example:7000/2", Address("store.example", 7000)),
        ("rediss://user:word@store.example:7000", Address("store.example", 7000)),
        ("redis://[::1]:7000", Address("::1", 7000)),
        ("unix:///run/store.sock", Address.unix("/run/store.sock")),
        ("unix:///run/my%20store.sock", Address.unix("/run/my store.sock")),
        ("unix://user:word@/run/store.sock", Address.unix("/run/store.sock")),
    ],
)
def test_a_url_points_to_an_address(url: str, address: Address) -> None:
    assert address_of(urlsplit(url)) == address


@pytest.mark.parametrize("url", ["", "redis://", "redis:///0", "store.example:6379"])
def test_a_url_that_names_no_host_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        address_of(urlsplit(url))
    assert caught.value.path == "redis.url"


# Options.


@pytest.mark.parametrize(
    ("url", "username", "password"),
    [
        ("redis://store.example", None, None),
        ("redis://user:word@store.example", "user", "word"),
        ("redis://:word@store.example", None, "word"),
        ("redis://user@store.example", "user", None),
        ("redis://a%40b:p%2Fw%3A%40@store.example", "a@b", "p/w:@"),
        ("unix://user:word@/run/store.sock", "user", "word"),
    ],
)
def test_user_and_password_come_from_the_url(
    url: str, username: str | None, password: str | None
) -> None:
    options = options_of(url)
    assert (options.username, options.password) == (username, password)


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("redis://store.example", 0),
        ("redis://store.example/", 0),
        ("redis://store.example/0", 0),
        ("redis://store.example/12", 12),
        ("unix:///run/7", 0),
    ],
)
def test_the_database_is_the_path_of_the_url_but_not_of_a_socket(url: str, database: int) -> None:
    assert options_of(url).db == database


def test_patience_is_a_setting() -> None:
    redis = RedisSettings(url=SecretUrl("redis://x"), call_timeout_ms=123, connect_timeout_ms=456)
    options = link_options(Settings(redis=redis), urlsplit("redis://x"))
    assert (options.call_timeout_ms, options.connect_timeout_ms) == (123, 456)


def test_tls_is_on_exactly_for_rediss() -> None:
    assert options_of("redis://store.example").tls is None
    context = options_of("rediss://store.example").tls
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


# Local mode.


def test_local_mode_opens_a_private_server_that_answers(tmp_path: Path) -> None:
    asyncio.run(answers(Settings(data_dir=tmp_path)))
    assert (tmp_path / "store").is_dir()


def test_local_mode_keeps_its_data_from_one_run_to_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_connection(Settings(data_dir=tmp_path)) as connection:
            await connection.command(0, "SET", "kept", "yes")
        async with open_connection(Settings(data_dir=tmp_path)) as connection:
            assert await connection.command(0, "GET", "kept") == b"yes"

    asyncio.run(scenario())


def test_local_mode_ends_what_it_started_also_after_an_error(tmp_path: Path) -> None:
    closes_behind_itself(Settings(data_dir=tmp_path))
    asyncio.run(answers(Settings(data_dir=tmp_path)))


# A server that somebody else runs.


def test_cross_instance_reaches_one_server_over_tcp(tmp_path: Path) -> None:
    with start_server(tmp_path, port=free_port(), unix=False) as server:
        settings = external(f"redis://127.0.0.1:{server.port}")
        asyncio.run(answers(settings))
        closes_behind_itself(settings)
        assert server.is_running


def test_cross_instance_reaches_one_server_over_its_socket_in_a_database(tmp_path: Path) -> None:
    with start_server(tmp_path, port=free_port()) as server:
        asyncio.run(answers(external(f"unix://{server.address.path}")))
        asyncio.run(answers(external(f"redis://127.0.0.1:{server.port}/3")))
        assert server.ask("GET", "counter") == b"2"
        assert server.info("keyspace").keys() == {"db0", "db3"}


def test_cross_instance_logs_in_with_the_password_of_the_url(tmp_path: Path) -> None:
    with start_server(tmp_path, port=free_port(), extra=["--requirepass", "p/w:@"]) as server:
        host = f"127.0.0.1:{server.port}"
        asyncio.run(answers(external(f"redis://:p%2Fw%3A%40@{host}")))
        for url in (f"redis://:wrong@{host}", f"redis://{host}"):
            with pytest.raises(StoreRejected) as caught:
                asyncio.run(answers(external(url)))
            assert "wrong" not in str(caught.value)


def test_cross_instance_reaches_a_cluster_by_any_of_its_urls(tmp_path: Path) -> None:
    async def scenario(urls: tuple[SecretUrl, ...]) -> None:
        redis = RedisSettings(mode="cluster", urls=urls)
        settings = Settings(deployment_mode="cross_instance", redis=redis)
        async with open_connection(settings) as connection:
            assert isinstance(connection, ClusterConnection)
            assert await connection.every_master("PING") == [b"PONG"]

    with start_cluster(tmp_path, masters=1) as cluster:
        dead = SecretUrl(f"redis://127.0.0.1:{free_port()}")
        alive = SecretUrl(f"redis://127.0.0.1:{cluster.masters[0].port}")
        asyncio.run(scenario((dead, alive)))


def test_a_single_server_is_not_taken_for_a_cluster(tmp_path: Path) -> None:
    async def scenario(settings: Settings) -> None:
        connection = await connect(settings)
        try:
            assert isinstance(connection, SingleConnection)
        finally:
            await connection.close()

    with start_server(tmp_path) as server:
        asyncio.run(scenario(external(f"unix://{server.address.path}")))


# Wrong addresses.


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:{port}",
        "redis://no-such-host.invalid:{port}",
        "unix:///nowhere/store.sock",
    ],
    ids=["nobody listens", "no such host", "no such socket"],
)
def test_a_wrong_address_is_told_at_once_as_an_unavailable_store(url: str) -> None:
    settings = external(url.format(port=free_port()))

    async def scenario() -> None:
        before = asyncio.all_tasks()
        with pytest.raises(StoreUnavailable) as caught:
            await answers(settings)
        where = str(address_of(urlsplit(settings.redis.url.reveal())))
        assert caught.value.where == where
        assert caught.value.why
        assert asyncio.all_tasks() == before

    asyncio.run(scenario())
