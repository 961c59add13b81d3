"""One pipelined connection against a real server, and against peers that are not servers."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from lingua_scheduler.errors import OutcomeUnknown, StoreRejected, StoreUnavailable
from lingua_scheduler.state.calls import BATCH_CALLS_MAX, StoreCall, pack
from lingua_scheduler.state.link import Address, LinkOptions, StoreLink, refuse
from lingua_scheduler.steps import Answer
from lingua_scheduler.tasks import Tasks
from servers import Server, free_port, start_server, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.store

Runner = Callable[[Coroutine[Any, Any, None]], None]
runners = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])

HELLO_REPLY = b"*2\r\n$6\r\nserver\r\n$4\r\nfake\r\n"


class CountingTransport:
    """Passes everything on to the real transport and counts the writes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self._transport.write(data)

    def abort(self) -> None:
        self._transport.abort()


@pytest.fixture(name="server", scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("link")
    with start_server(directory, port=free_port(), unix=True) as server:
        yield server


async def connected(address: Address | None, **options: Any) -> StoreLink:
    assert address is not None
    link = StoreLink(address, LinkOptions(**options))
    await link.connect()
    return link


def counting(link: StoreLink) -> CountingTransport:
    """Count the writes of a link from now on."""
    assert link._transport is not None
    counter = CountingTransport(link._transport)
    link._transport = counter  # type: ignore[assignment]
    return counter


@runners
def test_each_call_gets_its_own_reply_over_unix_and_tcp(server: Server, runner: Runner) -> None:
    async def scenario() -> None:
        for address in (server.unix_address, server.tcp_address):
            link = await connected(address)
            replies = await asyncio.gather(*(link.command("ECHO", n) for n in range(1000)))
            assert replies == [b"%d" % n for n in range(1000)]
            await link.close()

    runner(scenario())


@runners
def test_all_calls_of_one_turn_leave_in_one_write_if_the_last_one_had_several(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        counter = counting(link)
        few = BATCH_CALLS_MAX - 1

        async def turn(calls: int) -> int:
            before = counter.writes
            made = [link.command("ECHO", n) for n in range(calls)]
            # Whatever has left by now did not wait for the end of the turn.
            at_once = counter.writes - before
            assert await asyncio.gather(*made) == [b"%d" % n for n in range(calls)]
            assert counter.writes - before <= 2
            return at_once

        # A login has one call at a time: the first one is expected to be alone.
        assert await turn(few) == 1
        writes = counter.writes
        assert await turn(few) == 0
        assert await turn(1) == 0
        assert counter.writes == writes + 2
        assert await turn(1) == 1
        assert await turn(1) == 1
        await link.close()

    runner(scenario())


@runners
def test_calls_that_fill_a_batch_leave_while_their_turn_goes_on(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        # The first leaves alone, the others together.
        await asyncio.gather(*(link.command("PING") for _ in range(3)))
        counter = counting(link)
        made, left = [], []
        for n in range(2 * BATCH_CALLS_MAX + 1):
            made.append(link.command("ECHO", n))
            left.append(counter.writes)
        full = BATCH_CALLS_MAX
        assert left == [0] * (full - 1) + [1] * full + [2] * 2
        assert await asyncio.gather(*made) == [b"%d" % n for n in range(len(made))]
        assert counter.writes == 3
        await link.close()

    runner(scenario())


@runners
def test_a_step_goes_on_after_the_tasks_whose_replies_came_before_its_own(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link, order, tasks = await connected(server.address), list[object](), []

        def ask(words: tuple[str, ...]) -> Answer:
            answer = Answer()
            until = time.monotonic() + 60
            link.submit(StoreCall(answer, pack(words), None, 0, until, expires=until))
            return answer

        async def step(number: int) -> None:
            order.append(await ask(("ECHO", str(number))))

        async def task(number: int) -> None:
            order.append(await link.command("ECHO", number))

        owner = Tasks(on_error=order.append)
        for number in range(0, 90, 3):
            owner.begin(step(number))
            owner.begin(step(number + 1))
            tasks.append(asyncio.create_task(task(number + 2)))
            await asyncio.sleep(0)
        await owner.rest(60)
        await asyncio.gather(*tasks)
        assert order == [b"%d" % number for number in range(90)]
        await link.close()

    runner(scenario())


def test_words_of_every_kind_arrive_as_their_text(server: Server) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        script = "return {ARGV[1], ARGV[2], ARGV[3], ARGV[4]}"
        reply = await link.command("EVAL", script, 0, b"\x00\r\n", "né", -7, 2.5)
        assert reply == [b"\x00\r\n", "né".encode(), b"-7", b"2.5"]
        await link.close()

    asyncio.run(scenario())


def test_an_error_reply_names_the_command_and_nothing_it_carried(server: Server) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        with pytest.raises(StoreRejected) as caught:
            await link.command("LPUSH", "a-secret-key")
        assert caught.value.command == "LPUSH"
        assert "wrong number of arguments" in caught.value.reply
        assert "a-secret-key" not in str(caught.value)
        await link.close()

    asyncio.run(scenario())


def test_the_selected_database_is_the_one_in_the_options(server: Server) -> None:
    async def scenario() -> None:
        link, other = await connected(server.address, db=3), await connected(server.address)
        await link.command("SET", "where", "three")
        assert await other.command("GET", "where") is None
        assert await link.command("GET", "where") == b"three"
        await link.close()
        await other.close()

    asyncio.run(scenario())


def test_a_password_is_used_and_a_wrong_or_missing_one_is_a_clear_error(tmp_path: Path) -> None:
    async def scenario(address: Address) -> None:
        link = await connected(address, password="right")
        assert await link.command("PING") == b"PONG"
        await link.close()
        with pytest.raises(StoreRejected, match=r"HELLO at unix:.*WRONGPASS") as caught:
            await connected(address, password="not-this")
        assert "not-this" not in str(caught.value)
        with pytest.raises(StoreRejected, match="NOAUTH"):
            await connected(address)

    with start_server(tmp_path, extra=["--requirepass", "right"]) as server:
        asyncio.run(scenario(server.address))


def test_a_named_user_logs_in_with_its_own_password(server: Server) -> None:
    async def scenario() -> None:
        link = await connected(server.address, username="worker", password="pw")
        assert await link.command("ACL", "WHOAMI") == b"worker"
        await link.close()

    server.ask("ACL", "SETUSER", "worker", "on", ">pw", "+@all", "~*")
    asyncio.run(scenario())


def test_the_password_is_not_in_the_repr_of_the_options() -> None:
    assert "hush" not in repr(LinkOptions(password="hush"))


def test_nobody_listening_is_unavailable_and_says_where(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*refused"):
            await connected(Address("127.0.0.1", port))
        with pytest.raises(StoreUnavailable, match="No such file"):
            await connected(Address.unix(str(tmp_path / "none.sock")))

    asyncio.run(scenario())


@runners
def test_a_server_that_accepts_and_does_not_answer_is_unavailable(
    tmp_path: Path, runner: Runner
) -> None:
    async def scenario(server: Server) -> None:
        server.pause()
        with pytest.raises(StoreUnavailable, match="no answer within 150 ms") as caught:
            await connected(server.address, connect_timeout_ms=150)
        assert not isinstance(caught.value, OutcomeUnknown)
        assert len(asyncio.all_tasks()) == 1

    with start_server(tmp_path) as server:
        runner(scenario(server))


async def serve_peer(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> tuple[asyncio.Server, Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", free_port())
    return listener, Address(*listener.sockets[0].getsockname())


def test_a_peer_that_echoes_is_not_taken_for_a_server() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)

    async def scenario() -> None:
        listener, address = await serve_peer(echo)
        async with listener:
            with pytest.raises(StoreUnavailable, match="not a Redis-protocol server"):
                await connected(address)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"?what\r\n", "broke the protocol"),
        (b"+PONG\r\n+PONG\r\n", "unexpected reply"),
        (b"", "closed by the server"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_dropped(sent: bytes, why: str) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(HELLO_REPLY)
        await reader.read(4096)
        writer.write(sent)
        await reader.read(4096) if sent else None

    async def scenario() -> None:
        listener, address = await serve_peer(misbehave)
        async with listener:
            link = await connected(address)
            outcomes = await asyncio.gather(link.command("PING"), return_exceptions=True)
            await link.lost.wait()
            assert why in link.why
            assert outcomes[0] == b"PONG" or isinstance(outcomes[0], OutcomeUnknown)
            with pytest.raises(StoreUnavailable, match=why):
                await link.command("PING")
            await link.close()

    asyncio.run(scenario())


@runners
def test_closing_fails_written_calls_as_unknown_and_unwritten_as_not_run(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        written = link.command("BLPOP", "never", 5)
        await until(lambda: len(link._pending) == 1, 5, "the call is written")
        unwritten = link.command("PING")
        await link.close()
        assert isinstance(written.exception(), OutcomeUnknown)
        assert type(unwritten.exception()) is StoreUnavailable
        assert link.lost.is_set()
        assert not link.is_connected
        after = link.command("PING")
        assert after.done()
        assert type(after.exception()) is StoreUnavailable

    runner(scenario())


@runners
def test_a_call_that_is_never_answered_ends_the_link_after_its_timeout(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link = await connected(server.address, call_timeout_ms=100)
        started_at = time.monotonic()
        calls = [link.command("BLPOP", "never", 5), link.command("PING")]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, OutcomeUnknown]
        assert "no answer within 100 ms" in str(outcomes[0])
        assert time.monotonic() - started_at >= 0.1  # not before its time
        await link.close()

    runner(scenario())


@runners
def test_answered_calls_never_end_a_link_however_long_it_works(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        link = await connected(server.address, call_timeout_ms=1500)
        calls = 0
        started_at = time.monotonic()
        while time.monotonic() - started_at < 2.0:
            assert await link.command("ECHO", calls) == b"%d" % calls
            calls += 1
        assert link.is_connected
        await link.close()

    runner(scenario())


@runners
def test_a_stall_of_our_own_event_loop_is_not_blamed_on_the_server(
    server: Server, runner: Runner
) -> None:
    def stall(link: StoreLink, call: StoreCall, text: str) -> None:
        time.sleep(0.2)
        refuse(link, call, text)

    async def scenario() -> None:
        stalling = StoreLink(server.address, LinkOptions(), stall)
        await stalling.connect()
        link = await connected(server.address, call_timeout_ms=100)
        # Answered after 30 ms, in the middle of the stall, so the reply is read only after the
        # call is overdue. The stall is in a socket's callback: there, uvloop runs timers next.
        call = link.command("BLPOP", "never", 0.03)
        with pytest.raises(StoreRejected):
            await stalling.command("LPUSH", "wrong number of arguments")
        assert await call is None
        assert link.is_connected
        await link.close()
        await stalling.close()

    runner(scenario())


def test_a_cancelled_call_keeps_its_place_and_its_reply_is_dropped(server: Server) -> None:
    async def scenario() -> None:
        link = await connected(server.address)
        first, second, third = (link.command("ECHO", n) for n in (1, 2, 3))
        await asyncio.sleep(0)  # the tick in which they are written
        second.cancel()
        assert (await first, await third) == (b"1", b"3")
        assert second.cancelled()
        await link.close()

    asyncio.run(scenario())


@runners
def test_the_error_of_a_call_that_nobody_awaits_makes_no_noise(
    server: Server, runner: Runner
) -> None:
    async def scenario() -> None:
        noise: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        link = await connected(server.address)
        link.command("LPUSH", "wrong number of arguments")
        for _ in range(10):
            link.command("BLPOP", "never", 5)
        assert not link.is_idle
        await link.close()
        link.command("PING")
        gc.collect()
        await asyncio.sleep(0)
        assert noise == []

    runner(scenario())


@runners
def test_a_cancelled_connect_leaves_no_socket_and_no_task(tmp_path: Path, runner: Runner) -> None:
    async def scenario(server: Server) -> None:
        server.pause()
        link = StoreLink(server.address, LinkOptions(connect_timeout_ms=5000))
        attempt = asyncio.create_task(link.connect())
        await until(lambda: link._transport is not None, 5, "the socket is connected")
        attempt.cancel()
        await asyncio.wait([attempt])
        assert attempt.cancelled()
        assert link._detached.is_set()
        assert len(asyncio.all_tasks()) == 1

    with start_server(tmp_path) as server:
        runner(scenario(server))


@runners
def test_a_connect_may_be_cancelled_at_any_of_its_steps(server: Server, runner: Runner) -> None:
    async def scenario() -> None:
        for address in (server.unix_address, server.tcp_address):
            assert address is not None
            steps = 0
            while await cancelled_after(address, steps):
                steps += 1
            assert steps

    async def cancelled_after(address: Address, steps: int) -> bool:
        link = StoreLink(address, LinkOptions())
        attempt = asyncio.create_task(link.connect())
        for _ in range(steps):
            # A step is one turn of the loop in which the socket had time to become ready.
            await asyncio.sleep(0.0005)
        attempt.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait([attempt])
        await link.close()
        return attempt.cancelled()

    runner(scenario())


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("127.0.0.1", 6379), "127.0.0.1:6379"),
        (Address("::1", 6379), "[::1]:6379"),
        (Address.unix("/run/s.sock"), "unix:/run/s.sock"),
    ],
)
def test_an_address_reads_as_people_write_it(address: Address, text: str) -> None:
    assert str(address) == text
