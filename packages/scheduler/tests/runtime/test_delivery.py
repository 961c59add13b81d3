"""Delivery of outcomes: by position, each once, to the right receivers, in any order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.runtime.delivered import POSITIONS_MAX
from lingua_scheduler.runtime.delivery import (
    KEPT,
    LOOK_MS,
    OVERDUE_MS,
    TRIM_CONFIRMED,
    TRIM_EVERY,
    code_of,
)
from lingua_scheduler.state.records import Released
from lingua_wire.shared import Coverage
from lingua_wire.to_client import (
    ErrorMessage,
    MissingResult,
    ToClient,
    TranslationResult,
    UiEvent,
)
from runtime.stand_ins import EPOCH, Scene, released, result_payload

pytestmark = pytest.mark.unit


def outcomes_in(sent: list[ToClient]) -> list[TranslationResult | MissingResult]:
    return [m for m in sent if isinstance(m, TranslationResult | MissingResult)]


def take(scene: Scene, *seqs: int, epoch: str = EPOCH) -> list[int | None]:
    """Receive outcomes of these positions; return the positions that were delivered."""
    scene.session.deliverer.receive(epoch, tuple(released(seq) for seq in seqs))
    return [outcome.seq for outcome in outcomes_in(scene.outlet.take())]


def only(scene: Scene, outcome: Released) -> TranslationResult | MissingResult:
    """Receive one outcome; return the message that the speaker was sent."""
    scene.session.deliverer.receive(EPOCH, (outcome,))
    (message,) = outcomes_in(scene.outlet.take())
    return message


def result(scene: Scene, outcome: Released) -> TranslationResult:
    message = only(scene, outcome)
    assert isinstance(message, TranslationResult)
    return message


def is_overdue(scene: Scene) -> bool:
    return scene.session.deliverer.is_overdue(scene.clock.now_ms())


def ended(scene: Scene) -> dict[str, float]:
    """Return how many jobs were counted by the kind of their outcome."""
    counters = scene.effects.counts.ended.items()
    return {kind: counter.value for kind, counter in counters if counter.value}


# Order.


def test_outcomes_go_out_by_position_whatever_order_they_come_in() -> None:
    scene = Scene()
    assert take(scene, 3, 2) == []
    assert take(scene, 5) == []
    assert take(scene, 1) == [1, 2, 3]
    assert take(scene, 4) == [4, 5]
    assert scene.session.deliverer.seq == 5


def test_outcomes_of_one_answer_may_be_in_any_order() -> None:
    assert take(Scene(), 3, 1, 2) == [1, 2, 3]


def test_an_outcome_that_comes_again_is_not_sent_again() -> None:
    scene = Scene()
    assert take(scene, 1, 1) == [1]
    assert take(scene, 3, 3, 1) == []
    assert take(scene, 2, 3) == [2, 3]
    assert take(scene, 1, 2, 3) == []


def test_outcomes_of_another_epoch_are_not_ours() -> None:
    scene = Scene()
    assert take(scene, 1, 2, epoch="e0") == []
    assert take(scene, 1) == [1]
    assert take(scene, 2, 3, epoch="e2") == []
    assert scene.session.deliverer.seq == 1
    scene.clock.at_ms += OVERDUE_MS + 1
    assert not is_overdue(scene)


def test_a_session_that_starts_over_counts_from_one_and_forgets_what_was_early() -> None:
    scene = Scene()
    take(scene, 1, 2, 4)
    start_over(scene)
    scene.clock.at_ms += OVERDUE_MS + 1
    assert not is_overdue(scene)
    assert take(scene, 3, epoch=EPOCH) == []
    # The same positions as before, of utterances that were said later.
    scene.session.deliverer.receive("e2", tuple(released(seq, seq + 1) for seq in (1, 2, 3)))
    assert [outcome.seq for outcome in outcomes_in(scene.outlet.take())] == [1, 2, 3]


def test_what_was_delivered_before_positions_started_over_is_not_delivered_again() -> None:
    scene = Scene()
    take(scene, 1, 2)
    scene.session.admission.parts.window.open[1] = 1
    start_over(scene)
    assert take(scene, 1, 2, 3, epoch="e2") == [3]
    assert scene.session.deliverer.seq == 3
    # No outcome is waited for, though the utterance was admitted again.
    assert scene.session.admission.parts.window.open == {}
    assert ended(scene) == {"completed": 3}


def test_each_language_knows_for_itself_what_was_delivered_before() -> None:
    scene = Scene()
    take(scene, 1, 2)
    start_over(scene)
    again = (released(1, 0, lane="de"), released(2, 1), released(3, 1, lane="de"))
    scene.session.deliverer.receive("e2", again)
    found = [(m.seq, m.utterance_index, m.tgt_lang) for m in outcomes_in(scene.outlet.take())]
    assert found == [(1, 0, "de"), (3, 1, "de")]


def start_over(scene: Scene, epoch: str = "e2") -> None:
    scene.session.record.epoch = epoch
    scene.session.deliverer.start_over()


@given(st.data(), st.integers(0, 12))
def test_however_answers_overtake_or_repeat_each_other_each_outcome_goes_out_once_and_in_order(
    data: st.DataObject, count: int
) -> None:
    scene = Scene()
    again = data.draw(st.lists(st.integers(1, count), max_size=6)) if count else []
    arrivals = data.draw(st.permutations([*range(1, count + 1), *again]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrivals)), max_size=4)))
    out: list[int | None] = []
    for start, stop in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
        take(scene, *data.draw(st.lists(st.integers(1, 20), max_size=3)), epoch="another")
        out += take(scene, *arrivals[start:stop])
        arrived = set(arrivals[:stop])
        known = next(seq for seq in range(count + 2) if seq + 1 not in arrived)
        assert out == list(range(1, known + 1))
    assert out == list(range(1, count + 1))


# Positions that are missing for long.


def test_a_missing_position_is_overdue_after_a_second() -> None:
    scene = Scene()
    take(scene, 1, 3)
    assert not is_overdue(scene)
    scene.clock.at_ms += OVERDUE_MS
    assert not is_overdue(scene)
    scene.clock.at_ms += 1
    assert is_overdue(scene)
    assert take(scene, 2) == [2, 3]
    assert not is_overdue(scene)


def test_nothing_is_overdue_while_nothing_is_missing() -> None:
    scene = Scene()
    scene.clock.at_ms += 10 * OVERDUE_MS
    assert not is_overdue(scene)
    take(scene, 1, 2)
    scene.clock.at_ms += 10 * OVERDUE_MS
    assert not is_overdue(scene)


def test_more_that_comes_early_does_not_put_it_off() -> None:
    scene = Scene()
    take(scene, 2)
    scene.clock.at_ms += OVERDUE_MS - 100
    take(scene, 3)
    scene.clock.at_ms += 101
    assert is_overdue(scene)


def test_nothing_is_overdue_after_the_missing_came_together_with_the_early() -> None:
    # A page of the outbox has the missing position and the early one again.
    scene = Scene()
    take(scene, 2)
    assert take(scene, 1, 2) == [1, 2]
    scene.clock.at_ms += OVERDUE_MS + 1
    assert not is_overdue(scene)


def test_an_utterance_without_any_outcome_for_long_is_looked_for() -> None:
    scene = Scene()
    scene.session.admission.parts.window.open[0] = 1
    scene.session.admission.parts.window.waiting_since_ms = scene.clock.at_ms
    scene.clock.at_ms += LOOK_MS
    assert not is_overdue(scene)
    scene.clock.at_ms += 1
    assert is_overdue(scene)


def test_an_outcome_that_came_puts_looking_for_the_next_off() -> None:
    scene = Scene()
    scene.session.admission.parts.window.open |= {0: 1, 1: 1}
    scene.session.admission.parts.window.waiting_since_ms = scene.clock.at_ms
    scene.clock.at_ms += LOOK_MS - 1
    take(scene, 1)
    scene.clock.at_ms += LOOK_MS
    assert not is_overdue(scene)
    scene.clock.at_ms += 1
    assert is_overdue(scene)
    take(scene, 2)
    scene.clock.at_ms += 10 * LOOK_MS
    assert not is_overdue(scene)


def test_a_new_wait_is_counted_from_its_own_beginning() -> None:
    scene = Scene()
    take(scene, 2)
    take(scene, 1)
    scene.clock.at_ms += 10 * OVERDUE_MS
    take(scene, 4)
    assert not is_overdue(scene)
    scene.clock.at_ms += OVERDUE_MS + 1
    assert is_overdue(scene)


# Receivers.


def test_the_speaker_hears_of_a_job_of_its_own_and_the_board_forgets_it() -> None:
    scene = Scene()
    job = scene.job(0)
    message = result(scene, released(1, job=job.id))
    assert (message.session_id, message.utterance_index, message.job_id) == ("s1", 0, job.id)
    assert (message.epoch, message.seq, message.tgt_lang) == (EPOCH, 1, "en")
    assert message.scheduler_sent_at_ms == scene.clock.wall_ms()
    assert len(scene.jobs) == 0


def test_a_place_without_a_job_is_told_the_speaker() -> None:
    scene = Scene()
    message = only(scene, released(1, kind="missing", reason="gap_timeout"))
    assert isinstance(message, MissingResult)
    assert (message.reason, message.job_id) == ("gap_timeout", None)


# Reports of failures.


@pytest.mark.parametrize("kind", ["failed", "expired"])
def test_a_failure_nobody_told_yet_is_told_before_its_outcome(kind: str) -> None:
    scene = Scene()
    job = scene.job(0)
    outcome = released(1, kind=kind, job=job.id, reason="node_lost")
    scene.session.deliverer.receive(EPOCH, (outcome,))
    assert [type(m) for m in scene.outlet.sent] == [UiEvent, ErrorMessage, MissingResult]


def test_a_failure_that_was_told_is_not_told_again() -> None:
    scene = Scene()
    job = scene.job(0)
    assert job.first_failure()
    outcome = released(1, kind="failed", job=job.id, reason="NMT_TIMEOUT")
    scene.session.deliverer.receive(EPOCH, (outcome,))
    assert [type(m) for m in scene.outlet.sent] == [MissingResult]


@pytest.mark.parametrize("kind", ["completed", "completed_no_text", "cancelled"])
def test_what_did_not_fail_is_no_error(kind: str) -> None:
    scene = Scene()
    job = scene.job(0)
    scene.session.deliverer.receive(EPOCH, (released(1, kind=kind, job=job.id),))
    assert len(scene.outlet.sent) == 1


@pytest.mark.parametrize(
    ("kind", "reason", "code"),
    [
        ("expired", "-", "JOB_TIMEOUT"),
        ("expired", "pending_timeout", "JOB_TIMEOUT"),
        ("failed", "timeout", "JOB_TIMEOUT"),
        ("failed", "no_ack", "JOB_TIMEOUT"),
        ("failed", "node_lost", "NODE_UNAVAILABLE"),
        ("failed", "node_restarted", "NODE_UNAVAILABLE"),
        ("failed", "not_running", "NODE_UNAVAILABLE"),
        ("failed", "push_failed", "NODE_UNAVAILABLE"),
        ("failed", "lease_lapsed", "NODE_UNAVAILABLE"),
        ("failed", "UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
        ("failed", "a_nodes_own", "a_nodes_own"),
    ],
)
def test_a_reason_of_the_scheduler_is_told_as_a_code_that_clients_know(
    kind: str, reason: str, code: str
) -> None:
    assert code_of(released(1, kind=kind, reason=reason)) == code


# Counts.


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        ("completed", "delivered"),
        ("completed_no_text", "silent"),
        ("failed", "failed"),
        ("expired", "failed"),
        ("cancelled", "skipped"),
        ("missing", "failed"),
    ],
)
def test_every_kind_of_outcome_is_accounted_for(kind: str, fate: str) -> None:
    scene = Scene()
    session = scene.session
    session.admission.parts.ledger.admit(0, 1000, lanes=1)
    session.admission.parts.window.open[0] = 1
    only(scene, released(1, kind=kind))
    expected = dict.fromkeys(("delivered_ms", "silent_ms", "failed_ms", "skipped_ms"), 0)
    expected[f"{fate}_ms"] = 1000
    assert session.admission.parts.ledger.summary() == Coverage(admitted_ms=1000, **expected)
    assert session.admission.parts.window.open == {}
    assert ended(scene) == {kind: 1}


def test_gaps_and_times_are_measured() -> None:
    scene = Scene()
    metrics, job = scene.metrics, scene.job(0)
    scene.clock.at_ms += 30
    job.times.result, job.times.settled = scene.clock.at_ms - 9, scene.clock.at_ms - 4
    only(scene, released(1, job=job.id))
    only(scene, released(2, kind="missing", reason="gap_timeout"))
    assert metrics.results.result_gap_timeout_total.value == 1
    assert (metrics.results.end_to_end_seconds.count, metrics.results.end_to_end_seconds.sum) == (
        1,
        0.03,
    )
    assert metrics.results.order_wait_seconds.sum == pytest.approx(0.004)
    assert metrics.results.result_to_deliver_seconds.sum == pytest.approx(0.005)


def test_the_outbox_is_trimmed_now_and_then() -> None:
    scene = Scene()
    for seq in range(1, KEPT + TRIM_EVERY):
        take(scene, seq)
    assert scene.tasks.started == []
    take(scene, KEPT + TRIM_EVERY)
    assert scene.tasks.started == ["_ack"]
    for seq in range(1, TRIM_EVERY + 1):
        assert scene.tasks.started == ["_ack"]
        take(scene, KEPT + TRIM_EVERY + seq)
    assert scene.tasks.started == ["_ack", "_ack"]


def test_more_is_kept_for_a_client_that_may_come_back() -> None:
    # All outcomes in flight may go to a socket that is dead already, in each language.
    scene = Scene(token="secret")
    jobs, sessions = scene.settings.jobs, scene.settings.sessions
    kept = KEPT + 2 * (jobs.in_flight_max + sessions.backlog_max)
    for seq in range(1, kept + TRIM_EVERY):
        lane = "en" if seq % 2 else "de"
        scene.session.deliverer.receive(EPOCH, (released(seq, seq // 2, lane=lane),))
    assert scene.tasks.started == []
    scene.session.deliverer.receive(EPOCH, (released(kept + TRIM_EVERY, 9999),))
    assert scene.tasks.started == ["_ack"]


def test_what_a_client_confirmed_is_forgotten_when_it_is_worth_it() -> None:
    scene = Scene(token="secret")
    take(scene, *range(1, 3 * TRIM_CONFIRMED))
    confirmed = scene.session.deliverer.confirmed
    confirmed(TRIM_CONFIRMED - 1)
    assert scene.tasks.started == []
    confirmed(TRIM_CONFIRMED)
    assert scene.tasks.started == ["_ack"]
    confirmed(2 * TRIM_CONFIRMED - 1)
    assert scene.tasks.started == ["_ack"]
    confirmed(2 * TRIM_CONFIRMED)
    assert scene.tasks.started == ["_ack", "_ack"]


def test_a_client_cannot_confirm_what_it_was_not_sent() -> None:
    scene = Scene(token="secret")
    take(scene, *range(1, TRIM_CONFIRMED + 1))
    scene.session.deliverer.confirmed(TRIM_CONFIRMED + 1)
    scene.session.deliverer.confirmed(10_000)
    assert scene.tasks.started == []


def test_what_was_confirmed_is_not_confirmed_again() -> None:
    scene = Scene(token="secret")
    take(scene, *range(1, TRIM_CONFIRMED + 1))
    for seq in (TRIM_CONFIRMED, TRIM_CONFIRMED, 1, 0):
        scene.session.deliverer.confirmed(seq)
    assert scene.tasks.started == ["_ack"]


def test_only_the_latest_utterances_are_remembered() -> None:
    scene = Scene()
    for seq in range(1, 3 * POSITIONS_MAX):
        take(scene, seq)
    assert len(scene.session.deliverer.delivered._positions) == POSITIONS_MAX


# Groups, context and the timeline.


def test_results_that_follow_each_other_closely_share_a_group() -> None:
    scene = Scene()
    first = result(scene, released(1, job=scene.job(0).id))
    scene.clock.at_ms += 1500
    second = result(scene, released(2, job=scene.job(1).id))
    scene.clock.at_ms += 2001
    third = result(scene, released(3, job=scene.job(2).id))
    assert first.group_id == second.group_id != third.group_id
    assert [m.part_index for m in (first, second, third)] == [0, 1, 0]


def test_the_languages_of_one_utterance_are_one_part() -> None:
    scene = Scene(tgt_langs=("en", "de"))
    english = result(scene, released(1, 0, job=scene.job(0, "en").id))
    german = result(scene, released(2, 0, job=scene.job(0, "de").id, lane="de"))
    assert (english.group_id, english.part_index) == (german.group_id, german.part_index)


def test_what_was_said_is_offered_as_context() -> None:
    scene = Scene()
    assert scene.session.deliverer.groups.context == ""
    result(scene, released(1, job=scene.job(0).id))
    assert scene.session.deliverer.groups.context == "User: ni hao\nTarget: hello"


def test_a_result_without_recognised_words_is_in_no_group() -> None:
    scene = Scene()
    payload = result_payload("", "hello")
    message = result(scene, released(1, job=scene.job(0).id, payload=payload))
    assert (message.group_id, message.part_index) == (None, None)
    assert message.timeline is not None
    assert scene.session.deliverer.groups.context == ""


def test_the_parts_of_the_timeline_sum_to_the_time_since_the_end_of_speech() -> None:
    scene = Scene()
    job = scene.job(0)
    job.times.result, job.times.settled = scene.clock.at_ms + 20, scene.clock.at_ms + 25
    scene.clock.at_ms += 40
    line = result(scene, released(1, job=job.id)).timeline
    assert line is not None
    parts = {name: getattr(line, name) for name in line.__struct_fields__ if name != "total_ms"}
    assert line.total_ms == 40 == sum(parts.values())
    assert (line.settle_ms, line.order_wait_ms) == (5, 15)


def test_a_result_whose_job_is_not_known_any_more_comes_without_group_and_timeline() -> None:
    message = result(Scene(), released(1, job="job-of-another-time"))
    assert (message.group_id, message.timeline) == (None, None)
    assert message.text_translated == "hello"
