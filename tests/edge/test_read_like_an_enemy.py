"""What a hostile reading of the code for many instances found; each test failed before its fix."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import JSON, NewNode, opus, registration, until
from edge.many_servers import PREFIX, Traveller, attempts, heard_all, play, spoken
from lingua_scheduler.client.heard import Heard
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.messages.to_client import MissingResult
from lingua_scheduler.state.keys import Cell

if TYPE_CHECKING:
    from edge.many_servers import Company, Member
    from lingua_scheduler.state.link import Call

pytestmark = pytest.mark.store

# Nobody is declared dead in a scenario that is about something else.
PATIENT = {"instances__silence_ms": 10_000}


async def register(member: Member, name: str, **more: Any) -> NewNode:
    """Open a socket and send a registration whose answer is not waited for."""
    node: NewNode = await member._enter(NewNode(await member.connect("/ws/node", JSON), JSON))
    node.id = name
    await node.send("node_register", **{**registration(), "node_id": name, **more})
    return node


# Audio


def test_audio_a_draining_instance_did_not_take_is_not_acknowledged() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        draining = asyncio.create_task(company["A"].drain())
        await client.socket.expect("go_away")
        # On its way when the instance began to stop.
        await client.say(opus(100, b"x"), is_final=True)
        await client.socket.silent_for(1300, "audio_ack", "utterance_accepted")
        await client.come_back("B")
        await client.socket.result(1)
        assert await draining
        assert client.outcomes() == [(0, "ok"), (1, "ok")]

    play(scenario)


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


def test_an_utterance_whose_number_the_store_gave_out_twice_is_heard() -> None:
    heard = Heard(1)
    heard.begin("1")
    for index in range(6):
        assert heard.is_new(outcome(index, "1", index + 1))
    # The store went back behind 4 and 5, and another instance goes on from there.
    heard.start_over("2")
    heard.forget_from("s", 4)
    assert [heard.is_new(outcome(index, "2", index + 1)) for index in (3, 4)] == [False, True]


def outcome(index: int, epoch: str, seq: int) -> MissingResult:
    """Return an outcome of the own session."""
    return MissingResult(
        session_id="s", utterance_index=index, reason="failed", created_at_ms=0, tgt_lang="en",
        epoch=epoch, seq=seq,
    )  # fmt: skip


# Sessions


def test_a_client_that_comes_back_while_its_session_is_given_up_goes_on() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        job = await node.job()
        await client.socket.expect("utterance_accepted")
        session = company["A"].server.instance.board.sessions[client.id]
        client.socket.drop()
        await until(lambda: session.closing, "its time is over")
        await client.come_back("A")
        await node.answer(job)
        await client.socket.result(0)
        node.work()
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)
        assert not company.field("session", client.id, "closed")

    play(scenario, "A", sessions__resume_ms=1000, sessions__lease_ms=60_000)


def test_a_take_over_that_the_store_forgot_is_not_taken_for_a_loss() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        await asyncio.sleep(0)
        copy = company.save()
        await client.come_back("B")
        await until(lambda: client.id not in company["A"].server.instance.board.sessions, "moved")
        company.store.kill()
        company.put_back(copy)
        company.store.start()
        assert company.field("session", client.id, "owner") == "A"
        for index in range(1, 4):
            await client.say(opus(100), is_final=True)
            await client.socket.result(index)
        assert company.field("session", client.id, "owner") == "B"

    play(scenario, keeps=True, **PATIENT)


def test_of_two_resumes_on_one_instance_the_later_one_has_the_session() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        # The first one is held up: it reads which room it is in.
        hall = company["B"].server.instance.hall
        take_over, may_go_on = hall.take_over, asyncio.Event()

        async def slowly(session: Any) -> None:
            await take_over(session)
            await may_go_on.wait()

        hall.take_over = slowly  # type: ignore[method-assign]
        first = await company["B"].newcomer()
        await first.send("session_resume", **client.claim())
        sessions = company["B"].server.instance.board.sessions
        await until(lambda: client.id in sessions, "taken over")
        later = asyncio.create_task(client.come_back("B"))
        await until(lambda: sessions[client.id].fence == 3, "taken over once more")
        may_go_on.set()
        await later
        assert await first.closed() in (1013, 4409)
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)

    play(scenario, **PATIENT)


def test_an_instance_that_was_silent_too_long_lets_go_of_sessions_that_left() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await client.socket.result(0)
        silent = company["A"]
        await silent.fall_silent()
        await client.come_back("B")
        known = company.key("instance", "A")
        await until(lambda: not company.ask("EXISTS", known), "it is adopted and forgotten")
        instance = silent.server.instance
        assert client.id in instance.board.sessions
        # The first that it does when it goes on.
        await instance._beat()
        await instance._verify()
        assert client.id not in instance.board.sessions
        await client.say(opus(100), is_final=True)
        await client.socket.result(1)

    play(scenario, sessions__lease_ms=60_000)


def test_a_client_that_is_gone_before_it_was_given_a_token_is_not_waited_for() -> None:
    async def scenario(company: Company) -> None:
        instance = company["A"].server.instance
        # What follows the opening takes a while.
        unserved, may_go_on = instance.reception.unserved, asyncio.Event()

        async def slowly(profile: Any) -> tuple[str, ...]:
            await may_go_on.wait()
            return await unserved(profile)

        instance.reception.unserved = slowly  # type: ignore[method-assign]
        client = await company["A"].newcomer()
        await client.send("session_init", src_lang="zh", tgt_lang="en", audio_format="opus")
        await until(lambda: instance.board.sessions, "it is opened")
        client.drop()
        await asyncio.sleep(0.05)
        may_go_on.set()
        await until(lambda: not instance.board.sessions, "it is over")

    play(scenario, "A")


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


# Nodes


def test_a_registration_that_comes_late_does_not_make_a_node_unreachable() -> None:
    async def scenario(company: Company) -> None:
        # It registers on A, gets no answer, goes to B; A reads the registration afterwards.
        here = await company["B"].node("wanderer", boot_id="b1")
        late = await register(company["A"], "wanderer", boot_id="b1")
        await until(lambda: company.field("node", "wanderer", "instance") == "A", "A has it")
        late.drop()
        await until(lambda: company.field("node", "wanderer", "status") == "offline", "A lost it")
        await here.beat(running=[])
        # Its socket is not the one that is known: it registers anew, as it does after any loss.
        assert await here.closed() == 1001
        again = await company["B"].node("wanderer", boot_id="b1")
        client = await company["B"].client()
        await client.utter(0)
        await again.answer(await again.job())
        await client.result(0)
        assert attempts([again]) == [1]

    play(scenario, **PATIENT)


def test_a_job_goes_to_where_its_node_is_now() -> None:
    async def scenario(company: Company) -> None:
        former = await company["A"].old_node("field")
        now = await company["B"].old_node("field")
        # A has not noticed that its socket is dead.
        assert "field" in company["A"].server.instance.board.nodes
        client = await company["A"].client()
        await client.utter(0)
        await now.answer(await now.job())
        await client.result(0)
        assert not former.jobs

    play(scenario, **PATIENT)


def test_an_old_node_with_work_beyond_the_end_of_a_drain_is_not_drained_for_good() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        node = await company["A"].old_node("field")
        client = await company["B"].client()
        await client.utter(0)
        await node.job()
        assert await company["A"].drain() is False
        again = await company["B"].old_node("field")
        again.work()
        await client.result(0)

    play(scenario, server__drain_ms=300)


# Parts of the store that are away


def away(member: Member, cell: Cell) -> None:
    """Let every call to a cell fail, as if its master were gone."""
    connection = member.server.instance._connection
    send = connection._send

    def send_unless_away(call: Call) -> None:
        if call.slot == cell.slot:
            call.fail(StoreUnavailable("cell", "away"))
        else:
            send(call)

    connection._send = send_unless_away


def test_a_cell_that_is_away_takes_no_other_cell_with_it() -> None:
    async def scenario(company: Company) -> None:
        member = company["A"]
        instance = member.server.instance
        cells = instance.cells
        # Everyone lives in the other cell.
        name = next(n for n in map("node-{}".format, range(100)) if cells.of_node(n).name == "c1")
        node = await member.node(name, sends_acks=True)
        client = None
        while client is None:
            found = await member.client()
            client = found if instance.board.sessions[found.id].home.name == "c1" else None
        away(member, cells.all[0])
        # Longer than its acknowledgement may take.
        await client.utter(0)
        job = await node.job()
        await node.take(job)
        await asyncio.sleep(2)
        await node.answer(job)
        await client.result(0)
        # A deadline rings there.
        await client.utter(1)
        await node.job(utterance_index=1)
        await until(lambda: member.counted("failovers_total", reason="no_ack") == 1, "it rings")
        due = Cell(PREFIX, 1).key("due")
        before = float(company.ask("ZSCORE", due, f"s|{client.id}"))
        await until(lambda: float(company.ask("ZSCORE", due, f"s|{client.id}")) > before, "renewed")

    play(
        scenario, "A", cells=2, jobs__ack_ms=1500, sessions__lease_ms=3000,
        sessions__resume_ms=3000, **PATIENT,
    )  # fmt: skip


def test_what_can_be_reached_is_verified_once_though_a_cell_is_away() -> None:
    async def scenario(company: Company) -> None:
        member = company["A"]
        instance = member.server.instance
        name = next(
            n for n in map("node-{}".format, range(100)) if instance.cells.of_node(n).name == "c1"
        )
        node = await member.node(name)
        homes: dict[str, Any] = {}
        while len(homes) < 2:
            found = await member.client()
            homes[instance.board.sessions[found.id].home.name] = found
        await homes["c1"].utter(0)
        job = await node.job()
        away(member, instance.cells.all[0])
        connection, calls = instance._connection, []
        send = connection._send

        def count(call: Call) -> None:
            calls.append(call.script.name if call.script is not None else "")
            send(call)

        connection._send = count
        connection._advance()
        await until(lambda: "node_register" in calls, "it is verified")
        await asyncio.sleep(1.5)
        assert calls.count("node_register") == 1
        assert calls.count("job_submit") == 1
        await node.answer(job)
        await homes["c1"].result(0)

    play(scenario, "A", cells=2, **PATIENT)


# Rooms


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
        rooms = company["A"].server.instance.hall.rooms
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


# Work that can no longer be done, or only where it was


def test_work_whose_audio_is_gone_ends_at_once() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].old_node("field")
        client = await Traveller.at(company, "A")
        await client.say(opus(100), is_final=True)
        await node.job()
        await client.socket.expect("utterance_accepted")
        await company["A"].crash()
        # The node's work is lost too; nobody has the audio any more.
        await client.come_back("B")
        node.drop()
        await company["B"].old_node("another")
        await client.socket.expect("missing_result", utterance_index=0)

    play(scenario, jobs__retain_audio=False, **PATIENT)
