"""People who speak, and nodes that listen meanwhile, for the tests of streams."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from edge.live_server import MSGPACK, Message, Stage, until

if TYPE_CHECKING:
    from edge.live_server import Client, Node

CHUNK_MS = 100
# Noise is voice to the detector, zeros are silence.
VOICE = Random(1).randbytes(32 * CHUNK_MS)
SILENCE = bytes(32 * CHUNK_MS)
STREAMING: dict[str, Any] = {"audio_format": "pcm16", "sample_rate": 16_000, "partials": True}


async def speak(client: Client, ms: int, chunk: bytes = VOICE) -> None:
    """Send chunks of speech, faster than they are spoken."""
    for _ in range(ms // CHUNK_MS):
        await client.say(chunk)


async def keep_speaking(client: Client) -> None:
    """Speak until cancelled."""
    while True:
        await speak(client, 100)
        await asyncio.sleep(0.02)


async def fall_silent(client: Client) -> None:
    await speak(client, 500, SILENCE)


async def listener(stage: Stage, name: str | None = None, **register: Any) -> Node:
    """Register a node that listens while one speaks."""
    return await stage.node(name, form=MSGPACK, **{"max_streams": 4, **register})


async def heard_of(node: Node) -> tuple[Message, Message]:
    """Return the next stream and its first audio."""
    stream = await node.expect("stream_open")
    audio = await node.expect("stream_audio", stream_id=stream["stream_id"])
    return stream, audio


def text_so_far(stream: Message, revision: int, **more: Any) -> dict[str, Any]:
    fields = {
        "stream_id": stream["stream_id"],
        "revision": revision,
        "upto_ms": 400,
        "stable": "good",
        "unstable": "morn",
        "translations": [{"tgt_lang": "en", "stable": "bu", "unstable": "enos"}],
    }
    return fields | more


async def in_room(stage: Stage, *languages: str, **init: Any) -> list[Client]:
    """Return people in one room, each reading a language; the first created it."""
    people: list[Client] = []
    code = ""
    for lang in languages:
        person = await stage.client(lang, "en", **{**STREAMING, **init})
        if not code:
            await person.send("room_create", preferred_lang=lang, display_name=lang)
            code = (await person.expect("room_create_ack"))["room_code"]
        else:
            await person.send("room_join", room_code=code, preferred_lang=lang)
        people.append(person)
    for person in people:
        await until(
            lambda person=person: any(
                len(m["members"]) == len(people) for m in person.all("room_members")
            ),
            "everybody is in the room",
        )
    return people
