from __future__ import annotations

import asyncio
import socket

import pytest

from lingua_scheduler.config import Settings, load_settings
from lingua_scheduler.supervisor.messages import (
    NODE,
    SESSION,
    ControlSocket,
    FromWorker,
    PageAnswered,
    ToWorker,
    WorkerReady,
    hand_over,
    settings_from_json,
    settings_to_json,
    take_over,
)

pytestmark = pytest.mark.unit


def test_settings_arrive_with_their_secrets() -> None:
    key = "k" * 40
    settings = load_settings(
        None,
        {
            "LINGUA_DEPLOYMENT_MODE": "cross_instance",
            "LINGUA_REDIS__URL": "redis://user:password@store:6379",
            "LINGUA_AUTH__CLIENT_KEYS": f'["{key}"]',
            "LINGUA_DATA_DIR": "/var/lib/lingua",
            "LINGUA_SERVER__WORKERS": "auto",
        },
    )
    arrived = settings_from_json(settings_to_json(settings), Settings)
    assert arrived == settings
    assert arrived.redis.url.reveal() == "redis://user:password@store:6379"
    assert [one.reveal() for one in arrived.auth.client_keys] == [key]


def test_messages_arrive_whole_and_in_order_and_the_end_is_noticed() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        here: ControlSocket[ToWorker] = await ControlSocket.open(ours, ToWorker)
        there: ControlSocket[FromWorker] = await ControlSocket.open(theirs, FromWorker)
        large = PageAnswered(id=1, body=bytes(1 << 20))
        here.send(WorkerReady())
        here.send(large)
        reading = asyncio.create_task(all_of(there))
        await here.sent()
        here.close()
        assert await reading == [WorkerReady(), large]
        there.send(WorkerReady())
        there.close()

    asyncio.run(scenario())


async def all_of(control: ControlSocket[FromWorker]) -> list[FromWorker]:
    return [message async for message in control.messages()]


def test_connections_that_a_process_did_not_take_are_still_there_for_another() -> None:
    ours, theirs = socket.socketpair()
    left, right = socket.socketpair()
    with ours, theirs, right:
        for end in (ours, theirs):
            end.setblocking(False)  # noqa: FBT003 - the only parameter
        with left:
            hand_over(ours, left, NODE)
            hand_over(ours, left, SESSION)
        # The giver has closed its own: what was handed over is open nevertheless.
        first, kind = take_over(theirs)
        assert first is not None
        assert kind == NODE
        second, kind = take_over(theirs)
        assert second is not None
        assert kind == SESSION
        with first, second:
            second.sendall(b"hello")
            assert right.recv(5) == b"hello"
        with pytest.raises(BlockingIOError):
            take_over(theirs)
