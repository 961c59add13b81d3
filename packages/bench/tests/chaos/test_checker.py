"""The checker of the chaos harness: it accepts a good history and rejects every bad one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lingua_bench.chaos import marked_audio, report
from lingua_bench.chaos.checker import check
from lingua_bench.chaos.findings import ChaosFindings, ChaosRules, Danger
from lingua_bench.chaos.history import (
    RESULT,
    AnyLine,
    AttemptFinished,
    AttemptStarted,
    ClientEnded,
    InjectedFault,
    NodeExited,
    NodeStarted,
    NoticeReceived,
    OutcomeReceived,
    Recorder,
    SessionMoved,
    SessionOpened,
    UtteranceAdmitted,
    UtteranceBegun,
    UtteranceResent,
    UtteranceSent,
    read_lines,
)
from lingua_bench.chaos.report import Run
from lingua_bench.chaos.scenarios import Scenario

pytestmark = pytest.mark.unit

EN = ("en",)
CALM = ChaosRules(needs=frozenset())


def said(number: int, chunks: int = 2, speaker: int = 0) -> str:
    return marked_audio.written(marked_audio.MarkedUtterance(speaker, number, tuple(range(chunks))))


def heard(at: float, number: int, seq: int, **changes: Any) -> OutcomeReceived:
    """A good result of an utterance of two chunks, unless something is changed."""
    text = said(number)
    good = OutcomeReceived(
        at, 0, 0, number, "en", RESULT, text, marked_audio.translated(text, "en", 1), "e1", seq
    )
    return msgspec.structs.replace(good, **changes)


def missing(
    at: float, index: int, seq: int, reason: str = "failed", life: int = 0
) -> OutcomeReceived:
    return heard(at, index, seq, reason=reason, said="", text="", life=life)


def spoken(number: int, at: float, life: int = 0, index: int | None = None) -> list[AnyLine]:
    place = number if index is None else index
    return [UtteranceBegun(at, 0, number, life, place, EN), UtteranceSent(at + 0.1, 0, number, 2)]


OPENED, ENDED = SessionOpened(0.0, 0, "s-1"), ClientEnded(9.0, 0, "", 0)
CLIENT: list[AnyLine] = [
    OPENED,
    *spoken(0, 1.0),
    *spoken(1, 1.2),
    heard(2.0, 0, 1),
    heard(2.1, 1, 2),
    ENDED,
]
NODE: list[AnyLine] = [
    NodeStarted(0.5, "node-0", 2),
    AttemptStarted(1.3, "j0", 1, said(0), "en", 1, 0),
    AttemptStarted(1.4, "j1", 1, said(1), "en", 2, 0),
    AttemptFinished(1.9, "j0", 1, is_done=True),
    AttemptFinished(2.0, "j1", 1, is_done=True),
]
KILL = InjectedFault(1.5, "kill_instance", "instance-0", 2.5)


def write(place: Path, name: str, lines: Sequence[AnyLine]) -> None:
    recorder = Recorder(place / name)
    for line in lines:
        recorder.note(line)
    recorder.close()


def checked(
    place: Path,
    client: Sequence[AnyLine] = CLIENT,
    node: Sequence[AnyLine] = NODE,
    faults: Sequence[AnyLine] = (KILL,),
) -> ChaosFindings:
    write(place, "0.clients", client)
    write(place, "node-0-1.node", node)
    write(place, "nemesis.faults", faults)
    return check(place)


def changed(at: int, *lines: AnyLine) -> list[AnyLine]:
    """Return the good history with other lines in place of one."""
    return [*CLIENT[:at], *lines, *CLIENT[at + 1 :]]


def test_a_good_history_has_no_violation_and_its_numbers_are_counted(tmp_path: Path) -> None:
    findings = checked(tmp_path)
    assert findings.violations(ChaosRules()) == []
    assert findings.voids(ChaosRules()) == []
    assert (findings.utterances, findings.outcomes, findings.attempts) == (2, 2, 2)
    assert (findings.kills, findings.hits, findings.affected) == (1, 1, 2)
    assert findings.affected_p99_s == pytest.approx(0.9)


BAD: list[tuple[str, list[AnyLine], str]] = [
    ("an outcome that never came", changed(6), "lost: 1"),
    ("an outcome that came twice", [*CLIENT[:-1], heard(3.0, 1, 3), ENDED], "duplicates: 1"),
    (
        "two outcomes in the wrong order",
        [*CLIENT[:5], heard(2.0, 1, 1), heard(2.1, 0, 2), ENDED],
        "inversions: 1",
    ),
    ("a position that was left out", changed(6, heard(2.1, 1, 3)), "gaps: 1"),
    (
        "the audio of another utterance",
        changed(6, heard(2.1, 1, 2, said=said(0), text=marked_audio.translated(said(0), "en", 1))),
        "wrong: 1",
    ),
    (
        "the audio of another speaker",
        changed(6, heard(2.1, 1, 2, said=said(1, speaker=4))),
        "wrong: 1",
    ),
    ("audio without its end", changed(6, heard(2.1, 1, 2, said=said(1, chunks=1))), "wrong: 1"),
    ("garbled audio", changed(6, heard(2.1, 1, 2, said=marked_audio.GARBLED)), "wrong: 1"),
    (
        "a translation into another language",
        changed(6, heard(2.1, 1, 2, text=marked_audio.translated(said(1), "es", 1))),
        "wrong: 1",
    ),
    (
        "an outcome in a language nobody asked for",
        [*CLIENT[:-1], heard(3.0, 1, 3, target="es"), ENDED],
        "wrong: 1",
    ),
    (
        "an outcome of an utterance nobody spoke",
        [*CLIENT[:-1], missing(3.0, 7, 3), ENDED],
        "wrong: 1",
    ),
    ("an outcome at another utterance's place", changed(6, heard(2.1, 1, 2, index=0)), "wrong: 1"),
    (
        "a speaker that broke",
        changed(7, ClientEnded(9.0, 0, "SessionLost: x", 0)),
        "a speaker broke: SessionLost: x (1)",
    ),
    ("a speaker that never ended", CLIENT[:-1], "a speaker broke: it did not end (1)"),
    (
        "a move that was never resumed",
        [*CLIENT[:-1], SessionMoved(3.0, 0, None), ENDED],
        "unresumed: 1",
    ),
    ("a slow resume", [*CLIENT[:-1], SessionMoved(3.0, 0, 0.4), ENDED], "resume_p99_ms: 400"),
    ("an outcome that came too late", changed(6, heard(11.0, 1, 2)), "affected_p99_s: 9.70"),
]


@pytest.mark.parametrize(("client", "found"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_history_of_a_client_is_a_violation(
    client: list[AnyLine], found: str, tmp_path: Path
) -> None:
    assert found in checked(tmp_path, client).violations(ChaosRules())


RERUN = AttemptStarted(3.0, "j0", 1, said(0), "en", 1, 0)
BAD_NODES: list[tuple[str, list[AnyLine], str]] = [
    (
        "more at a time than it takes",
        [*NODE, AttemptStarted(1.5, "j2", 1, said(1), "en", 3, 0)],
        "over_capacity: 1",
    ),
    ("an attempt that was started twice", [*NODE, RERUN], "started_twice: 1"),
    (
        "a result that was taken although another attempt was running",
        [*NODE, AttemptStarted(1.6, "j0", 2, said(0), "en", 1, 0)],
        "stale_accepted: 1",
    ),
    (
        "a node that ended by itself",
        [*NODE, NodeExited(3.0, "node-0")],
        "node_exits: 1",
    ),
    (
        "too many attempts",
        [*NODE, AttemptStarted(1.6, "j9", 20, "", "en", 1, 0)],
        "attempts_most: 20",
    ),
]


@pytest.mark.parametrize(
    ("node", "found"), [row[1:] for row in BAD_NODES], ids=[row[0] for row in BAD_NODES]
)
def test_a_bad_history_of_a_node_is_a_violation(
    node: list[AnyLine], found: str, tmp_path: Path
) -> None:
    assert found in checked(tmp_path, node=node).violations(ChaosRules())


def test_a_store_that_forgets_may_have_an_attempt_started_twice(tmp_path: Path) -> None:
    assert checked(tmp_path, node=[*NODE, RERUN]).violations(ChaosRules(store_forgets=True)) == []


@pytest.mark.parametrize("name", ["leases_left", "internal_errors"])
def test_what_was_measured_beside_the_histories_is_a_violation_too(
    name: str, tmp_path: Path
) -> None:
    findings = checked(tmp_path)
    setattr(findings, name, 2)
    assert findings.violations(ChaosRules()) == [f"{name}: 2"]


def test_every_utterance_must_be_confirmed_where_no_scheduler_is_harmed(tmp_path: Path) -> None:
    strict = ChaosRules(all_accepted=True)
    confirmed = [UtteranceAdmitted(1.5, 0, number) for number in (0, 1)]
    assert checked(tmp_path, [*CLIENT[:5], confirmed[0], *CLIENT[5:]]).violations(strict) == [
        "unaccepted: 1"
    ]


def test_confirmed_utterances_are_no_violation(tmp_path: Path) -> None:
    confirmed = [UtteranceAdmitted(1.5, 0, number) for number in (0, 1)]
    findings = checked(tmp_path, [*CLIENT[:5], *confirmed, *CLIENT[5:]])
    assert findings.violations(ChaosRules(all_accepted=True)) == []


@pytest.mark.parametrize(
    ("measure", "limit"),
    [
        ("after_kill_p50_ms", "after_kill_p50_max_ms"),
        ("after_kill_p99_ms", "after_kill_p99_max_ms"),
        ("after_freeze_p50_ms", "after_freeze_p50_max_ms"),
        ("after_freeze_most_ms", "after_freeze_max_ms"),
    ],
)
def test_jobs_of_a_lost_node_must_run_elsewhere_soon(measure: str, limit: str) -> None:
    rules = replace(CALM, **{limit: 300.0})
    findings = ChaosFindings()
    setattr(findings, measure, 300.0)
    assert findings.violations(rules) == []
    setattr(findings, measure, 301.0)
    assert findings.violations(rules) == [f"{measure}: 301"]


def test_the_moves_of_a_killed_nodes_jobs_are_measured(tmp_path: Path) -> None:
    moved: list[AnyLine] = [
        NodeStarted(0.5, "node-1", 2),
        AttemptStarted(1.6, "j0", 2, said(0), "en", 1, 0),
    ]
    write(tmp_path, "node-1-2.node", moved)
    findings = checked(tmp_path, faults=[InjectedFault(1.5, "kill_node", "node-0", 1.7)])
    assert (findings.moved_after_kill, findings.moved_after_freeze) == (1, 0)
    assert findings.after_kill_p50_ms == findings.after_kill_p99_ms == pytest.approx(100)
    # The second job was running, too, and was never started again.
    assert findings.moves_unseen == 1


def test_a_run_in_which_too_few_attempts_failed_is_void() -> None:
    rules = replace(CALM, failed_attempts_percent_min=10.0)
    findings = ChaosFindings(utterances=91, outcomes=91, attempts=100)
    assert findings.voids(rules) == ["9.0 % of the attempts failed, not 10 %"]
    findings.outcomes -= 1
    assert findings.voids(rules) == []


def test_a_run_that_broke_off_is_a_violation() -> None:
    broken = ChaosFindings(mishaps=["the run broke off: no port"])
    assert broken.violations(CALM) == ["the run broke off: no port"]


def test_an_utterance_without_translation_is_answered_and_counted_by_its_reason(
    tmp_path: Path,
) -> None:
    findings = checked(tmp_path, changed(6, missing(2.1, 1, 2, "expired")))
    assert findings.violations(ChaosRules(missing_percent_max=50)) == []
    assert findings.missing == {"expired": 1}
    assert findings.violations(ChaosRules()) == ["missing_percent: 50.0"]


def test_an_utterance_that_was_never_finished_is_unknown_and_not_lost(tmp_path: Path) -> None:
    begun: AnyLine = UtteranceBegun(3.0, 0, 2, 0, 2, EN)
    findings = checked(tmp_path, [*CLIENT[:-1], begun, ENDED])
    assert (findings.lost, findings.unknown, findings.utterances) == (0, 1, 2)
    assert findings.violations(ChaosRules()) == []


def test_an_outcome_of_an_utterance_that_was_never_finished_is_known(tmp_path: Path) -> None:
    begun: AnyLine = UtteranceBegun(3.0, 0, 2, 0, 2, EN)
    findings = checked(tmp_path, [*CLIENT[:-1], begun, missing(4.0, 2, 3), ENDED])
    assert (findings.unknown, findings.lost, findings.wrong) == (0, 0, 0)


def test_an_outcome_may_be_written_before_the_end_of_its_utterance(tmp_path: Path) -> None:
    client = [
        OPENED,
        UtteranceBegun(1.0, 0, 0, 0, 0, EN),
        heard(1.1, 0, 1),
        UtteranceSent(1.11, 0, 0, 2),
        ENDED,
    ]
    assert checked(tmp_path, client).violations(ChaosRules(needs=frozenset())) == []


def test_positions_start_over_under_a_new_epoch(tmp_path: Path) -> None:
    findings = checked(tmp_path, changed(6, heard(2.1, 1, 1, epoch="e2")))
    assert (findings.gaps, findings.epochs) == (0, 1)


def test_a_session_given_up_loses_what_was_accepted_and_says_the_rest_again(
    tmp_path: Path,
) -> None:
    client = [
        OPENED,
        *spoken(0, 1.0),
        *spoken(1, 1.2),
        *spoken(2, 1.4),
        heard(2.0, 0, 1),
        NoticeReceived(3.0, 0, "reset", "expired 200"),
        SessionOpened(3.0, 0, "s-2"),
        UtteranceResent(3.0, 0, 2, 1, 0),
        missing(4.0, 0, 1, life=1),
        ENDED,
    ]
    findings = checked(tmp_path, client)
    assert (findings.lost, findings.wrong, findings.gaps) == (1, 0, 0)
    assert findings.told == {"reset": 1}


def test_both_languages_of_an_utterance_must_be_answered(tmp_path: Path) -> None:
    both: AnyLine = UtteranceBegun(1.0, 0, 0, 0, 0, ("en", "es"))
    client = [OPENED, both, UtteranceSent(1.1, 0, 0, 2), heard(2.0, 0, 1), ENDED]
    assert checked(tmp_path, client).lost == 1


VOIDS: list[tuple[Danger, str, str]] = [
    ("resume", "resumes", "no session was resumed"),
    ("stale", "stale_rejected", "no stale result was rejected"),
    ("adoption", "adopted", "no inbox entry was adopted"),
    ("move", "moves", "no session was moved"),
    ("epoch", "epochs", "no session got a new epoch"),
    ("after_kill", "moved_after_kill", "nothing was moved after a kill"),
    ("after_freeze", "moved_after_freeze", "nothing was moved after a freeze"),
    ("hit", "hits", "no fault met an utterance in progress"),
]


@pytest.mark.parametrize(("need", "field", "reason"), VOIDS)
def test_a_run_that_did_not_go_through_the_danger_is_void(
    need: Danger, field: str, reason: str
) -> None:
    rules, findings = ChaosRules(needs=frozenset({need})), ChaosFindings(utterances=5)
    assert findings.voids(rules) == [reason]
    setattr(findings, field, 1)
    assert findings.voids(rules) == []


def test_a_run_without_a_word_is_void() -> None:
    assert ChaosFindings().voids(CALM) == ["nothing was spoken"]


def test_a_failover_must_have_happened_where_it_is_wanted() -> None:
    rules, findings = ChaosRules(needs=frozenset({"failover"})), ChaosFindings(utterances=1)
    assert findings.voids(rules) == ["no master failed over"]
    findings.faults["kill_master"] += 1
    assert findings.voids(rules) == []


def test_faults_that_met_nothing_do_not_count_as_hits(tmp_path: Path) -> None:
    late = msgspec.structs.replace(KILL, at=7.0)
    findings = checked(tmp_path, faults=[late])
    assert (findings.hits, findings.affected) == (0, 0)
    assert findings.voids(ChaosRules()) == ["no fault met an utterance in progress"]


def test_a_line_that_a_killed_process_did_not_finish_was_not_seen(tmp_path: Path) -> None:
    write(tmp_path, "x.node", NODE)
    with (tmp_path / "x.node").open("ab") as file:
        file.write(b'["started",9.0,"j7"')
    assert list(read_lines(tmp_path / "x.node")) == NODE


def test_the_mark_of_a_chunk_tells_whose_it_is_and_joined_chunks_are_heard_in_order() -> None:
    audio = b"".join(marked_audio.chunk(3, 70_000, place) for place in range(3))
    assert len(audio) == 3 * marked_audio.CHUNK_BYTES
    assert marked_audio.marks_in(audio) == "3.70000:0,1,2"
    assert marked_audio.read("3.70000:0,1,2") == marked_audio.MarkedUtterance(3, 70_000, (0, 1, 2))


@pytest.mark.parametrize(
    "audio",
    [
        b"",
        bytes(marked_audio.CHUNK_BYTES),
        marked_audio.chunk(1, 1, 0)[:-2],
        marked_audio.chunk(1, 1, 0) + marked_audio.chunk(1, 2, 0),
        b"\x00\x00" + marked_audio.chunk(1, 1, 0)[:-2],
    ],
    ids=["nothing", "silence", "cut short", "two utterances", "shifted"],
)
def test_audio_that_was_not_sent_like_this_is_garbled(audio: bytes) -> None:
    assert marked_audio.marks_in(audio) == marked_audio.GARBLED
    assert marked_audio.read(marked_audio.GARBLED) is None


def run_of(findings: ChaosFindings, rules: ChaosRules = CALM) -> Run:
    return Run(Scenario("instances", "", rules=rules), findings)


def test_the_last_object_has_exactly_the_numbers_to_quote_over_all_runs() -> None:
    first = ChaosFindings(utterances=3, lost=1, affected_p99_s=1.23456)
    first.faults.update({"kill_node": 2, "freeze_node": 5, "pause_kill_instance": 1})
    second = ChaosFindings(utterances=4, stale_rejected=2, adopted=1, affected_p99_s=0.5)
    second.heard_wrong, second.listeners_lost, second.room_utterances = 2, 1, 3
    second.outcomes, second.missing["failed"] = 8, 2
    assert report.summary([run_of(first), run_of(second)]) == {
        "utterances": 7,
        "kills": 3,
        "lost": 1,
        "duplicates": 0,
        "inversions": 0,
        "stale_rejected": 2,
        "adopted": 1,
        "leases_left": 0,
        "streams_opened": 0,
        "streams_lost": 0,
        "listeners_killed": 0,
        "affected_p99_s": 1.235,
        "heard_wrong": 2,
        "listeners_lost": 1,
        "rooms": 3,
        "untranslated_share": 0.25,
    }


def test_a_run_says_in_a_word_whether_it_proves_anything() -> None:
    good = ChaosFindings(utterances=1)
    assert run_of(good).verdict == "good"
    void = run_of(good, ChaosRules(needs=frozenset({"stale"})))
    assert (void.verdict, void.problems) == ("VOID", ["VOID: no stale result was rejected"])
    both = replace(void, findings=ChaosFindings(utterances=1, lost=1))
    assert both.verdict == "VIOLATED"
    assert len(both.problems) == 2
