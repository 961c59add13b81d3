"""Who hears an utterance, and that speech keeps its room alive."""

from __future__ import annotations

import pytest

import servers
from lingua_scheduler.jobs.profile import Profile
from lingua_scheduler.rooms.audience import UtteranceAudience
from lingua_scheduler.session.utterance import Target
from lingua_wire.from_client import SessionInit
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


def test_languages_that_are_only_read_need_no_speech(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann, _) = await gathered(instance, ann="zh", bob="en")
        profile = Profile.of(
            SessionInit(src_lang="zh", tgt_lang="en"), tenant="", labels=(), paired=""
        )
        for lang in ("en", "fr", "zh"):
            await instance.store.feed(code, "", lang, "i1", 1)
        cell = instance.store.cell_of(code).name
        bob = f"{instance.cells.home_of('bob').name}/bob"
        found = await instance.audience.of_utterance(ann.id, profile)
        heard, read = found.targets
        assert heard == Target("en", "en", f"{cell}/@{code}|en {bob}")
        assert read == Target("fr", "fr", f"{cell}/@{code}|fr", is_read=True)
        assert found.readers == f"{cell}/@{code}|zh"
        assert "tts" in profile.demand_for(heard)
        assert profile.demand_for(read) == "zh>fr|asr,nmt|||||"
        assert not profile.stages_of(read).use_tts

    play(server, scenario)


def test_where_all_read_what_is_spoken_it_is_only_recognised(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann, dan) = await gathered(instance, ann="zh", dan="zh-TW")
        profile = Profile.of(
            SessionInit(src_lang="zh", tgt_lang="en"), tenant="", labels=(), paired=""
        )
        await instance.store.feed(code, "", "zh", "i1", 1)
        cell = instance.store.cell_of(code).name
        found = await instance.audience.of_utterance(ann.id, profile)
        assert found.targets == (Target("zh", "zh", f"{cell}/@{code}|zh", is_read=True),)
        assert found.readers == f"{dan.home.name}/dan"
        assert profile.demand_for(found.targets[0]) == "zh>|asr|||||"

    play(server, scenario)
