"""A client that lost its socket goes on, on the same instance or on another: no gap, nothing twice.

`Traveller` does what the protocol asks of clients; the audio that nodes got is compared with what
it said, byte by byte. What a former owner still does is in `test_session_ownership.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import opus, until
from edge.many_servers import Company, Traveller, attempts, heard_all, play, spoken
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.secret import Secret
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from edge.live_server import Message

pytestmark = pytest.mark.store

BOTH = pytest.mark.parametrize("to", ["A", "B"])
# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}
KEY = "client-key-of-the-tests-32-characters"


def all_said(client: Traveller) -> bytes:
    return b"".join(audio for audio, _ in client.said)


async def lose_socket(company: Company, client: Traveller) -> None:
    """Drop the socket and wait until its instance has noticed."""
    session = company["A"].server.instance.sessions[client.id]
    client.socket.drop()
    await until(lambda: session.notifier.outlet is None, "the loss is noticed")


# Where the socket is lost


@BOTH
def test_in_the_middle_of_an_utterance(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100, b"a"))
        await client.say(opus(100, b"b"))
        await client.socket.ask("client_heartbeat", timestamp=1)
        await client.socket.expect("server_heartbeat")
        await lose_socket(company, client)
        answer = await client.come_back(to)
        # Where it was, what it said is there; elsewhere it must be said again.
        assert answer.get("next_audio_seq") == (2 if to == "A" else 0)
        await client.say(opus(100, b"c"), is_final=True)
        await heard_all(client, 1)
        assert client.outcomes() == [(0, "ok")]
        assert spoken([node], client.id) == all_said(client)
        origin = "here" if to == "A" else "elsewhere"
        assert company[to].counted("sessions_resumed_total", origin=origin) == 1

    play(scenario, segmentation__pause_ms=5000)


@BOTH
@pytest.mark.parametrize("when", ["away", "back"])
def test_between_the_acceptance_and_the_outcome(to: str, when: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.expect("utterance_accepted", last_seq=0)
        job = await node.job()
        await lose_socket(company, client)
        if when == "away":
            await node.answer(job, "kept")
            await node.expect("job_result_ack")
        answer = await client.come_back(to)
        assert (answer["next_audio_seq"], answer["next_utterance_index"]) == (1, 1)
        if when == "back":
            await node.answer(job, "kept")
        await client.socket.result(0, text_asr="kept", seq=1)
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(utterance_index=1))
        await client.socket.result(1, seq=2)
        assert client.outcomes() == [(0, "ok"), (1, "ok")]

    play(scenario)


@BOTH
def test_while_the_session_is_being_closed(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        await client.socket.ask("session_close", reason="done")
        await until(lambda: company["A"].server.instance.sessions[client.id].record.is_closing)
        await lose_socket(company, client)
        await client.come_back(to)
        await client.socket.ask("session_close", reason="done")
        await node.answer(job)
        await client.socket.result(0)
        await client.socket.expect("session_close_ack")
        assert await client.socket.closed() == 1000
        assert client.outcomes() == [(0, "ok")]
        await until(lambda: company.field("session", client.id, "closed"), "it is closed")

    play(scenario)


@BOTH
def test_the_old_socket_that_is_only_half_dead_is_closed_as_replaced(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        former = client.socket
        await client.come_back(to)
        assert await former.closed() == 4409
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        assert not former.all("translation_result")
        # The loss of that socket means nothing any more.
        await client.socket.silent_for(100)
        await client.say(opus(100), is_final=True)
        await heard_all(client, 2)

    play(scenario)


def test_to_a_third_instance_and_back_to_the_first() -> None:
    async def scenario(company: Company) -> None:
        node = await company["C"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for number, name in enumerate("BCABCA"):
            await client.say(opus(100, bytes([97 + number])), is_final=number % 2 == 1)
            await client.come_back(name)
        await client.say(opus(100, b"z"), is_final=True)
        await until(lambda: spoken([node], client.id) == all_said(client), "all was heard")
        ack = await client.socket.bye()
        assert ack["coverage"]["failed_ms"] == 0
        assert {reason for _, reason in client.outcomes()} == {"ok"}
        assert attempts([node]) == [1] * len(client.outcomes())

    play(scenario, "ABC", segmentation__pause_ms=5000)


# Who may not come back


def test_a_wrong_token_and_an_unknown_session_are_refused_and_the_socket_is_good_for_another() -> (
    None
):
    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A")
        for name in "AB":
            assert await client.refused(name, resume_token="0" * 32) == "wrong_token"
        stranger = await company["B"].newcomer()
        claim = client.claim() | {"session_id": "s-unknown"}
        await stranger.send("session_resume", **claim)
        await stranger.follows("resume_rejected", session_id="s-unknown", reason="unknown_session")
        await stranger.open(src_lang="zh", tgt_lang="en")
        # None of that disturbed whose session it is.
        node = await company["A"].node()
        node.work()
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)

    play(scenario)


async def last_words(company: Company, client: Traveller, name: str) -> list[Message]:
    """Come back to a session that was closed; return everything that is still told."""
    socket = await company[name].newcomer()
    socket.id = client.id
    await socket.send("session_resume", **client.claim())
    assert await socket.closed() == 1000
    first, *rest, last = socket.heard
    assert (first["type"], last["type"]) == ("session_resumed", "session_close_ack")
    return rest


def test_a_session_that_was_closed_is_closed() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        await client.socket.ask("session_close", reason="done")
        await until(lambda: company["A"].server.instance.sessions[client.id].record.is_closing)
        await lose_socket(company, client)
        await node.answer(job, "kept")
        await until(lambda: company.field("session", client.id, "closed"), "it is closed")
        for name in "AB":
            (told,) = await last_words(company, client, name)
            assert (told["type"], told["text_asr"], told["seq"]) == (
                "translation_result",
                "kept",
                1,
            )
            assert await client.refused(name, resume_token="0" * 32) == "wrong_token"

    play(scenario)


def test_past_the_window_the_session_is_finished_and_closed_and_then_forgotten() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100, b"y"))
        await lose_socket(company, client)
        await until(lambda: company.field("session", client.id, "closed"), "it is closed")
        # What it had said was still translated.
        assert spoken([node], client.id) == opus(100, b"y")
        assert len(await last_words(company, client, "B")) == 1
        await until(lambda: not company.field("session", client.id, "epoch"), "it is forgotten")
        assert await client.refused("B") == "unknown_session"
        assert company["B"].counted("resumes_rejected_total", reason="unknown_session") == 1

    play(scenario, sessions__resume_ms=1000)


def test_past_the_window_of_a_dead_instance_survivors_close_the_session() -> None:
    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A")
        await company["A"].crash()
        await until(lambda: company.field("session", client.id, "closed"), "it is closed")
        assert await last_words(company, client, "B") == []

    play(scenario, sessions__resume_ms=1000, sessions__lease_ms=1000)


def test_the_token_of_another_tenant_is_refused() -> None:
    def token(tenant: str) -> str:
        return TokenKeys([Secret(KEY)], []).issue_client(tenant=tenant).reveal()

    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A", token=token("acme"))
        for name in "AB":
            assert await client.refused(name, token=token("globex")) == "wrong_token"
        bare = await company["B"].newcomer()
        await bare.send("session_resume", **client.claim())
        await bare.expect("error", code="UNAUTHORIZED")
        assert await bare.closed() == 4401
        await client.come_back("B", token=token("acme"))

    play(scenario, auth__client_keys=[KEY])


def test_resumes_that_are_refused_count_as_errors() -> None:
    async def scenario(company: Company) -> None:
        client = await company["A"].newcomer()
        ask = {
            "session_id": "s-none", "resume_token": "guess", "epoch": "1", "last_seq": 0,
        }  # fmt: skip
        for _ in range(50):
            if client.ws.closed:
                break
            await client.send("session_resume", **ask)
        assert await client.closed() == 4422

    play(scenario, "A")


def test_a_client_that_comes_back_while_its_session_is_given_up_goes_on() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        session = company["A"].server.instance.sessions[client.id]
        client.socket.drop()
        await until(lambda: session.record.is_closing, "its time is over")
        await client.come_back("A")
        await node.answer(job)
        await client.socket.result(0)
        node.work()
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)
        assert not company.field("session", client.id, "closed")

    play(scenario, "A", sessions__resume_ms=1000, sessions__lease_ms=60_000)


def test_a_client_that_is_gone_before_it_was_given_a_token_is_not_waited_for() -> None:
    async def scenario(company: Company) -> None:
        instance = company["A"].server.instance
        # What follows the opening takes a while.
        unserved, may_go_on = instance.client_parts.served.unserved, asyncio.Event()

        async def slowly(profile: Any) -> tuple[str, ...]:
            await may_go_on.wait()
            return await unserved(profile)

        instance.client_parts.served.unserved = slowly  # type: ignore[method-assign]
        client = await company["A"].newcomer()
        await client.send("session_init", src_lang="zh", tgt_lang="en", audio_format="opus")
        await until(lambda: instance.sessions, "it is opened")
        client.drop()
        await asyncio.sleep(0.05)
        may_go_on.set()
        await until(lambda: not instance.sessions, "it is over")

    play(scenario, "A")


# Positions of outcomes


@BOTH
def test_outcomes_after_the_position_follow_once_and_in_order(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for _ in range(5):
            await client.say(opus(100), is_final=True)
            await client.socket.expect("translation_result")
        await client.come_back(to, last_seq=2)
        again = client.socket
        await until(lambda: len(again.outcomes()) == 3, "three of them again")
        await client.say(opus(100), is_final=True)
        await again.result(5)
        seqs = [message["seq"] for message in again.all("translation_result")]
        assert seqs == [3, 4, 5, 6]
        await again.silent_for(100, "translation_result")

    play(scenario)


@BOTH
def test_a_position_the_store_never_reached_starts_the_count_over(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)
        answer = await client.come_back(to, last_seq=99)
        assert answer["reset"] is True
        assert answer["epoch"] != client.sockets[0].ack["epoch"]
        await client.say(opus(100), is_final=True)
        result = await client.socket.result(1)
        assert result["epoch"] == answer["epoch"]
        assert result["seq"] > client.sockets[0].all("translation_result")[0]["seq"]

    play(scenario)


def test_a_position_of_a_former_epoch_is_told_that_the_count_started_over() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        answer = await client.come_back("B", epoch="1", last_seq=7)
        assert answer["reset"] is True
        await client.say(opus(100), is_final=True)
        await client.socket.result(0, seq=1)

    play(scenario)


def test_confirmed_outcomes_leave_the_outbox_and_do_not_come_again() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for index in range(20):
            await client.socket.utter(index)
            await client.socket.result(index)
        assert company.outbox_length(client.id) == 20
        epoch, _ = client.position
        await client.socket.ask("outcome_ack", epoch="1", seq=20)
        await client.socket.ask("outcome_ack", epoch=epoch, seq=99)
        await client.socket.ask("outcome_ack", epoch=epoch, seq=18)
        await until(lambda: company.outbox_length(client.id) == 2, "the outbox is trimmed")
        await client.come_back("B", last_seq=3)
        await client.socket.utter(20)
        await client.socket.result(20, seq=21)
        seqs = [message["seq"] for message in client.socket.all("translation_result")]
        assert seqs == [19, 20, 21]

    play(scenario)


# Audio


def voice(duration_ms: int, level: int = 9000) -> bytes:
    """Return a tone, or silence, of pcm16 at 16 kHz."""
    count = duration_ms * 16
    return b"".join(
        struct.pack("<h", int(level * math.sin(2 * math.pi * 220 * n / 16_000)))
        for n in range(count)
    )


def test_no_chunk_is_lost_or_doubled_while_a_speaker_moves_again_and_again() -> None:
    async def scenario(company: Company) -> None:
        nodes = [await company[name].node() for name in "AB"]
        for node in nodes:
            node.work()
        client = await Traveller.at(company, "A")
        for number in range(60):
            audio = bytes([number + 1]) * 60
            with contextlib.suppress(ConnectionError):  # kept, and said again
                await client.say(audio, is_final=number % 7 == 6)
            if number % 4 == 3:
                client.socket.drop()
                await client.come_back("BAAB"[number // 4 % 4])
        with contextlib.suppress(ConnectionError):
            await client.say(b"\xff" * 60, is_final=True)
        # The server may end a resume (1013): then the client tries once more.
        while spoken(nodes, client.id) != all_said(client):
            await until(
                lambda: spoken(nodes, client.id) == all_said(client) or client.socket.ws.closed,
                "all was heard",
            )
            if client.socket.ws.closed:
                assert client.socket.ws.close_code == CloseCode.TRY_AGAIN_LATER
                await client.come_back("A")
        ack = await client.socket.bye()
        assert ack["coverage"]["failed_ms"] == 0
        assert {reason for _, reason in client.outcomes()} == {"ok"}
        indices = [index for index, _ in client.outcomes()]
        assert indices == list(range(len(indices)))
        assert not any(message["type"] == "gap" for message in client.heard)

    play(scenario, segmentation__pause_ms=5000)


def test_silence_that_was_acknowledged_is_not_asked_for_again() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A", audio_format="pcm16", sample_rate=16_000)
        for _ in range(10):
            await client.say(voice(100, level=0))
        ack = await client.socket.expect("audio_ack")
        assert 0 < ack["seq"] < 10
        answer = await client.come_back("B")
        assert answer["next_audio_seq"] == ack["seq"] + 1
        assert answer["audio_ms"] == ack["audio_ms"] == (ack["seq"] + 1) * 100
        await client.say(voice(200), is_final=True)
        accepted = await client.socket.expect("utterance_accepted", last_seq=10)
        assert accepted["end_ms"] == 1200
        await heard_all(client, 1)
        # The beginning that a voice detector keeps is what came again.
        assert spoken([node], client.id).endswith(voice(200))

    play(scenario)


@BOTH
def test_what_a_slice_left_to_the_next_is_heard_once_after_a_move(to: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A", audio_format="pcm16", sample_rate=16_000)
        # Sliced when it is longer than a second, but where it was quiet before that.
        for number in range(12):
            await client.say(voice(100, level=100 if number in {8, 9} else 9000 + number))
        accepted = await client.socket.expect("utterance_accepted")
        assert accepted["last_seq"] == 8
        await lose_socket(company, client)
        answer = await client.come_back(to)
        assert answer.get("next_audio_seq") == (12 if to == "A" else 9)
        for number in range(12, 15):
            await client.say(voice(100, level=9000 + number), is_final=number == 14)
        await until(lambda: spoken([node], client.id) == all_said(client), "all was heard once")
        ack = await client.socket.bye()
        assert ack["coverage"]["failed_ms"] == 0
        assert not any(message["type"] == "gap" for message in client.heard)

    play(
        scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=5000,
        segmentation__slice_search_ms=600, **PATIENT,
    )  # fmt: skip


def test_a_client_may_send_again_all_it_kept_while_the_store_is_slow() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for _ in range(400):
            await client.say(opus(20))
        connection = company["B"].server.instance._connection
        send, loop = connection._send, asyncio.get_running_loop()
        connection._send = lambda call: loop.call_later(0.1, send, call)
        await client.come_back("B")
        await client.say(opus(20), is_final=True)
        await client.socket.result(0)
        assert spoken([node], client.id) == opus(20) * 401

    play(scenario, segmentation__pause_ms=2000, segmentation__max_duration_ms=20_000, **PATIENT)


# What else goes along


def test_a_change_of_languages_before_the_move_is_kept() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.socket.ask("session_update", tgt_lang="ja")
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(tgt_lang="ja"))
        await heard_all(client, 1)
        await client.come_back("B")
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(tgt_lang="ja", utterance_index=1))
        await client.socket.result(1, tgt_lang="ja")

    play(scenario)


@pytest.mark.parametrize("init", [{"tgt_langs": ["en", "ja"]}, {"ui_events": True}])
def test_what_was_agreed_at_the_beginning_is_kept(init: Message) -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A", **init)
        await client.come_back("B")
        await client.say(opus(100), is_final=True)
        await heard_all(client, len(init.get("tgt_langs", "1")))
        results = client.socket.all("translation_result")
        assert {result["tgt_lang"] for result in results} == set(init.get("tgt_langs", ["en"]))
        assert bool(client.socket.all("ui_event")) == ("ui_events" in init)

    play(scenario)


def test_both_forms_of_the_protocol_resume_each_other() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node(form="lingua.v1.msgpack")
        node.work()
        client = await Traveller.at(company, "A")
        socket = await company["B"].newcomer("lingua.v1.msgpack")
        socket.id = client.id
        await socket.send("session_resume", **client.claim())
        await socket.follows("session_resumed")
        client.sockets.append(socket)
        await client.say(opus(100), is_final=True)
        await socket.result(0)

    play(scenario)


# Without a store


def test_while_the_store_is_away_the_client_is_told_when_to_try_again() -> None:
    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A")
        client.socket.drop()
        company.store.kill()
        socket = await company["B"].newcomer()
        socket.id = client.id

        async def ask() -> Any:
            await socket.send("session_resume", **client.claim())
            return await socket.next()

        told = await ask()
        assert (told["type"], told["code"]) == ("error", "SCHEDULER_DEPENDENCY_DOWN")
        assert told["retry_after_ms"] > 0
        company.store.start()
        while (told := await ask())["type"] == "error":
            assert told["code"] == "SCHEDULER_DEPENDENCY_DOWN"
            await asyncio.sleep(0.05)
        assert told["type"] == "session_resumed"
        client.sockets.append(socket)
        node = await company["A"].node()
        node.work()
        await client.say(opus(100), is_final=True)
        await heard_all(client, 1)

    play(scenario, keeps=True)
