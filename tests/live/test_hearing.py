"""What others said, on its way to clients here: one memory of it, one letter, each of it once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from lingua_scheduler.between.letters import Place, Said
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live import hearing
from lingua_scheduler.live.board import STORE_FORGETS_MS
from lingua_scheduler.live.delivery import (
    BEHIND_MS_MAX,
    HEARD_DONE_MAX,
    HEARD_GROUPS_MAX,
    LISTEN_MS,
)
from lingua_scheduler.live.hearing import HeardResults, Hearing
from lingua_scheduler.live.outcome import StoredResult, encode_result, without_sound
from lingua_scheduler.live.tasks import Tasks
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    MissingResult,
    OutcomePassed,
    TranslationResult,
    UiEvent,
)
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.records import AS_SPOKEN, Heard, Listener
from live.stand_ins import (
    EPOCH,
    ClosingOutlet,
    KeepingOutlet,
    NotedTasks,
    Scene,
    heard,
    passed,
    released,
    result_payload,
)

if TYPE_CHECKING:
    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released

pytestmark = pytest.mark.unit

CELL = Cells("test", 1).all[0]
KEPT = StoredResult("bonjour", "hello", b"sound", "pcm16", "t9")
ID = "s9|9|1"


class SlowStore:
    """Counts who reads a result; answers when it is told to."""

    def __init__(self, payload: bytes = b"", *, is_away: bool = False) -> None:
        self.payload = payload
        self.is_away = is_away
        self.reads: list[str] = []
        self.answers = asyncio.Event()

    async def heard(self, cell: Cell, heard_id: str) -> bytes:
        assert cell == CELL
        self.reads.append(heard_id)
        await self.answers.wait()
        if self.is_away:
            raise StoreUnavailable("here", "is away")
        return self.payload


def results_over(store: SlowStore) -> HeardResults:
    return HeardResults(cast("Any", store))


def texts(sent: list[ToClient]) -> list[str]:
    """Return what a client was told, as text or the reason why there is none."""
    return [
        message.text_translated if isinstance(message, TranslationResult) else message.reason
        for message in sent
        if isinstance(message, TranslationResult | MissingResult)
    ]


# What is at hand.


def test_one_read_is_enough_for_however_many_need_a_result() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT))
        results = results_over(store)
        waiting = [asyncio.create_task(results.load(CELL, heard(n))) for n in range(1, 20)]
        await asyncio.sleep(0)
        store.answers.set()
        assert await asyncio.gather(*waiting) == [True] * 19
        assert await results.load(CELL, heard(99))
        assert store.reads == [ID]
        found = results.get(ID)
        assert found is not None
        assert (found.kept, found.sound.raw) == (KEPT, b"sound")

    asyncio.run(scenario())


def test_who_stops_waiting_for_a_result_does_not_take_it_from_others() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT))
        results = results_over(store)
        first, second = (asyncio.create_task(results.load(CELL, heard(n))) for n in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        store.answers.set()
        assert await second
        assert store.reads == [ID]

    asyncio.run(scenario())


def test_a_read_that_failed_is_not_the_answer_to_the_next() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT), is_away=True)
        store.answers.set()
        results = results_over(store)
        with pytest.raises(StoreUnavailable):
            await results.load(CELL, heard(1))
        store.is_away = False
        assert await results.load(CELL, heard(1))

    asyncio.run(scenario())


def test_what_is_gone_is_said_to_be_and_what_has_no_result_needs_none() -> None:
    async def scenario() -> None:
        store = SlowStore()
        store.answers.set()
        results = results_over(store)
        assert not await results.load(CELL, heard(1))
        assert await results.load(CELL, heard(1, kind="failed"))
        assert store.reads == [ID]

    asyncio.run(scenario())


def test_memory_is_bounded_and_the_latest_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "KEPT_BYTES", 10_000)
    results = results_over(cast("Any", None))
    payload = encode_result(StoredResult("t" * 900, "", b"s" * 2000, "pcm16", "t9"))
    for number in range(3):
        results.put(f"s9|9|{number}", payload)
    assert results.get("s9|9|0") is not None
    results.put("s9|9|3", payload)
    assert [number for number in range(4) if results.has(f"s9|9|{number}")] == [0, 2, 3]


def test_what_was_dropped_from_memory_takes_no_room_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Text counts too: of an hour of speech without sound as much is at hand as of its beginning.
    monkeypatch.setattr(hearing, "KEPT_BYTES", 10_000)
    results = results_over(cast("Any", None))
    payload = encode_result(StoredResult("t" * 900, "", b"", "pcm16", "t9"))
    room_for = 10_000 // len(payload)
    for number in range(500):
        results.put(f"s9|9|{number}", payload)
        results.put(f"s9|9|{number}", payload)
        held = sum(results.has(f"s9|9|{known}") for known in range(number + 1))
        assert held == min(number + 1, room_for)


# Who is told.


class Owners:
    """What `Hearing` has around it: sessions here, tasks, letters to others."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.letters: list[tuple[str, Letter]] = []
        self.tasks = NotedTasks()
        self.results = self.scene.board.results
        self.hearing = Hearing(
            "here", self.scene.board.sessions, self.scene.board.cells, self.results,
            cast("Any", self.tasks), lambda to, letter: self.letters.append((to, letter)),
        )  # fmt: skip

    def told(self, *listeners: Listener, kind: str = "completed", payload: bytes = b"") -> None:
        mark = "" if kind == "completed" else "!"
        self.hearing.tell(Heard(mark + ID, kind, "40 en j9 1 -", CELL.name, listeners, payload))


def test_each_instance_gets_one_letter_for_all_of_its_listeners() -> None:
    owners = Owners()
    where = [("a", "A", 1), ("b", "B", 2), ("c", "A", 3), ("s1", "here", 1), ("gone", "", 9)]
    owners.told(
        *(Listener(name, owner, EPOCH, seq) for name, owner, seq in where),
        payload=encode_result(KEPT),
    )
    line = "completed 40 en j9 1 -"
    assert owners.letters == [
        ("A", Said(ID, line, CELL.name, (Place("a", EPOCH, 1), Place("c", EPOCH, 3)))),
        ("B", Said(ID, line, CELL.name, (Place("b", EPOCH, 2),))),
    ]
    assert texts(owners.scene.outlet.sent) == ["hello"]


def test_what_is_not_at_hand_is_read_before_it_is_delivered() -> None:
    owners = Owners()
    owners.told(Listener("s1", "here", EPOCH, 1))
    assert owners.tasks.started == ["_load_and_deliver"]
    assert owners.scene.outlet.sent == []
    owners.results.put(ID, encode_result(KEPT))
    owners.told(Listener("s1", "here", EPOCH, 1))
    assert texts(owners.scene.outlet.sent) == ["hello"]


def test_what_has_no_result_is_delivered_at_once() -> None:
    owners = Owners()
    owners.told(Listener("s1", "here", EPOCH, 1), kind="failed")
    assert (owners.tasks.started, texts(owners.scene.outlet.sent)) == ([], ["failed"])


def test_a_large_room_is_served_in_several_turns_of_the_loop_so_that_nobody_waits_for_all() -> None:
    async def scenario() -> None:
        owners = Owners()
        owners.hearing._tasks = Tasks(on_error=errors.append)
        names = [f"l{number}" for number in range(10)]
        outlets = [KeepingOutlet() for _ in names]
        for name, outlet in zip(names, outlets, strict=True):
            owners.scene.enter(name, outlet)
        loud = StoredResult("bonjour", "hello", bytes(hearing.TURN_BYTES // 3), "pcm16", "t9")
        owners.told(
            *(Listener(name, "here", EPOCH, 1) for name in names), payload=encode_result(loud)
        )
        served = []
        while not all(outlet.sent for outlet in outlets):
            served.append([bool(outlet.sent) for outlet in outlets].count(True))
            await asyncio.sleep(0)
        assert served[0] == 2
        assert sorted(set(served)) == [2, 4, 6, 8]
        assert [texts(outlet.sent) for outlet in outlets] == [["hello"]] * 10

    errors: list[BaseException] = []
    asyncio.run(scenario())
    assert errors == []


def test_a_letter_for_sessions_that_left_is_for_nobody() -> None:
    owners = Owners()
    owners.results.put(ID, encode_result(KEPT))
    owners.hearing.told(Said(ID, "completed 40 en j9 1 -", CELL.name, (Place("x", EPOCH, 1),)))
    assert owners.scene.outlet.sent == []


# Delivery.


def listening(outlet: KeepingOutlet | None = None) -> Scene:
    """Return a session that has a result of somebody else at hand."""
    scene = Scene(outlet=outlet)
    scene.board.results.put(ID, encode_result(KEPT))
    return scene


def take(scene: Scene, *outcomes: Released, epoch: str = EPOCH) -> list[Any]:
    """Hand on outcomes; return what the client got of them."""
    scene.session.deliverer.take(epoch, outcomes)
    return list(scene.outlet.take())


def test_what_others_said_comes_at_a_position_of_the_listener_with_its_sound() -> None:
    (message,) = take(listening(), heard(1))
    assert (message.session_id, message.utterance_index, message.text_asr) == ("s9", 40, "bonjour")
    assert (message.epoch, message.seq, message.tts_audio) == (EPOCH, 1, b"sound")


def test_readers_get_the_words_as_they_were_spoken_and_no_sound() -> None:
    (message,) = take(listening(), heard(1, lane=AS_SPOKEN))
    assert (message.text_translated, message.tts_audio, message.tgt_lang) == ("bonjour", b"", None)


def test_what_others_said_waits_for_its_position_like_anything_else() -> None:
    scene = listening()
    assert take(scene, heard(2)) == []
    sent = take(scene, released(1), released(3))
    assert [(m.seq, m.session_id) for m in sent] == [(1, "s1"), (2, "s9"), (3, "s1")]


def test_what_others_said_waits_until_it_is_at_hand_and_holds_what_follows() -> None:
    scene = Scene()
    assert take(scene, heard(1), released(2)) == []
    scene.board.results.put(ID, encode_result(KEPT))
    assert [message.seq for message in take(scene, heard(1))] == [1, 2]


def test_what_others_said_is_nothing_of_the_listeners_own_account() -> None:
    scene = listening()
    session = scene.session
    session.ledger.admit(40, 1000, lanes=1)
    session.admission.open[40] = 1
    take(scene, heard(1))
    assert session.admission.open == {40: 1}
    assert session.ledger.open_ms == 1000
    assert [c.value for c in scene.board.ended.values() if c.value] == []
    # And an utterance of the listener with that number is not taken for delivered.
    (own,) = take(scene, released(2, 40))
    assert own.session_id == "s1"


def test_what_others_said_without_a_translation_is_told_as_it_is() -> None:
    (message,) = take(Scene(), heard(1, kind="failed", reason="NMT_TIMEOUT"))
    assert isinstance(message, MissingResult)
    assert (message.session_id, message.reason, message.detail) == ("s9", "failed", "NMT_TIMEOUT")
    assert (message.epoch, message.seq) == (EPOCH, 1)


def test_a_store_that_went_back_makes_nobody_hear_a_thing_twice() -> None:
    scene = listening()
    for number, lane in enumerate(("en", "en", AS_SPOKEN), 1):
        assert len(take(scene, heard(number, 39 + number, lane=lane))) == 1
    scene.session.epoch = "e2"
    scene.session.deliverer.start_over("e2")
    # The speaker's numbers start over with the store: it is known by what was said.
    again = [heard(1, 40), heard(2, 41), heard(3, 42, lane=AS_SPOKEN)]
    assert take(scene, *again, epoch="e2") == []
    # Somebody else's, and another language, are another matter.
    scene.board.results.put("s8|9|1", encode_result(KEPT))
    other = [heard(4, 40, heard_id="s8|9|1"), heard(5, 43), heard(6, 40, lane="de")]
    assert [message.seq for message in take(scene, *other, epoch="e2")] == [4, 5, 6]


def test_what_is_remembered_of_speakers_is_bounded() -> None:
    scene = Scene()
    count = HEARD_DONE_MAX + 5
    for number in range(1, count + 1):
        name = f"p{number}|9|1"
        scene.board.results.put(name, encode_result(KEPT))
        take(scene, heard(number, heard_id=name))
    deliverer = scene.session.deliverer
    assert len(deliverer._heard_done) == HEARD_DONE_MAX
    assert ("p1", "en") not in deliverer._heard_done
    assert len(deliverer._heard_groups) == HEARD_GROUPS_MAX


def test_the_words_of_each_speaker_form_groups_of_their_own() -> None:
    scene = listening()
    scene.board.results.put("s8|9|1", encode_result(KEPT))
    (first,) = take(scene, heard(1, 40))
    (other,) = take(scene, heard(2, 40, heard_id="s8|9|1"))
    (second,) = take(scene, heard(3, 41))
    assert first.group_id == second.group_id != other.group_id
    assert [message.part_index for message in (first, other, second)] == [0, 0, 1]
    # While its client plays a translation, none of them ends.
    scene.session.deliverer.playing(starts=True)
    scene.clock.at_ms += 60_000
    scene.session.deliverer.playing(starts=False)
    assert take(scene, heard(4, 42))[0].group_id == first.group_id


# Looking by itself.


def is_overdue(scene: Scene) -> bool:
    return scene.session.deliverer.is_overdue(scene.clock.now_ms())


@pytest.mark.parametrize("is_member", [True, False])
def test_a_listener_looks_now_and_then_also_one_that_left(is_member: bool) -> None:
    scene = listening()
    scene.clock.at_ms += LISTEN_MS + 1
    assert not is_overdue(scene)
    if is_member:
        scene.gather("s2")
    else:
        take(scene, heard(1))
    assert is_overdue(scene) == is_member
    scene.clock.at_ms += LISTEN_MS + 1
    assert is_overdue(scene)


# What others have heard.


def test_a_speaker_is_told_that_others_have_it_in_place_of_the_result() -> None:
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    scene.session.admission.open[0] = 1
    payload = encode_result(without_sound(KEPT))
    (message,) = take(scene, passed(1, job=job.id, payload=payload))
    assert message == OutcomePassed(
        session_id="s1", utterance_index=0, tgt_lang="en", epoch=EPOCH, seq=1
    )
    assert scene.session.admission.open == {}
    assert scene.session.deliverer.context == "User: bonjour\nTarget: hello"
    # It may have to be brought in again, if the store forgets it now.
    assert (scene.board.jobs, scene.board.passed_of(scene.session)) == ({}, [job])


def test_a_client_of_the_older_protocol_is_told_nothing_of_it() -> None:
    scene = Scene(outlet=KeepingOutlet(speaks_additions=False))
    assert take(scene, passed(1, payload=result_payload()), released(2, 1))[0].seq == 2


def test_what_others_could_not_hear_is_told_the_speaker_as_an_error() -> None:
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    sent = take(scene, passed(1, job=job.id, kind="failed", reason="node_lost"))
    assert [type(message) for message in sent] == [UiEvent, ErrorMessage, OutcomePassed]
    assert {k: c.value for k, c in scene.board.ended.items() if c.value} == {"failed": 1}


def test_what_others_have_after_a_later_one_of_our_own_is_told_all_the_same() -> None:
    # Its listeners are in a cell that was away; meanwhile the speaker left the room and went on.
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    own, late = take(scene, released(1, 1), passed(2, 0, job=job.id))
    assert (own.utterance_index, own.seq) == (1, 1)
    assert isinstance(late, OutcomePassed)
    assert (late.utterance_index, late.seq) == (0, 2)
    assert scene.board.passed_of(scene.session) == [job]
    # And once: also by a store that went back.
    scene.session.epoch = "e2"
    scene.session.deliverer.start_over("e2")
    assert take(scene, released(1, 1), passed(2, 0), epoch="e2") == []


def test_what_passed_a_moment_ago_is_known_for_as_long_as_a_store_may_forget_it() -> None:
    scene = Scene()
    jobs = [scene.job(index, audience=f"{CELL.name}/s2") for index in (0, 1)]
    take(scene, passed(1, 0, job=jobs[0].id))
    scene.clock.at_ms += STORE_FORGETS_MS
    take(scene, passed(2, 1, job=jobs[1].id))
    assert scene.board.passed_of(scene.session) == jobs
    scene.clock.at_ms += STORE_FORGETS_MS + 1
    assert scene.board.passed_of(scene.session) == []
    last = scene.job(2, audience=f"{CELL.name}/s2")
    take(scene, passed(3, 2, job=last.id))
    assert set(scene.board._passed) == {last.id}


# A client that does not read.


def test_a_client_that_is_behind_gets_the_rest_when_it_has_read_on() -> None:
    scene = listening(ClosingOutlet())
    assert [m.seq for m in take(scene, released(1))] == [1]
    scene.outlet.is_behind = True
    assert take(scene, heard(2), released(3, 1)) == []
    assert not is_overdue(scene)
    scene.clock.at_ms += BEHIND_MS_MAX
    assert not is_overdue(scene)
    scene.outlet.is_behind = False
    # It reads its outbox, where all of it still is.
    assert is_overdue(scene)
    assert [m.seq for m in take(scene, heard(2), released(3, 1))] == [2, 3]
    assert not is_overdue(scene)


def test_a_client_that_is_behind_for_long_is_let_go() -> None:
    outlet = ClosingOutlet()
    scene = listening(outlet)
    outlet.is_behind = True
    take(scene, heard(1))
    scene.clock.at_ms += BEHIND_MS_MAX
    assert not is_overdue(scene)
    assert outlet.closed_with == 0
    scene.clock.at_ms += 1
    assert not is_overdue(scene)
    assert outlet.closed_with == CloseCode.SLOW_READER
    # Its session waits for it without it: what is in the outbox is for when it is back.
    scene.session.detach()
    assert is_overdue(scene)


def test_who_reads_on_in_time_has_all_the_time_again() -> None:
    outlet = ClosingOutlet()
    scene = listening(outlet)
    for seq in (1, 2, 3):
        outlet.is_behind = True
        assert take(scene, released(seq)) == []
        scene.clock.at_ms += BEHIND_MS_MAX - 1
        assert not is_overdue(scene)
        outlet.is_behind = False
        assert is_overdue(scene)
        assert [m.seq for m in take(scene, released(seq))] == [seq]
    assert outlet.closed_with == 0


def test_a_client_that_is_behind_costs_no_memory_for_what_it_does_not_get() -> None:
    scene = listening(ClosingOutlet())
    scene.outlet.is_behind = True
    for seq in range(1, 200):
        take(scene, released(seq))
        assert len(scene.session.deliverer._early) <= 1
