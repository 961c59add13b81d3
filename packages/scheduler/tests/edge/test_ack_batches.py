"""Acknowledgements in batches: together, soon, before the socket is closed, and only if wanted."""

from __future__ import annotations

import asyncio

import pytest

from edge.live_server import until
from lingua_scheduler.edge.ack_batches import AckTimer, BatchingOutlet, batching
from lingua_wire.from_node import NodeRegister
from lingua_wire.to_node import JobCancel, JobResultAck, JobResultAcks, ToNode
from runtime.stand_ins import NodeSocket, Scene

pytestmark = pytest.mark.unit


def ack(job: str, status: str = "accepted") -> JobResultAck:
    return JobResultAck(job_id=job, attempt_id=1, status=status)


def jobs_in(messages: list[ToNode]) -> list[list[tuple[str, str]]]:
    """Return job and status of every acknowledgement, message by message."""
    return [
        [(one.job_id, one.status) for one in message.results]
        for message in messages
        if isinstance(message, JobResultAcks)
    ]


async def until_sent(socket: NodeSocket) -> None:
    await until(lambda: socket.sent, "a message was sent")


def test_only_a_node_that_says_so_gets_batches() -> None:
    socket, timer = NodeSocket(), AckTimer()
    assert batching(NodeRegister(boot_id="b"), socket, timer) is socket
    assert batching(NodeRegister(boot_id="b", batches_acks=False), socket, timer) is socket
    outlet = batching(NodeRegister(boot_id="b", batches_acks=True), socket, timer)
    assert isinstance(outlet, BatchingOutlet)
    assert outlet.traits == socket.traits


def test_the_acknowledgements_of_a_moment_are_one_message() -> None:
    async def scenario() -> None:
        socket = NodeSocket()
        outlet = BatchingOutlet(socket, AckTimer())
        assert all(outlet.send(ack(job)) for job in ("j1", "j2"))
        assert outlet.send(ack("j3", "stale"))
        assert socket.sent == []
        await until_sent(socket)
        told = [("j1", "accepted"), ("j2", "accepted"), ("j3", "stale")]
        assert jobs_in(socket.take()) == [told]
        outlet.send(ack("j4"))
        await until_sent(socket)
        assert jobs_in(socket.take()) == [[("j4", "accepted")]]

    asyncio.run(scenario())


def test_each_node_gets_its_own() -> None:
    async def scenario() -> None:
        timer, sockets = AckTimer(), [NodeSocket(), NodeSocket()]
        for number, socket in enumerate(sockets):
            outlet = BatchingOutlet(socket, timer)
            outlet.send(ack(f"j{number}"))
        for number, socket in enumerate(sockets):
            await until_sent(socket)
            assert jobs_in(socket.sent) == [[(f"j{number}", "accepted")]]

    asyncio.run(scenario())


def test_nothing_else_waits() -> None:
    async def scenario() -> None:
        socket, assign = NodeSocket(), Scene().job(0).assign
        outlet = BatchingOutlet(socket, AckTimer())
        outlet.send(ack("j1"))
        cancel = JobCancel(job_id="j2", reason="cancelled", attempt_id=1)
        assert outlet.send(cancel)
        assert outlet.assign(assign, "")
        assert socket.take() == [cancel, assign]
        await until_sent(socket)

    asyncio.run(scenario())


def test_a_socket_is_closed_after_what_it_was_owed() -> None:
    async def scenario() -> None:
        socket = NodeSocket()
        outlet = BatchingOutlet(socket, AckTimer())
        outlet.send(ack("j1"))
        outlet.close(1001, "the instance stops")
        assert (jobs_in(socket.take()), socket.closed_with) == ([[("j1", "accepted")]], 1001)
        # What was sent is not sent again when its time has come.
        other = BatchingOutlet(NodeSocket(), outlet._timer)
        other.send(ack("j2"))
        outlet._timer._send_all()
        assert socket.sent == []

    asyncio.run(scenario())


def test_a_lost_socket_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        timer, alive = AckTimer(), NodeSocket()
        lost = BatchingOutlet(NodeSocket(is_dead=True), timer)
        lost.send(ack("j1"))
        BatchingOutlet(alive, timer).send(ack("j2"))
        await until_sent(alive)
        assert jobs_in(alive.sent) == [[("j2", "accepted")]]

    asyncio.run(scenario())
