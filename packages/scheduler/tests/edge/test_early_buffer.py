"""Messages before the first answer are buffered in order, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from lingua_scheduler.edge.early_buffer import BYTES_MAX, MESSAGES_MAX, EarlyBuffer

pytestmark = pytest.mark.unit


class Line:
    """The part of a WebSocket that an early buffer uses: its receiver, and how it was closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.closed: list[int] = []
        self.got: list[tuple[str, bytes]] = []
        self.receiver = self

    def close(self, code: int, reason: str) -> None:
        self.is_open = False
        self.closed.append(code)

    def text(self, data: bytes) -> None:
        self.got.append(("text", data))

    def binary(self, data: bytes) -> None:
        self.got.append(("binary", data))
        if data == b"last":
            self.is_open = False


def waiting(line: Line) -> EarlyBuffer:
    return EarlyBuffer(cast("Any", line))


def test_what_came_early_is_handed_on_in_order() -> None:
    line = Line()
    phase = waiting(line)
    phase.text(b"1")
    phase.binary(b"2")
    phase.text(b"3")
    assert line.got == []
    phase.deliver()
    assert line.got == [("text", b"1"), ("binary", b"2"), ("text", b"3")]


def test_nothing_is_handed_on_once_the_wire_was_closed() -> None:
    line = Line()
    phase = waiting(line)
    phase.binary(b"last")
    phase.text(b"too late")
    phase.deliver()
    assert line.got == [("binary", b"last")]


@pytest.mark.parametrize(
    ("size", "allowed"), [(1, MESSAGES_MAX), (1 << 20, BYTES_MAX >> 20)], ids=["count", "bytes"]
)
def test_who_sends_too_much_ahead_is_closed(size: int, allowed: int) -> None:
    line = Line()
    phase = waiting(line)
    for _ in range(allowed):
        phase.binary(bytes(size))
    assert line.closed == []
    phase.binary(bytes(size))
    assert line.closed == [4429]


def test_a_peer_is_not_left_hanging_by_an_error_of_ours() -> None:
    line = Line()

    async def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(waiting(line).close_unless_answered(fails()))
    assert line.closed == [1011]


def test_an_answer_closes_nothing() -> None:
    line = Line()

    async def answers() -> None:
        await asyncio.sleep(0)

    asyncio.run(waiting(line).close_unless_answered(answers()))
    assert line.closed == []
