"""The minimal rights: the ACL line compared with the sources, and the product with these rights."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.live_server import Stage, opus, play
from lingua_cli.main import main
from lingua_scheduler.errors import StoreRejected, StoreUnfit
from lingua_scheduler.state.acl import COMMANDS, OPERATOR_COMMANDS, acl_line, acl_rules
from lingua_scheduler.state.cluster import ClusterConnection, key_slot
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from servers import Cluster, Server, start_cluster, start_server
from workspace import ROOT, SCHEDULER

pytestmark = pytest.mark.store

# They speak HTTP, whose methods look like commands, or only to a private server.
NOT_TO_THE_STORE = ("edge", "bench", "demo")
# What operators run under a user of their own.
OF_OPERATORS = "maintenance"
LUA_CALL = re.compile(r"redis\.p?call\(\s*(?:'([A-Z]+)'(?:,\s*'([A-Z]+)')?)?")
PASSWORD = "a password for tests"
ADMIN = ("admin", "another password for tests")


@pytest.fixture(name="server")
def server_without_default_user(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path, unix=False) as server:
        restrict(server)
        yield server


def restrict(server: Server, prefix: str = "lingua") -> None:
    """Make the documented user and one for the test itself, and turn the default one off."""
    server.ask("ACL", "SETUSER", "lingua", *acl_rules(prefix), f">{PASSWORD}")
    server.ask("ACL", "SETUSER", ADMIN[0], "on", f">{ADMIN[1]}", "~*", "&*", "+@all")
    server.ask("ACL", "SETUSER", "default", "off")
    server.user, server.password = ADMIN


def refusals(server: Server) -> list[str]:
    """Return what the server has refused since it was started."""
    entries = [dict(zip(e[::2], e[1::2], strict=True)) for e in server.ask("ACL", "LOG")]
    return [f"{e[b'reason'].decode()}: {e[b'object'].decode()}" for e in entries]


# The line.


def test_the_line_allows_every_command_that_the_sources_use_and_no_other(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        known = {name.decode() for name in server.ask("COMMAND", "LIST")}
    used = {*commands_of_scripts(known), *commands_of_modules(known)}
    allowed = set(COMMANDS)
    assert len(COMMANDS) == len(allowed)
    assert allowed <= known, "no such command"
    assert used <= allowed, f"not allowed, add to state/acl.py: {', '.join(sorted(used - allowed))}"
    assert allowed <= used, f"never used, remove there: {', '.join(sorted(allowed - used))}"


def test_an_operator_needs_a_few_commands_more_and_a_scheduler_does_not(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        known = {name.decode() for name in server.ask("COMMAND", "LIST")}
    used = set(commands_of_modules(known, SCHEDULER / OF_OPERATORS))
    used |= set(commands_of_scripts(known, SCHEDULER / OF_OPERATORS))
    assert used - set(COMMANDS) == set(OPERATOR_COMMANDS)


def commands_of_scripts(known: set[str], root: Path = SCHEDULER / "state") -> Iterator[str]:
    """Find the commands that the Lua sources call; each must be written out."""
    for file in root.rglob("*.lua"):
        for name, argument in LUA_CALL.findall(file.read_text(encoding="utf-8")):
            assert name, f"{file.name} calls a command whose name is not written there"
            yield full_name(name, argument, known)


def commands_of_modules(known: set[str], root: Path = SCHEDULER) -> Iterator[str]:
    """Find the commands in the Python sources: the first words of calls and tuples."""
    for file in root.rglob("*.py"):
        if file.relative_to(root).parts[0] in (*NOT_TO_THE_STORE, OF_OPERATORS):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call | ast.Tuple):
                items = node.args if isinstance(node, ast.Call) else node.elts
                yield from command_among(items, known)


def command_among(items: list[ast.expr], known: set[str]) -> Iterator[str]:
    words = [item.value if isinstance(item, ast.Constant) else None for item in items]
    texts = [w.decode(errors="replace") if isinstance(w, bytes) else w for w in words]
    for n, text in enumerate(texts):
        if isinstance(text, str) and text.isupper():
            argument = texts[n + 1] if n + 1 < len(texts) else None
            name = full_name(text, argument if isinstance(argument, str) else "", known)
            if name in known:
                yield name
            return  # what follows are its arguments


def full_name(name: str, argument: str, known: set[str]) -> str:
    """Return a command as ACL rules name it, with the subcommand if it has them."""
    whole = f"{name}|{argument}".lower()
    return whole if whole in known else name.lower()


def test_the_page_for_operators_shows_this_line() -> None:
    page = " ".join((ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split())
    assert acl_line("lingua") in page, f"docs/operations.md must show:\n{acl_line('lingua')}"


def test_the_command_line_prints_it_for_the_configured_prefix(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_REDIS__KEY_PREFIX", "acme")
    assert main(["config", "acl", "--user", "scheduler"]) == 0
    assert capsys.readouterr().out == acl_line("acme", "scheduler") + "\n"
    assert acl_line("acme", "scheduler").startswith("ACL SETUSER scheduler reset on >PASSWORD ")


def test_the_line_can_be_given_to_a_server_as_it_is(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        assert server.ask(*acl_line("acme").split()) == b"OK"
        whole = [word.decode() for word in server.ask("ACL", "LIST")]
        (made,) = [line for line in whole if line.startswith("user lingua ")]
        assert " ~acme:v1:* " in made
        assert " -@all " in made


# The product under it.


def test_a_session_is_served_end_to_end_under_the_least_privilege(server: Server) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.node("first")
        client = await stage.client()
        for index in range(3):
            await client.say(opus(400), is_final=True)
            job = await first.job()
            await first.take(job)
            await first.answer(job)
            await client.result(index)
        await client.say(opus(400), is_final=True)
        await first.take(await first.job())
        second = await stage.node("second")
        first.drop()
        second.work()
        await client.result(3)
        await client.bye()

    assert server.tcp_address is not None
    url = f"redis://lingua:{PASSWORD.replace(' ', '%20')}@{server.tcp_address}/0"
    play(scenario, deployment_mode="cross_instance", redis__url=url, cells=2)
    assert refusals(server) == []
    assert server.ask("DBSIZE") > 0, "nothing was stored there: the test tried nothing"


def test_a_user_of_an_older_line_is_told_at_the_start_what_it_lacks(server: Server) -> None:
    async def scenario() -> None:
        connection = await SingleConnection.open(server.address, login())
        with pytest.raises(StoreUnfit, match="give the user the rights that `lingua config acl`"):
            await Store(connection, FleetPolicy()).warm()
        await connection.close()

    server.ask("ACL", "SETUSER", "lingua", "-function|load", "-fcall", "+eval", "+evalsha")
    asyncio.run(scenario())
    assert set(refusals(server)) == {"command: function|load"}


def test_other_keys_and_other_commands_are_refused(server: Server) -> None:
    async def scenario() -> None:
        connection = await SingleConnection.open(server.address, login())
        copy = Script.of("copy", "return redis.call('HGET', KEYS[1], 'f')")
        assert await connection.run(copy, 0, ("lingua:v1:{c0}:due",), ()) is None
        for words in (("HGET", "other:v1:{c0}:due", "f"), ("HGET", "lingua:v2:{c0}:due", "f")):
            with pytest.raises(StoreRejected, match="NOPERM"):
                await connection.command(0, *words)
        for words in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("FUNCTION", "FLUSH")):
            with pytest.raises(StoreRejected, match="NOPERM"):
                await connection.command(0, *words)
        with pytest.raises(StoreRejected, match=r"NOPERM|permission"):
            await connection.run(copy, 0, ("other:v1:{c0}:due",), ())
        await connection.close()

    asyncio.run(scenario())


def test_nobody_comes_in_without_the_password(server: Server) -> None:
    async def scenario() -> None:
        for options in (LinkOptions(), LinkOptions(username="lingua", password="wrong")):
            with pytest.raises(StoreRejected, match=r"NOAUTH|WRONGPASS"):
                await SingleConnection.open(server.address, options)

    asyncio.run(scenario())


def test_a_cluster_is_followed_under_the_least_privilege(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        source, target = cluster.masters
        key = next(name for n in range(1000) if owned(source, name := f"lingua:v1:{{c{n}}}:due"))
        slot = key_slot(key)
        connection = await ClusterConnection.open(cluster.addresses, login())
        add = Script.of("add", "return redis.call('HSET', KEYS[1], ARGV[1], '')")
        assert await connection.run(add, slot, (key,), ("a",)) == 1
        source.ask("DEL", key)
        cluster.begin_migration(slot, source, target)
        assert await connection.run(add, slot, (key,), ("b",)) == 1, "by ASKING"
        cluster.move_slot(slot, target)
        assert await connection.run(add, slot, (key,), ("c",)) == 1
        assert source.errors_sent("ASK") > 0
        await connection.close()

    def owned(node: Server, key: str) -> bool:
        return cluster.owner(key_slot(key)) is node

    with start_cluster(tmp_path, masters=2) as cluster:
        for node in cluster.nodes:
            restrict(node)
        asyncio.run(scenario(cluster))
        assert [refusals(node) for node in cluster.nodes] == [[], []]


def login() -> LinkOptions:
    return LinkOptions(username="lingua", password=PASSWORD)
