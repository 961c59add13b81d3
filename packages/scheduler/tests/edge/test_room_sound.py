"""Translated speech for a room over real sockets: the same to all, and nobody waits for one."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import MSGPACK, play, until

if TYPE_CHECKING:
    from edge.live_server import Client, NewClient, Stage

pytestmark = pytest.mark.store


async def room_of(speaker: NewClient, *listeners: Client) -> None:
    """Gather a Chinese speaker and English listeners."""
    await speaker.send("room_create", preferred_lang="zh")
    code = (await speaker.expect("room_create_ack"))["room_code"]
    for client in listeners:
        await client.send("room_join", room_code=code, preferred_lang="en")
        await client.expect("room_members", room_code=code)
    while len((await speaker.expect("room_members"))["members"]) <= len(listeners):
        pass  # until the last one is there


def test_all_forms_of_clients_get_the_same_sound() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        speaker = await stage.client("zh", "en")
        in_json, old = await stage.client("en", "zh"), await stage.old_client("en", "zh")
        packed = await stage.client("en", "zh", form=MSGPACK)
        await room_of(speaker, in_json, old, packed)
        for index, size in enumerate((0, 3, 300_000)):
            sound = os.urandom(size)
            await speaker.utter(index)
            await node.answer(await node.job(), 'a "quoted" \\ text', tts_audio=sound)
            for client in (in_json, old, packed):
                result = await client.expect("translation_result", utterance_index=index)
                found = result["tts_audio"]
                assert (base64.b64decode(found) if isinstance(found, str) else found) == sound
                assert result["text_asr"] == 'a "quoted" \\ text'
                assert result["session_id"] == speaker.id
            await speaker.expect("outcome_passed", utterance_index=index)

    play(scenario)


def test_a_client_that_reads_late_gets_all_of_it_and_holds_nobody_up() -> None:
    count, sound = 12, os.urandom(1_000_000)

    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        speaker = await stage.client("zh", "en")
        slow, quick = [await stage.client("en", "zh", form=MSGPACK) for _ in range(2)]
        await room_of(speaker, slow, quick)
        transport: Any = slow.ws._conn.transport  # type: ignore[union-attr]
        transport.pause_reading()
        for index in range(count):
            await speaker.utter(index)
            await node.answer(await node.job(), str(index), tts_audio=sound)
            await quick.expect("translation_result", utterance_index=index)
            await speaker.expect("outcome_passed", utterance_index=index)
        session = stage.server.instance.sessions[slow.id]
        assert session.deliverer.seq < count, "all went to a client that does not read"
        transport.resume_reading()
        await until(lambda: len(slow.outcomes()) == count, "the slow one has all")
        assert slow.outcomes() == [(index, "ok") for index in range(count)]
        assert not slow.ws.closed

    play(scenario)
