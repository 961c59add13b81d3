"""Streams over several cells: who is asked, in which order, and that nothing of them is left."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.deployment import TO_SPANISH, Deployment, Speaker, scenario
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.stream_scripts import (
    STREAM_LEASE_MS,
    OpenedStream,
    StreamAnswer,
    StreamSpec,
    new_stream_id,
)

pytestmark = pytest.mark.store


async def listen(
    d: Deployment, speaker: Speaker, stream: str = "", **more: Any
) -> tuple[StreamAnswer, OpenedStream | None]:
    """Ask for a node that hears the speaker."""
    spec = StreamSpec(session=speaker.session, lane="es", demand=TO_SPANISH, **more)
    return await d.dispatcher.open_stream(speaker.home, stream or new_stream_id(), spec)


async def opened(d: Deployment, speaker: Speaker, **more: Any) -> OpenedStream:
    answer, stream = await listen(d, speaker, **more)
    assert answer.reply is Reply.STREAM_OPENED, answer
    assert stream is not None
    return stream


async def streams_left(d: Deployment) -> list[str]:
    """Return the keys of streams in all cells; the ranks of nodes are no streams."""
    keys = [key for cell in d.cells.all for key in await d.keys(cell, "stream*")]
    return [key for key in keys if not key.startswith("streaming:")]


def test_ids_are_new() -> None:
    assert len({new_stream_id() for _ in range(100)}) == 100


@scenario()
async def test_the_home_cell_is_asked_alone_if_it_has_a_node(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(home, streams=1)
    await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    d.store.called()
    stream = await opened(d, speaker)
    assert stream.holder == f"{home.name}/{node}"
    assert d.store.called() == [("stream_open", home.name)]


@scenario()
async def test_other_cells_are_asked_if_the_home_cell_has_none(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(home)
    node = await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    assert (await opened(d, speaker)).holder == f"{other.name}/{node}"
    answer, none = await listen(d, speaker)
    assert (answer.reply, answer.label, none) == (Reply.NO_AVAILABLE_NODE, "no_free_stream", None)


@scenario(cells=4)
async def test_no_more_than_two_other_cells_are_asked(d: Deployment) -> None:
    home, *others = d.cells.all
    for cell in others:
        await d.ready_node(cell, streams=1 if cell is others[2] else 0)
    speaker = await d.speaker(home)
    d.store.called()
    answer, _ = await listen(d, speaker)
    assert answer.stream is None
    assert [cell for _, cell in d.store.called()] == [
        home.name,
        *(cell.name for cell in others[:2]),
    ]


@scenario()
async def test_a_session_that_is_refused_is_not_heard_elsewhere(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    answer, stream = await listen(d, speaker, fence=7)
    assert (answer.reply, stream) == (Reply.FENCED, None)
    assert await streams_left(d) == []


@scenario()
async def test_the_turns_node_and_the_preferred_one_may_be_in_other_cells(d: Deployment) -> None:
    home, other, third = d.cells.all
    near = await d.ready_node(home, streams=1)
    turns = await d.ready_node(other, streams=1, slots=3)
    preferred = await d.ready_node(third, streams=1)
    speaker = await d.speaker(home)
    first = await speaker.placed(0, turn="t", preferred=turns)
    assert first.node == turns
    heard = [(await opened(d, speaker, turn="t", preferred=preferred)).node for _ in range(3)]
    assert heard == [turns, preferred, near]


@scenario()
async def test_a_job_goes_to_the_node_of_another_cell_that_heard_it(d: Deployment) -> None:
    home, other, _ = d.cells.all
    node = await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    stream = await opened(d, speaker)
    await d.ready_node(home)
    placed = await speaker.placed(0, stream=stream.id, stream_node=stream.holder)
    assert (placed.cell, placed.node) == (other.name, node)
    assert await streams_left(d) == []


@scenario()
async def test_a_job_is_placed_elsewhere_if_the_node_that_heard_it_is_full(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    stream = await opened(d, speaker)
    await speaker.placed(0)
    near = await d.ready_node(home)
    placed = await speaker.placed(1, stream=stream.id, stream_node=stream.holder)
    assert placed.node == near
    assert await streams_left(d) == []


@scenario()
async def test_the_node_that_heard_a_job_at_home_comes_before_a_preferred_one_elsewhere(
    d: Deployment,
) -> None:
    home, other, _ = d.cells.all
    near, far = await d.ready_node(home, streams=1), await d.ready_node(other)
    speaker = await d.speaker(home)
    for node in (near, far):
        stream = await opened(d, speaker)
        assert stream.node == near
        placed = await speaker.placed(
            0 if node == near else 1, stream=stream.id, stream_node=stream.holder, preferred=far
        )
        assert placed.node == node
    assert await streams_left(d) == []


@scenario()
async def test_streams_of_several_cells_are_renewed_with_one_call_each(d: Deployment) -> None:
    home, other, _ = d.cells.all
    speaker = await d.speaker(home)
    await d.ready_node(home, streams=2)
    await d.ready_node(other, streams=1)
    streams = [await opened(d, speaker) for _ in range(3)]
    d.store.called()
    d.advance(STREAM_LEASE_MS - 1)
    assert await d.dispatcher.renew_streams(streams) == []
    assert sorted(d.store.called()) == [
        ("stream_renew", home.name),
        ("stream_renew", other.name),
    ]
    d.advance(STREAM_LEASE_MS - 1)
    assert await d.dispatcher.renew_streams(streams[:1]) == []
    d.advance(1)
    gone = await d.dispatcher.renew_streams(streams)
    assert sorted(gone) == sorted(stream.id for stream in streams[1:])


@scenario()
async def test_a_stream_is_closed_once(d: Deployment) -> None:
    home, *_ = d.cells.all
    await d.ready_node(home, streams=1)
    stream = await opened(d, await d.speaker(home))
    assert [await d.dispatcher.close_stream(stream) for _ in range(2)] == [True, False]
    assert await streams_left(d) == []


async def _unavailable() -> None:
    raise StoreUnavailable("a server", "it is away")


@scenario()
async def test_a_cell_that_is_away_ends_no_stream_and_stops_no_job(d: Deployment) -> None:
    home, other, _ = d.cells.all
    await d.ready_node(other, streams=1)
    speaker = await d.speaker(home)
    stream = await opened(d, speaker)
    d.store.before("stream_renew", _unavailable)
    assert await d.dispatcher.renew_streams([stream]) == []
    d.store.before("stream_close", _unavailable)
    assert not await d.dispatcher.close_stream(stream)
    d.store.before("stream_close", _unavailable)
    assert await speaker.placed(0, stream=stream.id, stream_node=stream.holder)
    d.advance(STREAM_LEASE_MS)
    assert await d.dispatcher.renew_streams([stream]) == [stream.id]


@scenario()
async def test_another_cell_that_is_away_is_passed_over(d: Deployment) -> None:
    home, other, third = d.cells.all
    await d.ready_node(other, streams=1)
    node = await d.ready_node(third, streams=1)
    speaker = await d.speaker(home)

    async def asks_the_second_cell_next() -> None:
        d.store.before("stream_open", _unavailable)

    d.store.before("stream_open", asks_the_second_cell_next)
    assert (await opened(d, speaker)).node == node
