"""The checker of real speech under faults; the real run is `make chaos-speech`."""

from __future__ import annotations

import pytest

from lingua_bench.chaos.history import RESULT, InjectedFault, OutcomeReceived
from lingua_bench.speech.chaos_report import (
    AcceptedSpan,
    ChaosReport,
    ClientHistory,
    SpeechFindings,
    SpokenRecording,
    check,
    reference_of,
    utterances_of,
)
from lingua_wire.shared import Coverage

pytestmark = pytest.mark.unit

# Two recordings of a second with a second of silence behind each, sent in real time from 100 s on.
TEXTS = {0: ("one two", "uno dos"), 1: ("three four", "tres cuatro")}
SENT_MS = 4000


def outcome(
    index: int, *, at: float | None = None, seq: int = 0, **changes: str
) -> OutcomeReceived:
    asr, translated = TEXTS[index]
    fields = {"target": "es", "reason": RESULT, "said": asr, "text": translated} | changes
    when = 102.0 + 2 * index if at is None else at
    return OutcomeReceived(
        when,
        0,
        0,
        index,
        fields["target"],
        fields["reason"],
        fields["said"],
        fields["text"],
        "e",
        seq or index + 1,
    )


def account(**changes: int) -> Coverage:
    fields = {
        "admitted_ms": 4000,
        "delivered_ms": 2600,
        "silent_ms": 1400,
        "failed_ms": 0,
        "skipped_ms": 0,
    } | changes
    return Coverage(**fields)


def history() -> ClientHistory:
    """Return the history of an undisturbed client."""
    places = [50.0 * number for number in range(1, SENT_MS // 50 + 1)]
    return ClientHistory(
        0,
        ("es",),
        said=[SpokenRecording("a", 0, 1000), SpokenRecording("b", 2000, 3000)],
        sent_ms=places,
        sent_at=[100 + place / 1000 for place in places],
        accepted=[AcceptedSpan(0, 0, 1400), AcceptedSpan(1, 1700, 3400)],
        heard=[outcome(0), outcome(1)],
        coverage=account(),
    )


def findings(seen: ClientHistory, *faults: InjectedFault) -> SpeechFindings:
    return check([seen], faults, reference_of([history()]))


# The promises


def test_a_client_that_nothing_happened_to_shows_nothing() -> None:
    found = findings(history())
    assert (found.violations(), found.voids()) == ([], [])
    assert (found.utterances, found.outcomes, found.delivered, found.recordings) == (2, 2, 2, 2)
    assert (found.same_text, found.wer) == (1.0, 0.0)


def test_an_accepted_utterance_without_an_outcome_is_lost() -> None:
    seen = history()
    del seen.heard[1]
    assert findings(seen).lost == 1


def test_each_language_without_its_outcome_counts() -> None:
    seen = history()
    seen.targets = ("es", "fr")
    seen.heard.insert(1, outcome(0, seq=2, target="fr"))
    seen.heard[2] = outcome(1, seq=3)
    found = findings(seen)
    assert (found.lost, found.gaps, found.wrong) == (1, 0, 0)


def test_a_number_that_was_left_out_is_lost() -> None:
    seen = history()
    del seen.accepted[0]
    seen.heard = [outcome(1, seq=1)]
    # The utterance, and the recording that was in it.
    assert findings(seen).lost == 2


def test_a_recording_that_is_in_no_utterance_is_lost() -> None:
    seen = history()
    del seen.accepted[1], seen.heard[1]
    assert findings(seen).lost == 1


def test_a_second_outcome_is_a_duplicate_and_no_inversion() -> None:
    seen = history()
    seen.heard.append(outcome(1, at=105.0, seq=3))
    found = findings(seen)
    assert (found.duplicates, found.inversions, found.gaps) == (1, 0, 0)


def test_outcomes_in_the_wrong_order_are_an_inversion() -> None:
    seen = history()
    seen.heard = [outcome(1, seq=1), outcome(0, seq=2)]
    found = findings(seen)
    assert (found.inversions, found.duplicates, found.lost) == (1, 0, 0)


def test_a_position_that_was_left_out_is_a_gap_and_another_epoch_begins_at_one() -> None:
    seen = history()
    seen.heard[1] = outcome(1, seq=3)
    assert findings(seen).gaps == 1
    again = OutcomeReceived(105.0, 0, 0, 1, "es", RESULT, *TEXTS[1], "later", 1)
    seen.heard[1] = again
    assert findings(seen).gaps == 0


def test_audio_in_two_utterances_is_an_overlap() -> None:
    seen = history()
    seen.accepted[1] = AcceptedSpan(1, 1300, 3400)
    assert findings(seen).violations() == ["overlaps: 1"]


def test_a_language_nobody_asked_for_is_wrong() -> None:
    seen = history()
    seen.heard.append(outcome(1, seq=3, target="fr"))
    found = findings(seen)
    assert (found.wrong, found.lost, found.duplicates) == (1, 0, 0)


def test_audio_without_a_fate_and_audio_in_no_account_are_told() -> None:
    seen = history()
    seen.coverage = account(delivered_ms=2000)
    assert findings(seen).unaccounted_ms == 600
    seen.coverage = account(admitted_ms=1000, delivered_ms=600, silent_ms=400, earlier_ms=2500)
    found = findings(seen)
    assert (found.unaccounted_ms, found.unknown_ms) == (0, 498)
    seen.coverage = None
    assert findings(seen).unknown_ms == 4000


def test_what_another_instance_admitted_before_is_no_part_of_the_sums() -> None:
    seen = history()
    seen.coverage = account(admitted_ms=1000, delivered_ms=600, silent_ms=400, earlier_ms=3000)
    assert findings(seen).violations() == []


def test_refused_speech_is_told_and_no_broken_promise() -> None:
    seen = history()
    seen.refused_ms = 500
    seen.told["gap BUSY"] += 1
    seen.coverage = account(admitted_ms=3500, silent_ms=900)
    found = findings(seen)
    assert found.violations() == []
    assert found.told == {"gap BUSY": 1}


def test_a_speaker_that_broke_is_a_violation() -> None:
    seen = history()
    seen.problem = "SessionLost: gone"
    assert findings(seen).violations() == ["a speaker broke: SessionLost: gone (1)"]


def test_an_outcome_without_translation_is_an_answer_but_many_are_not_bearable() -> None:
    seen = history()
    seen.heard[0] = outcome(0, reason="silence_detected", said="", text="")
    found = findings(seen)
    assert (found.silent, found.failed, found.violations()) == (1, 0, [])
    seen.heard[0] = outcome(0, reason="expired", said="", text="")
    found = findings(seen)
    assert (found.failed, found.lost) == (1, 0)
    assert found.violations() == ["failed: 1 of 2 outcomes"]


# Positions and texts


def test_an_outcome_whose_acceptance_was_never_told_lies_between_its_neighbours() -> None:
    seen = history()
    del seen.accepted[0]
    first, second = utterances_of(seen)
    assert (first.start_ms, first.end_ms) == (0, 1700)
    assert findings(seen).violations() == []
    seen.accepted = [AcceptedSpan(0, 0, 1400)]
    _, second = utterances_of(seen)
    assert (second.start_ms, second.end_ms) == (1400, SENT_MS)


def test_a_recording_in_two_utterances_has_the_text_of_both() -> None:
    seen = history()
    seen.said = [SpokenRecording("a", 0, 3000)]
    assert reference_of([seen]) == {
        (0, "a"): {"": "one two three four", "es": "uno dos tres cuatro"}
    }


def test_a_recording_that_is_said_again_is_compared_each_time() -> None:
    seen = history()
    seen.said[1] = SpokenRecording("a", 2000, 3000)
    found = findings(seen)
    assert (found.recordings, found.same, found.wer) == (2, 1, 1 / 2)


def test_other_words_are_not_the_same_text_but_other_signs_are() -> None:
    seen = history()
    seen.heard[0] = outcome(0, said="One, two!")
    seen.heard[1] = outcome(1, said="three for")
    found = findings(seen)
    assert (found.same_text, found.wer) == (0.5, 0.25)


def test_another_translation_of_the_same_words_is_not_the_same_text() -> None:
    seen = history()
    seen.heard[1] = outcome(1, text="tres y cuatro")
    found = findings(seen)
    assert (found.same_text, found.wer) == (0.5, 0.0)


# Utterances in progress


def test_what_was_open_during_a_fault_is_measured_from_its_end() -> None:
    seen = history()
    seen.heard[1] = outcome(1, at=109.4)
    found = findings(seen, InjectedFault(103.8, "kill_asr", "x", 104.5))
    assert (found.affected, found.hits) == (1, 1)
    assert found.affected_p50_s == found.affected_max_s == pytest.approx(6.0)


def test_a_fault_before_the_end_of_an_utterance_affects_it_and_did_not_meet_its_work() -> None:
    found = findings(history(), InjectedFault(102.5, "kill_asr", "x", 102.6))
    assert (found.affected, found.hits) == (1, 0)
    assert found.voids() == ["no fault met an utterance in progress"]


def test_a_fault_that_had_healed_before_affects_nothing() -> None:
    assert findings(history(), InjectedFault(90.0, "kill_asr", "x", 99.0)).affected == 0


def test_a_scheduler_that_died_and_was_left_by_nobody_proves_nothing() -> None:
    seen, fault = history(), InjectedFault(103.5, "kill_scheduler", "x", 104.5)
    assert findings(seen, fault).voids() == ["no session was resumed"]
    seen.resumes = 1
    assert findings(seen, fault).voids() == []


# The report


def test_the_summary_is_of_the_round_under_fire_and_comes_last() -> None:
    seen = history()
    seen.resumes = 1
    faults = [
        InjectedFault(103.5, "kill_scheduler", "x", 104.5),
        InjectedFault(103.6, "stop_tts", "y", 104.0),
    ]
    calm, fire = findings(history()), findings(seen, *faults)
    report = ChaosReport(calm, fire, faults, restarts=2)
    assert report.problems == []
    last = report.objects()[-1]
    assert last == report.summary()
    wanted = {
        "utterances": 2,
        "kills": 1,
        "lost": 0,
        "duplicates": 0,
        "inversions": 0,
        "failed": 0,
        "same_text": 1.0,
        "restarts": 2,
        "left_over": 0,
    }
    assert wanted.items() <= last.items()
    assert [row["healed_s"] for row in report.objects() if "fault" in row] == [1.0, 0.4]


def test_processes_left_over_mishaps_and_either_round_are_problems() -> None:
    seen = history()
    del seen.heard[1]
    calm, broken = findings(history()), findings(seen)
    assert ChaosReport(broken, calm).problems == ["undisturbed: lost: 1"]
    assert ChaosReport(calm, broken).problems == ["under fire: lost: 1"]
    assert ChaosReport(calm, calm, left_over=3).problems == ["processes left over: 3"]
    assert ChaosReport(calm, calm, mishaps=["it did not heal"]).problems == ["it did not heal"]
    assert ChaosReport().problems == ["VOID: nothing was spoken"]
