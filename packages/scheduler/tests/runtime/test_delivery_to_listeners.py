"""Delivery to listeners and from speakers: results of others, passed outcomes, slow readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.jobs.result import without_sound
from lingua_scheduler.jobs.result_format import encode_result
from lingua_scheduler.runtime.delivered import RECEIVED_MAX
from lingua_scheduler.runtime.delivery import BEHIND_MS_MAX, LISTEN_MS
from lingua_scheduler.runtime.job_table import STORE_LOSES_MS
from lingua_scheduler.runtime.outcome_groups import SPEAKERS_MAX
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.records import AS_SPOKEN
from lingua_wire.codes import CloseCode
from lingua_wire.to_client import ErrorMessage, MissingResult, OutcomePassed, UiEvent
from runtime.stand_ins import (
    EPOCH,
    ClosingOutlet,
    KeepingOutlet,
    Scene,
    content,
    heard,
    passed,
    released,
    result_payload,
)

if TYPE_CHECKING:
    from lingua_scheduler.state.records import Released

pytestmark = pytest.mark.unit

CELL = Cells("test", 1).all[0]
KEPT = content("bonjour", "hello", b"sound", "pcm16", "t9")
ID = "s9|9|1"


def listening(outlet: KeepingOutlet | None = None) -> Scene:
    """Return a session that has a result of another speaker at hand."""
    scene = Scene(outlet=outlet)
    scene.results.put(ID, encode_result(KEPT))
    return scene


def take(scene: Scene, *outcomes: Released, epoch: str = EPOCH) -> list[Any]:
    """Deliver outcomes; return what the client was sent."""
    scene.session.deliverer.receive(epoch, outcomes)
    return list(scene.outlet.take())


def start_over(scene: Scene, epoch: str) -> None:
    """Let the store start positions over."""
    scene.session.record.own(epoch, scene.session.record.fence)
    scene.session.deliverer.start_over()


def test_an_outcome_of_another_speaker_has_a_position_of_the_listener_and_its_sound() -> None:
    (message,) = take(listening(), heard(1))
    assert (message.session_id, message.utterance_index, message.text_asr) == ("s9", 40, "bonjour")
    assert (message.epoch, message.seq, message.tts_audio) == (EPOCH, 1, b"sound")


def test_readers_get_the_words_as_they_were_spoken_and_no_sound() -> None:
    (message,) = take(listening(), heard(1, lane=AS_SPOKEN))
    assert (message.text_translated, message.tts_audio, message.tgt_lang) == ("bonjour", b"", None)


def test_an_outcome_of_another_speaker_waits_for_its_position() -> None:
    scene = listening()
    assert take(scene, heard(2)) == []
    sent = take(scene, released(1), released(3))
    assert [(m.seq, m.session_id) for m in sent] == [(1, "s1"), (2, "s9"), (3, "s1")]


def test_an_outcome_of_another_speaker_waits_for_its_result_and_holds_those_after_it() -> None:
    scene = Scene()
    assert take(scene, heard(1), released(2)) == []
    scene.results.put(ID, encode_result(KEPT))
    assert [message.seq for message in take(scene, heard(1))] == [1, 2]


def test_an_outcome_of_another_speaker_does_not_count_for_the_listener() -> None:
    scene = listening()
    session = scene.session
    session.admission.parts.ledger.admit(40, 1000, lanes=1)
    session.admission.parts.window.open[40] = 1
    take(scene, heard(1))
    assert session.admission.parts.window.open == {40: 1}
    assert session.admission.parts.ledger.open_ms == 1000
    assert [c.value for c in scene.effects.counts.ended.values() if c.value] == []
    # And an utterance of the listener with that number is not taken for delivered.
    (own,) = take(scene, released(2, 40))
    assert own.session_id == "s1"


def test_an_outcome_of_another_speaker_without_a_result_is_sent_as_missing() -> None:
    (message,) = take(Scene(), heard(1, kind="failed", reason="NMT_TIMEOUT"))
    assert isinstance(message, MissingResult)
    assert (message.session_id, message.reason, message.detail) == ("s9", "failed", "NMT_TIMEOUT")
    assert (message.epoch, message.seq) == (EPOCH, 1)


def test_after_a_store_lost_its_last_writes_no_listener_receives_an_outcome_twice() -> None:
    scene = listening()
    for number, lane in enumerate(("en", "en", AS_SPOKEN), 1):
        assert len(take(scene, heard(number, 39 + number, lane=lane))) == 1
    start_over(scene, "e2")
    # The speaker's positions start over with the store: its outcomes are known by their index.
    again = [heard(1, 40), heard(2, 41), heard(3, 42, lane=AS_SPOKEN)]
    assert take(scene, *again, epoch="e2") == []
    # Outcomes of another speaker or in another language are new.
    scene.results.put("s8|9|1", encode_result(KEPT))
    other = [heard(4, 40, heard_id="s8|9|1"), heard(5, 43), heard(6, 40, lane="de")]
    assert [message.seq for message in take(scene, *other, epoch="e2")] == [4, 5, 6]


def test_the_memory_of_speakers_is_bounded() -> None:
    scene = Scene()
    count = RECEIVED_MAX + 5
    for number in range(1, count + 1):
        name = f"p{number}|9|1"
        scene.results.put(name, encode_result(KEPT))
        take(scene, heard(number, heard_id=name))
    deliverer = scene.session.deliverer
    assert len(deliverer.delivered._received) == RECEIVED_MAX
    assert ("p1", "en") not in deliverer.delivered._received
    assert len(deliverer.groups._of_speakers) == SPEAKERS_MAX


def test_the_words_of_each_speaker_form_groups_of_their_own() -> None:
    scene = listening()
    scene.results.put("s8|9|1", encode_result(KEPT))
    (first,) = take(scene, heard(1, 40))
    (other,) = take(scene, heard(2, 40, heard_id="s8|9|1"))
    (second,) = take(scene, heard(3, 41))
    assert first.group_id == second.group_id != other.group_id
    assert [message.part_index for message in (first, other, second)] == [0, 0, 1]
    # While its client plays a translation, none of them ends.
    scene.session.deliverer.groups.playing(starts=True)
    scene.clock.at_ms += 60_000
    scene.session.deliverer.groups.playing(starts=False)
    assert take(scene, heard(4, 42))[0].group_id == first.group_id


# Reading the outbox without an announcement


def is_overdue(scene: Scene) -> bool:
    return scene.session.deliverer.is_overdue(scene.clock.now_ms())


@pytest.mark.parametrize("is_member", [True, False])
def test_a_listener_reads_its_outbox_now_and_then_also_after_it_left(is_member: bool) -> None:
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


# Passed outcomes


def test_a_speaker_is_sent_that_the_outcome_passed_in_place_of_the_result() -> None:
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    scene.session.admission.parts.window.open[0] = 1
    payload = encode_result(without_sound(KEPT))
    (message,) = take(scene, passed(1, job=job.id, payload=payload))
    assert message == OutcomePassed(
        session_id="s1", utterance_index=0, tgt_lang="en", epoch=EPOCH, seq=1
    )
    assert scene.session.admission.parts.window.open == {}
    assert scene.session.deliverer.groups.context == "User: bonjour\nTarget: hello"
    # It is submitted again if the store loses it now.
    assert (len(scene.jobs), scene.jobs.passed_of("s1")) == (0, [job])


def test_a_client_of_the_older_protocol_is_not_sent_that_it_passed() -> None:
    scene = Scene(outlet=KeepingOutlet(speaks_additions=False))
    assert take(scene, passed(1, payload=result_payload()), released(2, 1))[0].seq == 2


def test_a_failure_for_listeners_is_sent_to_the_speaker_as_an_error() -> None:
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    sent = take(scene, passed(1, job=job.id, kind="failed", reason="node_lost"))
    assert [type(message) for message in sent] == [UiEvent, ErrorMessage, OutcomePassed]
    assert {k: c.value for k, c in scene.effects.counts.ended.items() if c.value} == {"failed": 1}


def test_a_passed_outcome_after_a_later_own_one_is_sent_all_the_same() -> None:
    # The cell of its listeners was unavailable; meanwhile the speaker left the room and went on.
    scene = Scene()
    job = scene.job(0, audience=f"{CELL.name}/s2")
    own, late = take(scene, released(1, 1), passed(2, 0, job=job.id))
    assert (own.utterance_index, own.seq) == (1, 1)
    assert isinstance(late, OutcomePassed)
    assert (late.utterance_index, late.seq) == (0, 2)
    assert scene.jobs.passed_of("s1") == [job]
    # And once: also by a store that lost its last writes.
    start_over(scene, "e2")
    assert take(scene, released(1, 1), passed(2, 0), epoch="e2") == []


def test_a_passed_job_is_kept_for_as_long_as_the_store_may_lose_it() -> None:
    scene = Scene()
    jobs = [scene.job(index, audience=f"{CELL.name}/s2") for index in (0, 1)]
    take(scene, passed(1, 0, job=jobs[0].id))
    scene.clock.at_ms += STORE_LOSES_MS
    take(scene, passed(2, 1, job=jobs[1].id))
    assert scene.jobs.passed_of("s1") == jobs
    scene.clock.at_ms += STORE_LOSES_MS + 1
    assert scene.jobs.passed_of("s1") == []
    last = scene.job(2, audience=f"{CELL.name}/s2")
    take(scene, passed(3, 2, job=last.id))
    assert set(scene.jobs._passed) == {last.id}


# Slow readers


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


def test_a_client_that_is_behind_for_long_is_closed() -> None:
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
    # Its session waits for it; its outcomes stay in the outbox.
    scene.session.notifier.detach()
    assert is_overdue(scene)


def test_a_client_that_reads_on_in_time_has_the_whole_time_again() -> None:
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
        assert len(scene.session.deliverer.early) <= 1
