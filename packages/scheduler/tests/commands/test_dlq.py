"""`lingua dlq` as an operator runs it, on a real store, with and without live instances."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lingua_cli.main import main
from lingua_scheduler.peers.messages import OutcomesReady, PartialTranscript, PeerMessage, PushJob
from lingua_scheduler.peers.presence import InstanceInfo, Presence
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from servers import Server, start_server

pytestmark = pytest.mark.store

JOB = "job-0123456789abcdef0123456789abcdef"
SECRET = "what somebody said"


@pytest.fixture(name="server", scope="module")
def server_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("dlq"), unix=False) as server:
        yield server


@pytest.fixture(autouse=True)
def shared_store(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run against an empty store, where nothing else changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://{server.tcp_address}/0")
    server.ask("FLUSHALL")


def on(server: Server, step: Callable[[Connection], Awaitable[None]]) -> None:
    async def whole() -> None:
        assert server.tcp_address is not None
        connection = await SingleConnection.open(
            server.tcp_address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await step(connection)
        finally:
            await connection.close()

    asyncio.run(whole())


def bury(server: Server, instance: str, *letters: PeerMessage) -> list[str]:
    """Send messages to an instance that become dead letters; return their ids."""

    async def step(connection: Connection) -> None:
        stream = InboxStream(connection, "lingua", instance)
        await stream.create()
        for letter in letters:
            assert await PeerSender(connection, "lingua", "sender-of-all").send(instance, letter)
        for entry in await stream.read_new(len(letters)):
            assert await stream.bury(entry.id, "too_slow")

    on(server, step)
    return [row[0].decode() for row in server.ask("XRANGE", dlq(instance), "-", "+")]


def dlq(instance: str) -> str:
    return f"lingua:v1:{{i:{instance}}}:dlq"


def inbox(server: Server, instance: str) -> list[dict[bytes, bytes]]:
    rows = server.ask("XRANGE", f"lingua:v1:{{i:{instance}}}:inbox", "-", "+")
    return [dict(zip(f[::2], f[1::2], strict=True)) for _, f in rows]


def live(server: Server, *instances: str, draining: bool = False) -> None:
    async def step(connection: Connection) -> None:
        for instance in instances:
            await InboxStream(connection, "lingua", instance).create()
            presence = Presence(
                connection, "lingua", instance, InstanceInfo(), is_draining=lambda: draining
            )
            await presence.beat()

    on(server, step)


PUSH = PushJob(JOB, 2, "node-1", "c0", audio=SECRET.encode())


def test_no_dead_letters_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlq", "ls"]) == 0
    assert capsys.readouterr().out == "no dead letters\n"
    assert main(["dlq", "ls", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_letters_are_a_table_for_each_instance(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (push,) = bury(server, "a", PUSH)
    bury(server, "b", OutcomesReady("s-1", "17", 4), OutcomesReady("s-2", "17", 5))
    assert main(["dlq", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 dead letters"
    assert [line for line in lines if line.startswith("to ")] == ["to b", "to a"]
    at = lines.index("to a")
    assert lines[at + 1].split() == [
        "id", "kind", "about", "try", "from", "tried", "age", "reason",
    ]  # fmt: skip
    assert lines[at + 2].split() == [
        push, "push", "job-012345", "2", "sender-of-", "1", "0s", "too_slow",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    assert main(["dlq", "ls", "--instance", "b", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 dead letters (the newest 1 are shown: --limit)\n\nto b\n")
    assert "s-2" in shown
    assert "s-1" not in shown


def test_programs_get_json_with_whole_ids(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (push,) = bury(server, "a", PUSH)
    assert main(["dlq", "ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["instance"], row["kind"]) == (push, "a", "push")
    assert (row["correlation"], row["attempt"], row["sender"]) == (JOB, 2, "sender-of-all")
    assert (row["deliveries"], row["reason"]) == (1, "too_slow")
    assert 0 <= row["age_ms"] < 60_000
    assert row["body_bytes"] > 0


def test_one_letter_is_shown_without_what_was_said(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    push, partial = bury(server, "a", PUSH, PartialTranscript("s", JOB, 1, SECRET, is_final=True))
    assert main(["dlq", "show", push]) == 0
    text = capsys.readouterr().out
    for pattern in ("correlation +job-0123456789abcdef", "body.node +node-1", "body.audio +18 byt"):
        assert re.search(pattern, text), text
    assert main(["dlq", "show", partial]) == 0
    text += capsys.readouterr().out
    assert re.search(r"body.text +18 characters\nbody.is_final +yes", text), text
    assert main(["dlq", "show", push, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["body"]["audio"] == "18 bytes"
    assert SECRET not in text + str(shown)


@pytest.mark.parametrize("act", ["show", "replay", "drop"])
def test_a_letter_that_is_not_there_is_said(act: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlq", act, "1-1"]) == 1
    assert "there is no dead letter 1-1: see `lingua dlq ls`" in capsys.readouterr().err
    assert main(["dlq", act, "nonsense"]) == 1
    assert "not a valid id of a dead letter: 'nonsense'" in capsys.readouterr().err


def test_an_id_that_two_instances_have_needs_the_instance(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        server.ask("XADD", dlq(name), "7-7", "kind", "push")
        server.ask("SADD", "lingua:v1:{c0}:dlqs", name)
    assert main(["dlq", "show", "7-7"]) == 1
    assert "a and b each have a dead letter 7-7: give --instance" in capsys.readouterr().err
    assert main(["dlq", "drop", "7-7", "--instance", "b"]) == 0
    assert main(["dlq", "show", "7-7"]) == 0
    assert re.search(r"^instance +a$", capsys.readouterr().out, re.MULTILINE)


# Replay.


def test_a_letter_goes_to_the_same_instance_if_that_lives(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (push,) = bury(server, "b", PUSH)
    live(server, "a", "b")
    assert main(["dlq", "replay", push]) == 0
    assert capsys.readouterr().out == f"{push} (push of {JOB}) went to b\n"
    (entry,) = inbox(server, "b")
    assert (entry[b"k"], entry[b"c"], entry[b"f"]) == (b"push", JOB.encode(), b"sender-of-all")
    assert server.ask("XLEN", dlq("b")) == 0


def test_else_to_one_that_lives_and_stays(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (push,) = bury(server, "gone", PUSH)
    live(server, "a", draining=True)
    live(server, "b")
    assert main(["dlq", "replay", push, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": push, "to": "b"}
    assert len(inbox(server, "b")) == 1


def test_or_to_whom_the_operator_says(server: Server) -> None:
    (push,) = bury(server, "b", PUSH)
    live(server, "a", "b")
    assert main(["dlq", "replay", push, "--to", "a"]) == 0
    assert len(inbox(server, "a")) == 1


def test_a_letter_that_nobody_would_read_stays(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    (push,) = bury(server, "b", PUSH)
    assert main(["dlq", "replay", push]) == 1
    assert capsys.readouterr().err == (
        "lingua: no instance is alive to read it: the dead letter is kept\n"
    )
    live(server, "a")
    assert main(["dlq", "replay", push, "--to", "ghost"]) == 1
    error = capsys.readouterr().err
    assert error == "lingua: ghost is not alive (alive: a): the dead letter is kept\n"
    server.ask("DEL", "lingua:v1:{i:a}:inbox")
    assert main(["dlq", "replay", push]) == 1
    assert "a has no inbox: the dead letter is kept" in capsys.readouterr().err
    assert server.ask("XLEN", dlq("b")) == 1


# Drop.


def test_one_letter_is_dropped(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = bury(server, "a", PUSH, PUSH)
    assert main(["dlq", "drop", first]) == 0
    assert capsys.readouterr().out == "1 dead letter dropped\n"
    assert [row[0].decode() for row in server.ask("XRANGE", dlq("a"), "-", "+")] == [second]


def test_all_letters_are_dropped_of_all_or_of_one(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_scheduler.maintenance.dead_letter_admin.DROP_PAGE", 2)
    for name in ("a", "b"):
        bury(server, name, *[PUSH] * 5)
    assert main(["dlq", "drop", "--all", "--yes", "--instance", "a"]) == 0
    assert capsys.readouterr().out == "5 dead letters dropped\n"
    assert [server.ask("XLEN", dlq(name)) for name in ("a", "b")] == [0, 5]
    assert main(["dlq", "drop", "--all", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dropped": 5}
    assert server.ask("EXISTS", "lingua:v1:{c0}:dlqs") == 0


@pytest.mark.parametrize(
    "words", [["drop"], ["drop", "--all"], ["drop", "1-1", "--all", "--yes"], [], ["show"]]
)
def test_what_was_not_clearly_said_is_wrong_usage(
    words: list[str], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    bury(server, "a", PUSH)
    with pytest.raises(SystemExit) as ended:
        main(["dlq", *words])
    assert ended.value.code == 2
    assert "usage: lingua" in capsys.readouterr().err
    assert server.ask("XLEN", dlq("a")) == 1
