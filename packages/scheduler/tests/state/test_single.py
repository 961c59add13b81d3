"""The connection to one real server: concurrency, cancellation, losses, and error replies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import hiredis
import pytest
import uvloop

from lingua_scheduler.errors import (
    OutcomeUnknown,
    StoreRejected,
    StoreUnavailable,
    StoreUnfit,
)
from lingua_scheduler.state.link import Address, LinkOptions
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.single import SingleConnection
from servers import Server, free_port, start_server, until

pytestmark = pytest.mark.store

Runner = Callable[[Coroutine[Any, Any, None]], None]
runners = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])

ECHO = Script.of("echo", "return {KEYS[1], ARGV[1]}")
ADD = Script.of("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
PUSH_TWICE = Script.of(
    "push_twice",
    "redis.call('RPUSH', KEYS[1], 'a') return redis.call('RPUSH', KEYS[1], 'b')",
)
# The first write needs no memory, the second does.
POP_AND_PUSH = Script.of(
    "pop_and_push", "redis.call('LPOP', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'b')"
)
FAIL = Script.of("fail", "return redis.call('LPUSH', KEYS[1])")

BOUND_S = 15.0


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("single"), port=free_port()) as server:
        yield server


@asynccontextmanager
async def opened(address: Address | None, **options: Any) -> AsyncIterator[SingleConnection]:
    """Open, use, close, and see that nothing is left behind."""
    assert address is not None
    before = asyncio.all_tasks()
    connection = await SingleConnection.open(address, LinkOptions(**options))
    try:
        yield connection
    finally:
        await connection.close()
    assert asyncio.all_tasks() == before


async def until_it_answers(connection: SingleConnection) -> None:
    """Call until a call succeeds; every failure on the way must be an honest one."""
    for _ in range(int(BOUND_S / 0.01)):
        try:
            assert await connection.command(0, "PING") == b"PONG"
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError(f"no answer within {BOUND_S} s")


@runners
def test_concurrent_script_calls_each_get_their_own_reply(server: Server, runner: Runner) -> None:
    async def scenario() -> None:
        for address in (server.unix_address, server.tcp_address):
            async with opened(address) as connection:
                await asyncio.gather(*(worker(connection, n) for n in range(256)))

    async def worker(connection: SingleConnection, number: int) -> None:
        for turn in range(20):
            reply = await connection.run(ECHO, 0, (f"key{number}",), (turn,))
            assert reply == [b"key%d" % number, b"%d" % turn]

    runner(scenario())


@runners
def test_ten_thousand_random_cancellations_never_mix_up_replies(
    server: Server, runner: Runner
) -> None:
    cancelled = answered = cancelled_in_flight = 0

    async def worker(connection: SingleConnection, dice: random.Random) -> None:
        nonlocal cancelled, answered, cancelled_in_flight
        while cancelled < 10_000:
            nonce = dice.randbytes(12)
            call = connection.command(0, "ECHO", nonce)
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            if dice.random() < 0.5 and call.cancel():
                cancelled += 1
                written = connection._steady.link._pending
                cancelled_in_flight += any(each.future is call for each in written)
            else:
                assert await call == nonce
                answered += 1

    async def scenario() -> None:
        async with opened(server.address) as connection:
            link = connection._steady.link
            await asyncio.gather(*(worker(connection, random.Random(n)) for n in range(32)))
            assert await connection.every_master("ECHO", "still here") == [b"still here"]
            assert connection._steady.link is link, "the connection was lost on the way"

    runner(scenario())
    assert cancelled >= 10_000
    assert answered > 1000
    assert cancelled_in_flight > 100, "the test cancelled nothing that was already written"


@runners
def test_a_stuck_server_makes_outcomes_unknown_and_is_used_again_when_it_wakes(
    tmp_path: Path, runner: Runner
) -> None:
    async def scenario(server: Server) -> None:
        options = {"call_timeout_ms": 200, "connect_timeout_ms": 200}
        async with opened(server.address, **options) as connection:
            await connection.command(0, "PING")
            server.pause()
            calls = [connection.command(0, "INCR", "n") for _ in range(10)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {OutcomeUnknown}
            late = connection.command(0, "INCR", "n")
            assert late.done(), "a call while down must not wait for the network"
            assert type(late.exception()) is StoreUnavailable
            server.resume()
            await until_it_answers(connection)
            # The server ran what it had received, once each, and nothing that failed at once.
            assert await connection.command(0, "GET", "n") == b"10"

    with start_server(tmp_path) as server:
        runner(scenario(server))


@runners
def test_a_killed_server_fails_calls_at_once_and_is_used_again_after_a_restart(
    tmp_path: Path, runner: Runner
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            for _ in range(3):
                blocked = connection.command(0, "BLPOP", "never", 10)
                await until(lambda: server.blocked_clients == 1, BOUND_S, "the call blocks")
                server.kill()
                with pytest.raises(OutcomeUnknown):
                    await blocked
                for _ in range(10):
                    call = connection.run(ECHO, 0, ("k",), ("v",))
                    assert call.done(), "a call while down must not wait for the network"
                    assert type(call.exception()) is StoreUnavailable
                    await asyncio.sleep(0.005)
                server.start()
                await until_it_answers(connection)
                # The new process knows no function; the caller does not notice.
                assert await connection.run(ECHO, 0, ("k",), ("v",)) == [b"k", b"v"]

    with start_server(tmp_path) as server:
        runner(scenario(server))


def test_flushed_functions_are_loaded_again_once_without_the_caller_noticing(
    server: Server,
) -> None:
    async def scenario() -> None:
        async with opened(server.address) as connection:
            await connection.command(0, "DEL", "sum")
            await connection.command(0, "CONFIG", "RESETSTAT")
            for _ in range(3):
                await connection.command(0, "FUNCTION", "FLUSH")
                calls = [connection.run(ADD, 0, ("sum",), (1,)) for _ in range(100)]
                await asyncio.gather(*calls)
            assert await connection.command(0, "GET", "sum") == b"300"  # each ran exactly once
            assert await connection.command(0, "FUNCTION", "LIST", "LIBRARYNAME", ADD.library.name)
        loads = server.info("commandstats")["cmdstat_function|load"]
        assert loads.startswith("calls=3,"), "each of a hundred calls loaded it"

    asyncio.run(scenario())


def test_a_known_function_is_called_by_its_name_alone(server: Server) -> None:
    async def scenario() -> None:
        async with opened(server.address) as connection:
            await connection.run(ECHO, 0, ("k",), ("v",))
            await connection.command(0, "CONFIG", "RESETSTAT")
            await asyncio.gather(*(connection.run(ECHO, 0, ("k",), (n,)) for n in range(50)))
        statistics = server.info("commandstats")
        assert statistics["cmdstat_fcall"].startswith("calls=50,")
        assert "cmdstat_function|load" not in statistics

    asyncio.run(scenario())


def test_connections_that_load_a_library_at_the_same_time_do_not_disturb_each_other(
    server: Server,
) -> None:
    async def scenario() -> None:
        async with opened(server.address) as one, opened(server.address) as other:
            await one.command(0, "DEL", "sum")
            for _ in range(5):
                await one.command(0, "FUNCTION", "FLUSH")
                calls = [each.run(ADD, 0, ("sum",), (1,)) for each in (one, other) * 20]
                await asyncio.gather(*calls)
            assert await one.command(0, "GET", "sum") == b"200"

    asyncio.run(scenario())


def test_two_libraries_live_side_by_side(server: Server) -> None:
    async def scenario() -> None:
        async with opened(server.address) as connection:
            later = Script.of("add", "return redis.call('INCRBY', KEYS[1], 2 * ARGV[1])")
            assert later.library.name != ADD.library.name
            await connection.command(0, "DEL", "sum")
            for turn in range(1, 4):
                assert await connection.run(ADD, 0, ("sum",), (1,)) == 3 * turn - 2
                assert await connection.run(later, 0, ("sum",), (1,)) == 3 * turn

    asyncio.run(scenario())


def test_calls_that_wait_for_a_library_that_cannot_be_loaded_fail_and_have_not_run(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            server.ask("ACL", "SETUSER", "default", "-function|load")
            calls = [connection.run(ADD, 0, ("sum",), (1,)) for _ in range(5)]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, StoreUnfit)
                assert "lingua config acl" in str(error)
            server.ask("ACL", "SETUSER", "default", "+function|load")
            assert await connection.run(ADD, 0, ("sum",), (1,)) == 1

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_calls_that_wait_for_a_library_when_the_connection_is_lost_have_not_run(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            call = connection.run(ADD, 0, ("sum",), (1,))
            async with asyncio.timeout(BOUND_S):
                while not connection._loading:  # noqa: ASYNC110 a poll would miss the moment
                    await asyncio.sleep(0)
            connection._steady.link.drop("for the test")
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert not isinstance(caught.value, OutcomeUnknown)
            assert connection._loading == {}

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_an_error_in_a_script_is_rejected_with_the_name_of_the_script(server: Server) -> None:
    async def scenario() -> None:
        async with opened(server.address) as connection:
            with pytest.raises(StoreRejected, match="Wrong number of args") as caught:
                await connection.run(FAIL, 0, ("k",), ())
            assert caught.value.command == "fail"
            await connection.command(0, "SET", "text", "no number")
            with pytest.raises(StoreRejected, match="store refused INCR: ERR value is not"):
                await connection.command(0, "INCR", "text")

    asyncio.run(scenario())


def test_a_loading_server_is_waited_for(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        for n in range(300):
            server.ask("SET", f"key{n}", "v" * 1024)
        server.ask("SAVE")
        async with (
            opened(server.address, call_timeout_ms=10_000) as patient,
            opened(server.address, call_timeout_ms=300) as hasty,
        ):
            server.kill()
            for connection in (patient, hasty):
                await connection._steady.link.lost.wait()
            server.launch()
            links = patient._steady, hasty._steady
            await until(lambda: all(s.link.is_connected for s in links), BOUND_S, "connected")
            with pytest.raises(StoreUnavailable, match="LOADING") as caught:
                await hasty.command(0, "GET", "key299")
            assert not isinstance(caught.value, OutcomeUnknown)
            assert await patient.command(0, "GET", "key299") == b"v" * 1024
        assert "errorstat_LOADING" in server.info("errorstats")

    # 300 keys at 5 ms each, and it answers LOADING once per kilobyte: after each key.
    slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"]
    with start_server(tmp_path, extra=[*slow, "--rdbcompression", "no"]) as server:
        asyncio.run(scenario(server))


@asynccontextmanager
async def busy_server(directory: Path) -> AsyncIterator[tuple[Server, SingleConnection]]:
    """A server in an endless script, which answers BUSY to all but SCRIPT KILL."""
    with start_server(directory, extra=["--busy-reply-threshold", "50"]) as server:
        async with opened(server.address, call_timeout_ms=10_000) as connection:
            endless = await connection.dedicated(0)
            endless.command("EVAL", "while true do end", 0)
            await until(partial(is_busy, server), BOUND_S, "the server says BUSY")
            yield server, connection
            await endless.close()


def is_busy(server: Server) -> bool:
    try:
        server.ask("PING")
    except hiredis.ReplyError as error:
        return "BUSY" in str(error)
    return False


def test_a_server_busy_with_a_long_script_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with busy_server(tmp_path) as (server, connection):
            call = connection.command(0, "ECHO", "after")
            await until(lambda: bool(connection._waiting), BOUND_S, "the call met BUSY")
            server.ask("SCRIPT", "KILL")
            assert await call == b"after"

    asyncio.run(scenario())


def test_a_call_that_waits_for_a_retry_can_be_cancelled_or_ended_by_close(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with busy_server(tmp_path) as (_, connection):
            dropped, kept = connection.command(0, "PING"), connection.command(0, "PING")
            await until(lambda: len(connection._waiting) == 2, BOUND_S, "both calls met BUSY")
            dropped.cancel()
            await until(lambda: len(connection._waiting) < 2, BOUND_S, "the retry saw the cancel")
            await until(lambda: bool(connection._waiting), BOUND_S, "the other one waits on")
            timers = list(connection._waiting.values())
            await connection.close()
            # One that ended while the link was being closed has met the closed link.
            assert not connection._waiting
            assert all(timer.cancelled() or timer.when() <= monotonic() for timer in timers)
            with pytest.raises(StoreUnavailable, match="closed by this process"):
                await kept

    asyncio.run(scenario())


def test_a_replica_is_unavailable_for_writing_and_left_until_it_is_a_master(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            link = connection._steady.link
            server.ask("REPLICAOF", "127.0.0.1", free_port())
            with pytest.raises(StoreUnavailable, match="READONLY") as caught:
                await connection.run(ADD, 0, ("n",), (1,))
            assert not isinstance(caught.value, OutcomeUnknown)
            await until(link.lost.is_set, BOUND_S, "the link to the replica is dropped")
            server.ask("REPLICAOF", "NO", "ONE")
            await until_it_answers(connection)
            assert await connection.run(ADD, 0, ("n",), (1,)) == 1

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


@runners
def test_a_dedicated_link_may_block_longer_than_a_call_and_disturbs_nobody(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        async with opened(server.address, call_timeout_ms=100) as connection:
            await connection.command(0, "DEL", "stream")
            await connection.command(0, "XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM")
            reader = await connection.dedicated(0)
            words = ("XREADGROUP", "GROUP", "g", "me", "BLOCK", 400, "STREAMS", "stream", ">")
            assert await reader.command(*words) is None
            read = reader.command(*words)
            await until(lambda: bool(reader._pending), BOUND_S, "the read is sent")
            assert await connection.command(0, "PING") == b"PONG"
            await connection.command(0, "XADD", "stream", "1-1", "f", "v")
            assert await read == [[b"stream", [[b"1-1", [b"f", b"v"]]]]]
            await reader.close()

    runner(scenario())


def test_a_dedicated_link_gives_up_on_a_stuck_server_after_block_and_timeout(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address, call_timeout_ms=100) as connection:
            reader = await connection.dedicated(0, longest_block_ms=100)
            server.pause()
            with pytest.raises(OutcomeUnknown, match="no answer within 200 ms"):
                await reader.command("BLPOP", "never", 0.1)
            await reader.close()

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_a_wrong_password_is_an_error_at_open_and_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(StoreRejected, match="WRONGPASS"):
            await SingleConnection.open(server.address, LinkOptions(password="wrong"))
        assert len(asyncio.all_tasks()) == 1
        async with opened(server.address, password="right") as connection:
            server.restart()
            await until_it_answers(connection)  # logs in again by itself

    with start_server(tmp_path, extra=["--requirepass", "right"]) as server:
        asyncio.run(scenario(server))


def test_a_password_changed_under_a_lost_connection_is_the_reason_callers_see(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address, password="old") as connection:
            server.ask("CONFIG", "SET", "requirepass", "new")
            server.password = "new"
            server.ask("CLIENT", "KILL", "TYPE", "normal")
            await connection._steady.link.lost.wait()
            await until(lambda: "WRONGPASS" in connection._steady.link.why, BOUND_S, "it is tried")
            call = connection.command(0, "PING")
            assert call.done()
            assert type(call.exception()) is StoreUnavailable
            assert "WRONGPASS" in str(call.exception())

    with start_server(tmp_path, extra=["--requirepass", "old"]) as server:
        asyncio.run(scenario(server))


@runners
def test_close_fails_pending_calls_and_later_ones(server: Server, runner: Runner) -> None:
    async def scenario() -> None:
        async with opened(server.address) as connection:
            pending = connection.command(0, "BLPOP", "never", 10)
            await until(lambda: bool(connection._steady.link._pending), BOUND_S, "it is written")
            unsent = connection.command(0, "PING")
            await connection.close()
            assert isinstance(pending.exception(), OutcomeUnknown)
            assert type(unsent.exception()) is StoreUnavailable
            with pytest.raises(StoreUnavailable, match="closed by this process"):
                await connection.run(ECHO, 0, ("k",), ("v",))

    runner(scenario())


def test_close_while_reconnecting_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with opened(
            server.address, connect_timeout_ms=5000, call_timeout_ms=50
        ) as connection:
            server.pause()
            with pytest.raises(OutcomeUnknown):
                await connection.command(0, "PING")
            files = open_files()
            # A new socket: it hangs in the login to a server that accepts and does not answer.
            await until(lambda: open_files() > files, BOUND_S, "it retries")

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_each_return_of_a_lost_server_is_a_new_generation_before_any_call_succeeds(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            await until_it_answers(connection)
            assert connection.generation == 0
            for returns in range(1, 4):
                server.kill()
                await connection._steady.link.lost.wait()
                assert connection.generation == returns - 1
                server.start()
                await until_it_answers(connection)
                assert connection.generation == returns

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_a_server_that_hung_until_its_connection_was_given_up_is_a_new_generation(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address, call_timeout_ms=100) as connection:
            server.pause()
            with pytest.raises(OutcomeUnknown):
                await connection.command(0, "PING")
            server.resume()
            await until_it_answers(connection)
            assert connection.generation >= 1  # a busy machine may lose it once more

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_the_one_server_is_asked_by_any_slot(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            (slot,) = connection.masters()
            assert await connection.command(slot, "PING") == b"PONG"

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


@pytest.mark.parametrize(
    ("setting", "reply"), [("min-replicas-to-write", "NOREPLICAS"), ("maxmemory", "OOM")]
)
def test_a_server_that_takes_no_writes_is_unavailable_and_has_run_nothing(
    setting: str, reply: str, tmp_path: Path
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            await connection.command(0, "RPUSH", "list", "first")
            server.ask("CONFIG", "SET", setting, 1)
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=reply) as caught:
                    await connection.run(PUSH_TWICE, 0, ("list",), ())
                assert not isinstance(caught.value, OutcomeUnknown)
            assert await connection.command(0, "LRANGE", "list", 0, -1) == [b"first"]
            server.ask("CONFIG", "SET", setting, 0)
            assert await connection.run(PUSH_TWICE, 0, ("list",), ()) == 3

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_on_a_server_that_is_full_nothing_of_a_script_runs_not_even_what_needs_no_memory(
    tmp_path: Path,
) -> None:
    async def scenario(server: Server) -> None:
        async with opened(server.address) as connection:
            await connection.command(0, "RPUSH", "list", "first")
            await connection.run(ECHO, 0, ("list",), ("x",))
            assert await connection.run(POP_AND_PUSH, 0, ("list",), ()) == 1
            server.ask("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(StoreUnavailable, match="OOM"):
                await connection.run(POP_AND_PUSH, 0, ("list",), ())
            assert await connection.command(0, "LRANGE", "list", 0, -1) == [b"b"]

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))
