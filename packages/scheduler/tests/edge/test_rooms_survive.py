"""Rooms while instances die and people move: who hears what is decided when it is cut.

The listeners of an utterance are kept in the store with it. An owner that takes over a speaker must
deliver to these listeners, and not to the members that the room has by then.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edge.live_server import Message, NewClient, opus, until
from edge.many_servers import Company, Traveller, heard_all, play
from lingua_scheduler.errors import StoreUnavailable

pytestmark = pytest.mark.store

# Nobody is declared dead in a scenario that is about something else.
PATIENT = {"instances__silence_ms": 10_000}

RESULT = "translation_result"


async def open_room(creator: NewClient, lang: str = "zh") -> str:
    await creator.send("room_create", preferred_lang=lang)
    return str((await creator.expect("room_create_ack"))["room_code"])


async def enter(client: NewClient, code: str, lang: str) -> None:
    await client.send("room_join", room_code=code, preferred_lang=lang)
    await client.expect("room_members", room_code=code)


async def knows(company: Company, name: str, code: str, *members: str) -> None:
    """Wait until an instance knows who is in a room."""
    rooms = company[name].server.instance.rooms.cache.rooms

    def is_known() -> bool:
        room = rooms.at(code)
        return room is not None and sorted(room.members) == sorted(members)

    await until(is_known, f"{name} knows the members")


async def nothing_more(client: NewClient) -> None:
    """Everything that was on its way to a client is there."""
    await client.send("client_heartbeat", session_id=client.id, timestamp=1)
    await client.expect("server_heartbeat")


def results(client: NewClient | Traveller) -> list[Message]:
    return [message for message in client.heard if message["type"] == RESULT]


# The speaker's instance dies, and the speaker is gone


@pytest.mark.parametrize("kind", ["resumable", "old"])
def test_what_was_said_is_heard_though_the_speaker_and_its_instance_are_gone(kind: str) -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        join = company["A"].client if kind == "resumable" else company["A"].old_client
        speaker = await join("zh", "en")
        code = await open_room(speaker)
        await enter(listener, code, "en")
        await knows(company, "A", code, speaker.id, listener.id)
        await speaker.utter(0, opus(300))
        job = await node.job()
        await company["A"].crash()
        await node.answer(job)
        heard = await listener.result(0, session_id=speaker.id)
        assert heard["text_translated"] == "hello:en"

    play(scenario)


def test_a_job_that_is_under_way_when_its_speaker_lapses_is_finished_for_its_listeners() -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        speaker = await company["A"].old_client("zh", "en")
        code = await open_room(speaker)
        await enter(listener, code, "en")
        await knows(company, "A", code, speaker.id, listener.id)
        await speaker.utter(0, opus(300))
        job = await node.job()
        await company["A"].crash()
        await until(
            lambda: (
                company.ask("ZSCORE", company.key("due"), f"s|{speaker.id}") is not None
                and float(company.ask("ZSCORE", company.key("due"), f"s|{speaker.id}"))
                < float(company.ask("TIME")[0]) * 1000 + 900
            ),
            "the session's lease is over",
        )
        assert company.ask("HEXISTS", company.key("session", speaker.id), "closed") == 0
        await node.answer(job)
        await listener.result(0, session_id=speaker.id)
        await until(
            lambda: company.ask("HEXISTS", company.key("session", speaker.id), "closed") == 1,
            "the session is closed",
        )

    play(scenario, sessions__lease_ms=1000)


def test_the_last_sentence_is_heard_though_its_speaker_closes_and_the_instance_dies() -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        speaker = await company["A"].client("zh", "en")
        code = await open_room(speaker)
        await enter(listener, code, "en")
        await knows(company, "A", code, speaker.id, listener.id)
        await speaker.utter(0, opus(300))
        job = await node.job()
        await speaker.send("session_close", session_id=speaker.id, reason="done")
        await knows(company, "B", code, listener.id)
        await company["A"].crash()
        await node.answer(job)
        await listener.result(0, session_id=speaker.id)

    play(scenario)


# `outcome_passed` is true when it is told


def test_passed_is_told_when_every_listener_has_it_whoever_brings_it_there() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        code = await open_room(speaker.socket)
        # As many as it takes for each cell to have one.
        listeners = [await company["B"].client("en", "zh") for _ in range(8)]
        for listener in listeners:
            await enter(listener, code, "en")
        everybody = [speaker.id, *(listener.id for listener in listeners)]
        await knows(company, "A", code, *everybody)
        # B, which has the node, cannot reach other cells; A does not hear of it.
        store = company["B"].server.instance.store
        bring, store.outbox.put = store.outbox.put, _unreachable
        await company["A"].fall_silent()
        await speaker.socket.utter(0, opus(300))
        await node.answer(await node.job())
        home = company["A"].server.instance.sessions[speaker.id].record.home
        near = [x for x in listeners if _home(company, x.id) is home]
        assert len(near) < len(listeners)
        await until(lambda: all(results(x) for x in near), "those of its own cell have it")
        assert not any(results(x) for x in listeners if x not in near)
        assert not [m for m in speaker.heard if m["type"] == "outcome_passed"]
        await company["A"].crash()
        store.outbox.put = bring
        for listener in listeners:
            await listener.result(0, session_id=speaker.id)
        await speaker.come_back("B")
        passed = await speaker.socket.expect("outcome_passed")
        assert (passed["utterance_index"], passed["tgt_lang"]) == (0, "en")
        assert all(len(results(listener)) == 1 for listener in listeners)

    play(scenario, cells=3)


async def _unreachable(*_: object) -> None:
    raise StoreUnavailable("test", "cut off")


def _home(company: Company, session: str) -> object:
    return company["B"].server.instance.sessions[session].record.home


def test_readers_of_the_speakers_language_lose_nothing_with_the_speakers_instance() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        speaker = await Traveller.at(company, "A")
        await speaker.socket.send("room_create", preferred_lang="zh")
        code = (await speaker.socket.expect("room_create_ack"))["room_code"]
        reader = await company["B"].client("zh", "en")
        await reader.send("room_join", room_code=code, preferred_lang="zh")
        listener = await company["B"].client("en", "zh")
        await listener.send("room_join", room_code=code, preferred_lang="en")
        await speaker.socket.expect("room_members")
        rooms = company["A"].server.instance.rooms.cache.rooms
        await until(lambda: len(rooms.at(code).members) == 3, "all are in")
        await speaker.say(opus(100), is_final=True)
        job = await node.job()
        await speaker.socket.expect("utterance_accepted")
        await company["A"].crash()
        await node.answer(job, "said")
        await until(lambda: company.outbox_length(speaker.id) == 1, "it is settled")
        await speaker.come_back("B")
        await heard_all(listener, 1)
        await heard_all(reader, 1)

    play(scenario, **PATIENT)


# Who hears it does not change afterwards


def test_what_was_said_alone_is_not_heard_by_a_room_that_is_entered_later() -> None:
    async def scenario(company: Company) -> None:
        node, other = await company["B"].node(), await company["B"].client("en", "zh")
        code = await open_room(other, "en")
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        await speaker.socket.utter(0, opus(300))
        job = await node.job()
        await enter(speaker.socket, code, "zh")
        await company["A"].crash()
        await speaker.come_back("B")
        await node.answer(job)
        await speaker.socket.result(0)
        await nothing_more(other)
        assert not results(other)

    play(scenario)


def test_what_was_said_in_one_room_is_not_heard_in_the_next() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        first, second = [await company["B"].client("en", "zh") for _ in range(2)]
        one, two = await open_room(first, "en"), await open_room(second, "en")
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        await enter(speaker.socket, one, "zh")
        await speaker.socket.utter(0, opus(300))
        job = await node.job()
        await speaker.socket.send("room_leave", room_code=one)
        await knows(company, "B", one, first.id)
        await enter(speaker.socket, two, "zh")
        await company["A"].crash()
        await speaker.come_back("B")
        await node.answer(job)
        await first.result(0, session_id=speaker.id)
        await speaker.socket.expect("outcome_passed")
        await nothing_more(second)
        assert not results(second)
        assert not results(speaker)

    play(scenario)


def test_what_was_said_before_leaving_is_heard_by_the_room() -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        code = await open_room(listener, "en")
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        await enter(speaker.socket, code, "zh")
        await speaker.socket.utter(0, opus(300))
        job = await node.job()
        await speaker.socket.send("room_leave", room_code=code)
        await knows(company, "B", code, listener.id)
        await company["A"].crash()
        await speaker.come_back("B")
        await node.answer(job)
        await listener.result(0, session_id=speaker.id)
        await speaker.socket.expect("outcome_passed")
        assert not results(speaker)

    play(scenario)


def test_a_late_joiner_does_not_hear_what_was_said_before() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        early, late = [await company["B"].client("en", "zh") for _ in range(2)]
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        code = await open_room(speaker.socket)
        await enter(early, code, "en")
        await knows(company, "A", code, speaker.id, early.id)
        await speaker.socket.utter(0, opus(300))
        job = await node.job()
        await enter(late, code, "en")
        await company["A"].crash()
        await speaker.come_back("B")
        await node.answer(job)
        await early.result(0, session_id=speaker.id)
        await nothing_more(late)
        assert not results(late)

    play(scenario)


class SilentPeers:
    """The way to other instances, which leads nowhere."""

    def __init__(self, instance: str) -> None:
        self.instance = instance

    def write(self, to: str, message: object) -> None:
        """Lose a message."""

    async def send(self, to: str, message: object) -> bool:
        return True


def test_who_was_told_that_it_is_in_hears_what_is_said_next_whatever_letters_are_lost() -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        speaker = await company["A"].client("zh", "en")
        code = await open_room(speaker)
        # B tells its own client and no other instance.
        cache = company["B"].server.instance.rooms.cache
        cache.peers = SilentPeers("B")
        await enter(listener, code, "en")
        await speaker.utter(0, opus(300))
        await node.answer(await node.job())
        await listener.result(0, session_id=speaker.id)
        await listener.send("room_leave", room_code=code)
        await until(lambda: not company["B"].server.instance.rooms.cache.rooms.codes(), "it left")
        await speaker.utter(1, opus(300))
        await node.answer(await node.job())
        await speaker.result(1)
        await nothing_more(listener)
        assert len(results(listener)) == 1

    play(scenario)


def test_a_listener_who_changes_language_hears_what_was_said_in_the_old_one() -> None:
    async def scenario(company: Company) -> None:
        node, listener = await company["B"].node(), await company["B"].client("en", "zh")
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        code = await open_room(speaker.socket)
        await enter(listener, code, "en")
        await knows(company, "A", code, speaker.id, listener.id)
        await speaker.socket.utter(0, opus(300))
        job = await node.job()
        await listener.send("session_update", session_id=listener.id, preferred_lang="ja")
        rooms = company["B"].server.instance.rooms.cache.rooms
        await until(lambda: rooms.at(code).members[listener.id].preferred_lang == "ja", "it is ja")
        await company["A"].crash()
        await speaker.come_back("B")
        await node.answer(job)
        assert (await listener.result(0, session_id=speaker.id))["tgt_lang"] == "en"

    play(scenario)


def test_who_reads_along_reads_on_when_the_speakers_instance_dies() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        listener, reader = (
            await company["B"].client("en", "zh"),
            await company["B"].client("zh", "en"),
        )
        speaker = await company["A"].client("zh", "en")
        code = await open_room(speaker)
        await enter(listener, code, "en")
        await enter(reader, code, "zh")
        await knows(company, "A", code, speaker.id, listener.id, reader.id)
        await speaker.utter(0, opus(300))
        job = await node.job()
        await company["A"].crash()
        await node.answer(job)
        await listener.result(0, session_id=speaker.id)
        read = await reader.result(0, session_id=speaker.id)
        assert (read["text_translated"], read["tts_audio"]) == (read["text_asr"], "")
        assert "tgt_lang" not in read

    play(scenario)


# What is being said when something changes


def test_entering_a_room_ends_what_was_being_said_for_oneself() -> None:
    async def scenario(company: Company) -> None:
        node, other = await company["B"].node(), await company["B"].client("en", "zh")
        node.work()
        code = await open_room(other, "en")
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        await speaker.say(opus(600))
        await enter(speaker.socket, code, "zh")
        await company["A"].crash()
        await speaker.come_back("B")
        await speaker.say(opus(600), is_final=True)
        # A fast node has answered before the crash.
        await until(lambda: results(speaker), "its own result, on either socket")
        await other.result(1, session_id=speaker.id)
        assert [m["utterance_index"] for m in results(other)] == [1]
        assert {m["utterance_index"] for m in results(speaker)} == {0}

    play(scenario)


def test_speech_keeps_its_language_when_it_moves_after_an_update() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        speaker = await Traveller.at(company, "A", src="zh", tgt="en")
        await speaker.say(opus(600))
        await speaker.socket.send("session_update", session_id=speaker.id, tgt_lang="ja")
        about = company.field("session", speaker.id, "owner")
        assert about == "A"
        before = company.ask("HGET", company.key("session", speaker.id), "about")
        await until(
            lambda: b"ja" in company.ask("HGET", company.key("session", speaker.id), "about"),
            f"the change is noted: {before!r}",
        )
        await company["A"].crash()
        await speaker.come_back("B")
        await speaker.say(opus(100), is_final=True)
        assert (await speaker.socket.result(0))["tgt_lang"] == "en"
        await speaker.say(opus(600), is_final=True)
        assert (await speaker.socket.result(1))["tgt_lang"] == "ja"

    play(scenario)


# Ghosts and guesses


def test_a_client_that_begins_anew_leaves_no_ghost_in_its_room() -> None:
    async def scenario(company: Company) -> None:
        friend, ghost = [await company["A"].client("en", "zh") for _ in range(2)]
        code = await open_room(friend, "en")
        await enter(ghost, code, "en")
        ghost.drop()
        former = {"session_id": ghost.id, "resume_token": ghost.ack["resume_token"]}
        again = await company["B"].client("en", "zh", replaces=former)
        await knows(company, "A", code, friend.id)
        await enter(again, code, "en")
        await knows(company, "A", code, friend.id, again.id)
        await until(
            lambda: company.ask("HEXISTS", company.key("session", ghost.id), "closed") == 1,
            "the former session is closed",
        )

    play(scenario)


def test_nobody_replaces_a_session_that_is_not_its_own() -> None:
    async def scenario(company: Company) -> None:
        friend, other = [await company["A"].client("en", "zh") for _ in range(2)]
        code = await open_room(friend, "en")
        await enter(other, code, "en")
        thief = await company["B"].client(
            "en", "zh", replaces={"session_id": other.id, "resume_token": "not that one"}
        )
        await nothing_more(thief)
        await nothing_more(other)
        await knows(company, "A", code, friend.id, other.id)

    play(scenario)


def test_who_guesses_room_codes_slows_down_nobody_else() -> None:
    async def scenario(company: Company) -> None:
        friend, guesser, guest = [await company["A"].client("en", "zh") for _ in range(3)]
        code = await open_room(friend, "en")
        refused = 0
        for number in range(300):
            wrong = f"{(int(code) + 1 + number) % 1_000_000:06d}"
            await guesser.send("room_join", room_code=wrong, preferred_lang="en")
            answer = await guesser.expect("room_error")
            refused += answer["code"] == "RATE_LIMITED"
        assert refused >= 280
        await enter(guest, code, "en")

    play(scenario, "A")


# The store went back


def test_a_room_that_went_back_in_time_shows_who_comes_after_it() -> None:
    async def scenario(company: Company) -> None:
        ann = await company["A"].client("zh", "en")
        await ann.send("room_create", preferred_lang="zh")
        code = (await ann.expect("room_create_ack"))["room_code"]
        await ann.expect("room_members")
        copy = company.save()
        bob = await company["A"].client("en", "zh")
        await bob.send("room_join", room_code=code, preferred_lang="en")
        await bob.expect("room_members")
        for lang in ("en", "fr", "en"):
            await bob.ask("session_update", preferred_lang=lang)
            await bob.expect("room_members")
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        cid = None
        for _ in range(100):
            found = await company["B"].newcomer()
            await found.send(
                "session_init", src_lang="fr", tgt_lang="zh", audio_format="opus", sample_rate=16000
            )
            if (await found.next())["type"] == "session_init_ack":
                cid = found
                break
            await asyncio.sleep(0.05)
        assert cid is not None
        await cid.send("room_join", room_code=code, preferred_lang="fr")

        def sees(client: Any) -> int:
            told = client.all("room_members")
            return len(told[-1]["members"]) if told else 0

        await until(lambda: [sees(c) for c in (ann, bob, cid)] == [3, 3, 3], "all see all")

    play(scenario, keeps=True, **PATIENT)
