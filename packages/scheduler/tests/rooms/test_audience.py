"""Who hears an utterance, and that speech keeps its room alive."""

from __future__ import annotations

import pytest

import servers
from lingua_scheduler.rooms.audience import UtteranceAudience
from lingua_scheduler.session.utterance import Target
from rooms.room_stage import RoomInstance, gathered, play, until

pytestmark = pytest.mark.store


def test_the_audience_follows_from_the_languages_of_the_members(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        _, (ann, *_) = await gathered(instance, ann="zh", bob="en", cid="en", dan="zh-TW", eli=None)
        alone = await instance.member("alone", "zh")
        bob, cid, dan = (
            f"{instance.cells.home_of(name).name}/{name}" for name in ("bob", "cid", "dan")
        )
        lane = Target("en", "en", f"{bob} {cid}")
        assert await instance.audience_of(ann) == UtteranceAudience((lane,), dan, is_room=True)
        assert await instance.audience_of(alone) == UtteranceAudience(())

    play(server, scenario)


def test_speech_is_noted_in_the_store_now_and_then(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann, _) = await gathered(instance, ann="zh", bob="en")

        def spoke_at() -> int:
            room = instance.cache.rooms.at(code)
            return room.spoke_at_ms if room is not None else 0

        before = spoke_at()
        for _ in range(5):
            await instance.audience_of(ann)
        await until(lambda: spoke_at() > before, "the speech is noted")
        first = spoke_at()
        await instance.audience_of(ann)
        await instance.refresh()
        assert spoke_at() == first

    play(server, scenario)
