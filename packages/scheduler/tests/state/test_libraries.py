"""Loading our library into servers: all masters, twice, too old, not allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lingua_scheduler.errors import StoreRejected, StoreUnfit
from lingua_scheduler.state.libraries import is_loaded, load_on_masters, unfit
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.scripts import load_scripts
from lingua_scheduler.state.single import SingleConnection
from servers import Server, start_server

pytestmark = pytest.mark.store

LIBRARY = load_scripts()["job_submit"].library


def libraries_of(server: Server) -> list[str]:
    rows = server.ask("FUNCTION", "LIST")
    return [row[row.index(b"library_name") + 1].decode() for row in rows]


def test_a_library_may_be_loaded_by_many_at_once(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        connection = await SingleConnection.open(server.address, LinkOptions())
        await asyncio.gather(*(load_on_masters(connection, LIBRARY) for _ in range(10)))
        await load_on_masters(connection, LIBRARY)
        assert libraries_of(server) == [LIBRARY.name]
        await connection.close()

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_the_library_survives_flushall_and_a_restart(tmp_path: Path) -> None:
    async def load(server: Server) -> None:
        connection = await SingleConnection.open(server.address, LinkOptions())
        await load_on_masters(connection, LIBRARY)
        await connection.close()

    with start_server(tmp_path, extra=["--appendonly", "yes"]) as server:
        asyncio.run(load(server))
        server.ask("FLUSHALL")
        assert libraries_of(server) == [LIBRARY.name]
        server.kill()
        server.start()
        assert libraries_of(server) == [LIBRARY.name]


def test_a_server_without_functions_is_told_what_is_needed(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        connection = await SingleConnection.open(server.address, LinkOptions())
        with pytest.raises(StoreUnfit, match=r"must be Redis 7\.0 or later, or Valkey"):
            await load_on_masters(connection, LIBRARY)
        await connection.close()

    # As a server of a version before them answers.
    with start_server(tmp_path, extra=["--rename-command", "FUNCTION", ""]) as server:
        asyncio.run(scenario(server))


def test_a_refusal_that_we_do_not_know_is_told_as_it_is() -> None:
    error = StoreRejected("FUNCTION", "ERR Error compiling function: near 'x'")
    assert unfit(error) is error
    assert not is_loaded(error)


def test_the_older_servers_form_of_an_unknown_command_is_known() -> None:
    error = StoreRejected("FUNCTION", "ERR unknown command `FUNCTION`, with args beginning with: ")
    assert isinstance(unfit(error), StoreUnfit)
