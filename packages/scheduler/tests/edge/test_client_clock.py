"""The clock of a client may be off by any time: nothing is decided by it."""

from __future__ import annotations

import time

import pytest

from edge.live_server import Stage, opus, play

pytestmark = pytest.mark.store


@pytest.mark.parametrize("skew_ms", [0, 10**12, 4 * 10**12])
def test_playback_suspends_the_pause_whatever_the_clients_clock_says(skew_ms: int) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        playing = {"trace_id": "t", "group_id": "g"}
        for _ in range(2):
            await client.ask("tts_started", ts_start_ms=skew_ms, **playing)
            await client.ask("tts_play_ended", ts_end_ms=skew_ms + 1, **playing)
        await client.say(opus(600))
        await client.ask("tts_started", ts_start_ms=skew_ms + 5, **playing)
        await node.silent_for(500)
        await client.ask("tts_play_ended", ts_end_ms=skew_ms + 500, **playing)
        await node.job(is_timeout_triggered=True)

    play(scenario)


def test_network_times_are_those_of_the_utterance_itself() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        for index, age_ms in enumerate((900_000, 100_000, 50_000)):
            sent_at_ms = int(time.time() * 1000) - age_ms
            await client.say(opus(100), client_timestamp_ms=sent_at_ms)
            await client.say(opus(100), is_final=True, client_timestamp_ms=sent_at_ms + 10_000)
            spent = (await client.result(index))["network_timings"]["web_to_scheduler_ms"]
            assert age_ms <= spent < age_ms + 10_000

    play(scenario)
