"""More audio in one message than an utterance may have: what becomes of it on the wire."""

from __future__ import annotations

import base64
import random

import pytest

from edge.live_server import Stage, opus, play, until

pytestmark = pytest.mark.store

LIMITS = {
    "segmentation__max_duration_ms": 10_000,
    "segmentation__slice_search_ms": 0,
    "segmentation__voice_detector": "off",
}
# The hangover of a slice, and the part of a chunk that reached the limit.
OVER_MS = 20 + 100


def test_one_frame_of_half_a_minute_is_cut_at_the_limits_and_nothing_is_lost() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=8)
        node.work()
        client = await stage.client(audio_format="pcm16", sample_rate=16_000)
        audio = random.Random(1).randbytes(2**20)
        await client.ws.send_bytes(audio)
        await client.say(b"", is_final=True)
        await until(lambda: len(client.outcomes()) >= 4, "an outcome of each slice")
        ack = await client.bye()

        cuts = sorted(node.all("job_assign"), key=lambda job: job["utterance_index"])
        heard = [base64.b64decode(job["audio"]) for job in cuts]
        assert b"".join(heard) == audio
        assert max(len(piece) for piece in heard) <= (10_000 + OVER_MS) * 32
        assert client.outcomes() == [(index, "ok") for index in range(len(cuts))]
        accepted = client.all("utterance_accepted")
        assert [m["start_ms"] for m in accepted] == [0, *(m["end_ms"] for m in accepted[:-1])]
        assert accepted[-1]["end_ms"] == len(audio) // 32
        coverage = ack["coverage"]
        assert coverage["admitted_ms"] == coverage["delivered_ms"] == len(audio) // 32

    play(scenario, **LIMITS)


def test_a_numbered_chunk_is_taken_with_its_last_slice() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=8)
        node.work()
        client = await stage.client(audio_format="pcm16", sample_rate=16_000)
        await client.say(b"a" * 32_000)
        await client.say(b"b" * 32_000 * 21)
        await client.say(b"c" * 32_000, is_final=True)
        await until(lambda: len(client.outcomes()) >= 3, "an outcome of each slice")
        told = [m["last_seq"] for m in client.all("utterance_accepted")]
        assert told == [0, 0, 2]

    play(scenario, **LIMITS)


def test_a_chunk_of_opus_that_is_more_than_an_utterance_is_refused() -> None:
    """It cannot be parted. Nothing of it is taken, and what follows is as ever."""

    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client(audio_format="opus", sample_rate=48_000)
        await client.say(b"x" * 2001)
        error = await client.expect("error", code="INVALID_MESSAGE")
        assert "a chunk of opus cannot be sliced: 2001 bytes" in error["message"]
        await client.say(b"x" * 2000)
        await client.result(0)
        await client.say(opus(100), is_final=True)
        await client.result(1)

    play(scenario, segmentation__max_bytes=2000)


def test_a_whole_utterance_is_as_long_as_its_client_wants() -> None:
    """The limits say where speech is cut; what comes whole is bound by the size of a message."""

    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client(audio_format="pcm16", sample_rate=16_000)
        await client.utter(0, b"ab" * 16_000 * 20)
        await client.result(0)
        (job,) = node.all("job_assign")
        assert len(base64.b64decode(job["audio"])) == 32_000 * 20

    play(scenario, **LIMITS)
