"""Calls of steps in batches: one command for several, each with its own answer and error."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import pytest

import servers
from lingua_scheduler.errors import OutcomeUnknown, StoreRejected
from lingua_scheduler.state.calls import (
    BATCH_BYTES_MAX,
    BATCH_CALLS_MAX,
    CallBatch,
    CallForm,
    StepCall,
    StoreCall,
    grouped,
    pack,
)
from lingua_scheduler.state.job_scripts import JobScripts
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.link import Address, LinkOptions, StoreLink
from lingua_scheduler.state.packing import pack as pack_policy
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.steps import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.state.script_runner import ScriptRunner

pytestmark = pytest.mark.store

CELL, OTHER_CELL = Cell("batches", 0), Cell("batches", 1)


POLICY = pack_policy(FleetPolicy().for_jobs())


def step(
    job: str,
    *,
    cell: Cell = CELL,
    now_ms: int = 0,
    policy: bytes = POLICY,
    payload: bytes = b"text",
) -> StepCall:
    form = CallForm.of(load_scripts()["job_settle"], cell.slot, cell.keys, (now_ms, policy))
    return StepCall(
        Answer(),
        b"",
        form.script,
        form.slot,
        1.0,
        expires=1.0,
        form=form,
        args=report(job, payload),
        size=len(payload),
    )


def report(job: str, payload: bytes = b"text") -> tuple[Any, ...]:
    """A node's report of a job, as `job_settle` takes it."""
    return (job, 1, "n1", "completed", payload)


def plain(*words: str) -> StoreCall:
    return StoreCall(Answer(), pack(words), None, 0, 1.0, expires=1.0)


def sizes(calls: list[StoreCall]) -> list[int]:
    """How many calls each command carries."""
    return [len(sent.calls) if isinstance(sent, CallBatch) else 1 for sent in grouped(calls)]


def test_neighbours_on_one_cell_go_together_and_order_is_kept() -> None:
    calls = [step(f"job-{n}") for n in range(3)]
    assert sizes([*calls]) == [3]
    between = plain("PING")
    sent = grouped([calls[0], calls[1], between, calls[2]])
    assert [type(each).__name__ for each in sent] == ["CallBatch", "StoreCall", "StepCall"]
    assert grouped([]) == []


def test_other_cells_and_other_times_do_not_go_together() -> None:
    assert sizes([step("j"), step("j", cell=OTHER_CELL)]) == [1, 1]
    assert sizes([step("j", now_ms=5), step("j", now_ms=6)]) == [1, 1]


def test_calls_with_other_policies_do_not_go_together() -> None:
    other = pack_policy(FleetPolicy(attempts_max=7).for_jobs())
    assert sizes([step("j"), step("j", policy=other)]) == [1, 1]


def test_a_batch_names_the_time_and_the_policy_once() -> None:
    (batch,) = grouped([step(f"job-{n}") for n in range(3)])
    assert batch.command().count(POLICY) == 1


def test_a_batch_is_bounded_in_calls_and_in_bytes() -> None:
    assert sizes([step(f"job-{n}") for n in range(BATCH_CALLS_MAX + 2)]) == [BATCH_CALLS_MAX, 2]
    large = b"x" * (BATCH_BYTES_MAX // 2 - 1000)
    assert sizes([step("j", payload=large) for _ in range(5)]) == [2, 2, 1]
    assert sizes([step("j", payload=3 * large) for _ in range(2)]) == [1, 1]


class Recorder:
    """In place of a runner: keeps how long it was told that calls are."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def ask(self, *_: Any, size: int, **__: Any) -> None:
        self.sizes.append(size)


def test_audio_bodies_and_payloads_count_towards_the_size_of_a_batch() -> None:
    recorder = Recorder()
    jobs = JobScripts(cast("ScriptRunner", recorder), FleetPolicy())
    spec = JobSpec(session="s", index=0, lane="es", demand="en>es|asr|||||")
    jobs.submit_all(CELL, (("a", spec, bytes(10), 0), ("b", spec, bytes(20), 0)), bytes(300))
    jobs.settle(CELL, "a", 1, "n1", kind="completed", payload=bytes(7))
    jobs.settle(CELL, "b", 1, "n1", kind="completed", payload=(bytes(50), bytes(4)))
    assert recorder.sizes == [330, 7, 54]


def test_a_call_that_is_sent_again_goes_alone() -> None:
    calls = [step(f"job-{n}") for n in range(4)]
    calls[1].turns = 1
    assert sizes([*calls]) == [1, 1, 2]


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("calls")) as server:
        yield server


async def connected(server: servers.Server) -> SingleConnection:
    return await SingleConnection.open(server.address, LinkOptions())


def test_each_call_of_a_batch_gets_its_own_answer_on_a_server_that_lacks_the_library(
    server: servers.Server,
) -> None:
    async def scenario() -> None:
        connection = await connected(server)
        await connection.every_master("FUNCTION", "FLUSH")
        for _ in range(2):
            connection.command(0, "PING")  # the first call of a turn may leave alone
            unknown, unplaced, foreign = (
                ask(connection, "job_settle", *report("job-1")),
                ask(connection, "job_submit", b"", "job-2", spec_of("s-gone"), b"body", 0),
                ask(connection, "job_settle", *report("job-3")),
            )
            assert (await unknown)[0] == Reply.NO_JOB
            assert (await unplaced)[0][0] == Reply.NO_SESSION
            assert (await foreign)[0] == Reply.NO_JOB
        await connection.close()

    asyncio.run(scenario())


def ask(connection: SingleConnection, name: str, *args: Any) -> Any:
    form = CallForm.of(load_scripts()[name], CELL.slot, CELL.keys, (0, POLICY))
    size = sum(len(word) for word in args if isinstance(word, bytes))
    return connection.ask(form, args, list, size)


def spec_of(session: str) -> bytes:
    return pack_policy(JobSpec(session=session, index=0, lane="es", demand="en>es|asr|||||"))


def test_an_error_of_one_call_is_its_own(server: servers.Server) -> None:
    async def scenario() -> None:
        connection = await connected(server)
        await connection.command(0, "SET", CELL.key("job", "broken"), "no hash")
        connection.command(0, "PING")  # the first call of a turn may leave alone
        calls = [
            ask(connection, "job_settle", *report("job-1")),
            ask(connection, "job_settle", *report("broken")),
            ask(connection, "job_submit", b"", "job-2", b"no spec", b"body", 0),
            ask(connection, "job_settle", *report("job-3")),
        ]
        assert (await calls[0])[0] == Reply.NO_JOB
        with pytest.raises(StoreRejected, match="WRONGTYPE"):
            await calls[1]
        # An error of Lua.
        with pytest.raises(StoreRejected, match="job_submit"):
            await calls[2]
        assert (await calls[3])[0] == Reply.NO_JOB
        await connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("reply", [b"*1\r\n:0\r\n", b":0\r\n", b"$-1\r\n"])
def test_a_batch_without_an_answer_for_each_call_fails_all_of_them(reply: bytes) -> None:
    async def scenario() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"HELLO")
            writer.write(b"*2\r\n$6\r\nserver\r\n$4\r\nfake\r\n")
            await reader.readuntil(b"PING")
            writer.write(b"+PONG\r\n")
            await reader.readuntil(b"FCALL")
            writer.write(reply)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = StoreLink(Address("127.0.0.1", port), LinkOptions())
        await link.connect()
        calls = [step(f"job-{number}") for number in range(3)]
        link.command("PING")  # the first call of a turn may leave alone
        for call in calls:
            call.expires = monotonic() + 60
            link.submit(call)
        for call in calls:
            with pytest.raises(OutcomeUnknown, match="broke the protocol"):
                await call.future
        await link.close()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
