"""The checker of rooms: it accepts a good history and rejects everything a room must not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.checker import check
from lingua_bench.chaos.findings import ROOM_DANGERS, ChaosFindings, ChaosRules
from lingua_bench.chaos.history import (
    RESULT,
    AnyLine,
    AttemptStarted,
    ChangeRequested,
    CutRequested,
    DeliveryInterrupted,
    InjectedFault,
    NodeStarted,
    NoticeReceived,
    ParticipantConnected,
    ParticipantLeft,
    ParticipantResumed,
    PassedNoticeReceived,
    Recorder,
    RoomOutcomeReceived,
    RosterReceived,
    UtteranceAcknowledged,
)
from lingua_bench.chaos.message_recorder import AS_SPOKEN

pytestmark = pytest.mark.unit

CALM = ChaosRules(needs=frozenset())
ANN, BEN, CHO, DAN, EVE = range(10_000, 10_005)
ROOM, OTHER = "111111", "222222"
LANGS = {ANN: "zh", BEN: "en", CHO: "zh", DAN: "en", EVE: "en"}


def session(participant: int) -> str:
    return f"s-{participant}"


def said(number: int = 0, speaker: int = ANN) -> str:
    return marked_audio.written(marked_audio.MarkedUtterance(speaker, number, (0, 1)))


def roster(
    at: float, participant: int, *members: int, room: str = ROOM, **langs: str
) -> RosterReceived:
    """A roster; `_10001="es"` means that this participant wants another language."""
    return RosterReceived(
        at,
        participant,
        room,
        tuple((session(one), langs.get(f"_{one}", LANGS[one]), one) for one in members),
    )


def told_all(at: float, *members: int, room: str = ROOM, **langs: str) -> list[AnyLine]:
    return [roster(at, one, *members, room=room, **langs) for one in members]


def result(
    at: float, participant: int, seq: int, lane: str = "en", **changes: Any
) -> RoomOutcomeReceived:
    """A good result of Ann's first utterance, unless something is changed."""
    text = said() if lane == AS_SPOKEN else marked_audio.translated(said(), lane, 1)
    good = RoomOutcomeReceived(
        at, participant, session(ANN), 0, lane, RESULT, said(), text, "e", seq
    )
    return msgspec.structs.replace(good, **changes)


def passed(at: float, seq: int = 1, lane: str = "en", index: int = 0) -> PassedNoticeReceived:
    return PassedNoticeReceived(at, ANN, session(ANN), index, lane, "e", seq)


def stays(*participants: int) -> list[AnyLine]:
    return [ParticipantLeft(60.0, one, "stayed", "") for one in participants]


ARRIVE: list[AnyLine] = [
    *(ParticipantConnected(0.1, one, session(one), "sdk", LANGS[one], ("es",)) for one in LANGS),
    ChangeRequested(0.2, ANN, "create", "", "zh"),
    *told_all(0.3, ANN),
    ChangeRequested(0.4, BEN, "join", ROOM, "en"),
    ChangeRequested(0.4, CHO, "join", ROOM, "zh"),
    *told_all(0.5, ANN, BEN, CHO),
    # In another room all the time, and in no room.
    ChangeRequested(0.6, DAN, "create", "", "en"),
    *told_all(0.7, DAN, room=OTHER),
]
CUT: AnyLine = CutRequested(10.0, ANN, 0, 2, 0, "final")
SAY: list[AnyLine] = [CUT, UtteranceAcknowledged(10.01, ANN, session(ANN), 0, 0)]
HEAR: list[AnyLine] = [
    result(10.2, BEN, 1),
    result(10.2, CHO, 1, AS_SPOKEN),
    passed(10.21),
]
END = stays(*LANGS)
NODE: list[AnyLine] = [
    NodeStarted(0.0, "node-0", 2),
    AttemptStarted(10.05, "j0", 1, said(), "en", 1, 0),
]


def write(place: Path, name: str, lines: list[AnyLine]) -> None:
    recorder = Recorder(place / name)
    for line in lines:
        recorder.note(line)
    recorder.close()


def checked(
    place: Path,
    *middle: AnyLine,
    node: list[AnyLine] | None = None,
    faults: tuple[AnyLine, ...] = (),
) -> ChaosFindings:
    write(place, "rooms.people", [*ARRIVE, *middle, *END])
    write(place, "node-0-1.node", NODE if node is None else node)
    write(place, "nemesis.faults", list(faults))
    return check(place)


def test_a_good_history_has_no_violation_and_its_numbers_are_counted(tmp_path: Path) -> None:
    findings = checked(tmp_path, *SAY, *HEAR)
    assert findings.violations(CALM) == []
    assert (findings.utterances, findings.room_utterances, findings.had_to_hear) == (1, 1, 2)
    assert (findings.people, findings.outcomes, findings.ambiguous) == (5, 2, 0)


EARLIER: list[AnyLine] = [
    CutRequested(9.0, ANN, 0, 2, 0, "final"),
    UtteranceAcknowledged(9.01, ANN, session(ANN), 0, 0),
    CutRequested(10.0, ANN, 1, 2, 1, "final"),
    UtteranceAcknowledged(10.01, ANN, session(ANN), 1, 1),
]
SECOND = {"index": 1, "said": said(1), "text": marked_audio.translated(said(1), "en", 1)}
READ_SECOND = SECOND | {"text": said(1)}
BAD: list[tuple[str, list[AnyLine], str]] = [
    ("a listener who got nothing", [*SAY, *HEAR[1:2]], "listeners_lost: 1"),
    ("a reader who got nothing", [*SAY, HEAR[0], HEAR[2]], "listeners_lost: 1"),
    ("told as passed although one never got it", [*SAY, *HEAR[1:]], "passed_early: 1"),
    ("not told as passed", [*SAY, *HEAR[:2]], "unpassed: 1"),
    ("somebody in another room", [*SAY, *HEAR, result(10.3, DAN, 1)], "heard_wrong: 1"),
    ("somebody in no room", [*SAY, *HEAR, result(10.3, EVE, 1)], "heard_wrong: 1"),
    (
        "somebody who entered later",
        [
            *SAY,
            ChangeRequested(10.1, EVE, "join", ROOM, "en"),
            *told_all(10.15, ANN, BEN, CHO, EVE),
            *HEAR,
            result(10.3, EVE, 1),
        ],
        "heard_wrong: 1",
    ),
    (
        "somebody who had left before, as the speaker was told",
        [ChangeRequested(9.0, BEN, "leave", ROOM, ""), *told_all(9.1, ANN, CHO), *SAY, *HEAR],
        "heard_wrong: 1",
    ),
    ("the speaker, although others listen", [*SAY, *HEAR, result(10.3, ANN, 2)], "heard_wrong: 1"),
    (
        "another language than was wanted",
        [*SAY, result(10.2, BEN, 1, "es"), *HEAR[1:]],
        "wrong_language: 1",
    ),
    (
        "a translation for who understands the speaker",
        [*SAY, HEAR[0], result(10.2, CHO, 1), HEAR[2]],
        "wrong_language: 1",
    ),
    ("once more at another position", [*SAY, *HEAR, result(10.3, BEN, 2)], "duplicates: 1"),
    ("in two languages", [*SAY, *HEAR, result(10.3, BEN, 2, "es")], "duplicates: 1"),
    ("told as passed twice", [*SAY, *HEAR, passed(10.3, 2)], "duplicates: 1"),
    (
        "in the wrong order",
        [
            *EARLIER,
            result(10.2, BEN, 1, **SECOND),
            result(10.3, BEN, 2),
            result(10.2, CHO, 1, AS_SPOKEN),
            result(10.3, CHO, 2, AS_SPOKEN, **READ_SECOND),
            passed(10.3),
            passed(10.4, 2, index=1),
        ],
        "inversions: 1",
    ),
    ("a position left out", [*SAY, result(10.2, BEN, 2), *HEAR[1:]], "gaps: 1"),
    (
        "another outcome at the same position",
        [*EARLIER, result(10.2, BEN, 1), result(10.3, BEN, 1, **SECOND)],
        "wrong: 1",
    ),
    (
        "audio that nobody said so",
        [*SAY, result(10.2, BEN, 1, said=said()[:-2]), *HEAR[1:]],
        "wrong: 1",
    ),
    ("nobody's utterance", [*SAY, *HEAR, result(10.3, BEN, 2, index=7, said="")], "wrong: 1"),
    ("speech that was never accepted", [CUT], "lost: 1"),
    (
        "a session that could not go on",
        [*SAY, *HEAR, ParticipantConnected(20.0, BEN, "s-new", "sdk", "en", ("es",))],
        "listeners_reset: 1",
    ),
    (
        "an SDK that says where one is not",
        [NoticeReceived(5.0, BEN, "misplaced", "")],
        "misplaced: 1",
    ),
]


@pytest.mark.parametrize(("middle", "found"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_a_room_must_not_show_is_a_violation(
    middle: list[AnyLine], found: str, tmp_path: Path
) -> None:
    node = NODE if found != "lost: 1" else NODE[:1]
    assert found in checked(tmp_path, *middle, node=node).violations(CALM)


def change(at: float, lang: str, *, told_at: float) -> list[AnyLine]:
    return [
        ChangeRequested(at, BEN, "language", ROOM, lang),
        *told_all(told_at, ANN, BEN, CHO, **{f"_{BEN}": lang}),
    ]


GOOD: list[tuple[str, list[AnyLine]]] = [
    ("a listener who left since", [*SAY, ChangeRequested(10.1, BEN, "leave", ROOM, ""), *HEAR]),
    (
        "a listener who changed its language since",
        [*SAY, *change(10.1, "es", told_at=10.11), *HEAR],
    ),
    ("a speaker who left since", [*SAY, ChangeRequested(10.1, ANN, "leave", ROOM, ""), *HEAR]),
    (
        "one who leaves just then may hear it",
        [ChangeRequested(9.99, BEN, "leave", ROOM, ""), *SAY, *HEAR, *told_all(10.3, ANN, CHO)],
    ),
    (
        "one who leaves just then may miss it",
        [ChangeRequested(9.99, BEN, "leave", ROOM, ""), *SAY, *HEAR[1:], *told_all(10.3, ANN, CHO)],
    ),
    (
        "one who enters just then may hear it",
        [
            ChangeRequested(9.99, EVE, "join", ROOM, "en"),
            *SAY,
            *HEAR,
            result(10.3, EVE, 1),
            *told_all(10.4, ANN, BEN, CHO, EVE),
        ],
    ),
    ("the same position twice is one outcome", [*SAY, *HEAR, result(10.3, BEN, 1)]),
    (
        "one without translation is an outcome",
        [*SAY, result(10.2, BEN, 1, reason="expired", said="", text=""), *HEAR[1:]],
    ),
]


@pytest.mark.parametrize("middle", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_what_may_be_is_no_violation(middle: list[AnyLine], tmp_path: Path) -> None:
    found = checked(tmp_path, *middle).violations(
        ChaosRules(needs=frozenset(), missing_percent_max=60)
    )
    assert found == []


def test_who_changes_the_language_just_then_hears_it_in_either(tmp_path: Path) -> None:
    spanish = result(10.2, BEN, 1, "es")
    node = [*NODE, AttemptStarted(10.05, "j1", 1, said(), "es", 2, 0)]
    lines = [*change(9.99, "es", told_at=10.02), *SAY, spanish, HEAR[1], passed(10.3, 1, "es")]
    assert checked(tmp_path, *lines, node=node).violations(CALM) == []


def test_said_alone_is_for_the_speaker_and_for_nobody_of_the_room_entered_since(
    tmp_path: Path,
) -> None:
    cut: AnyLine = CutRequested(10.0, EVE, 0, 2, 0, "final")
    alone = marked_audio.written(marked_audio.MarkedUtterance(EVE, 0, (0, 1)))
    heard = RoomOutcomeReceived(
        10.3,
        EVE,
        session(EVE),
        0,
        "es",
        RESULT,
        alone,
        marked_audio.translated(alone, "es", 1),
        "e",
        1,
    )
    lines = [
        cut,
        UtteranceAcknowledged(10.01, EVE, session(EVE), 0, 0),
        ChangeRequested(10.02, EVE, "join", ROOM, "en"),
        *told_all(10.1, ANN, BEN, CHO, EVE),
        heard,
    ]
    assert checked(tmp_path, *lines, node=NODE[:1]).violations(CALM) == []
    told_ben = msgspec.structs.replace(heard, participant=BEN)
    findings = checked(tmp_path, told_ben, node=NODE[:1])
    assert findings.heard_wrong == 1


def test_a_listener_that_is_gone_soon_cannot_say_that_it_missed_something(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rooms.people",
        [
            *ARRIVE,
            *SAY,
            ParticipantLeft(15.0, BEN, "closed", ""),
            *HEAR[1:2],
            passed(10.2),
            *stays(CHO, ANN),
        ],
    )
    write(tmp_path, "node-0-1.node", NODE)
    assert check(tmp_path).listeners_lost == 0


def test_where_something_was_said_is_not_certain_if_the_connection_was_lost_meanwhile(
    tmp_path: Path,
) -> None:
    lines = [
        CUT,
        ChangeRequested(10.1, ANN, "leave", ROOM, ""),
        ParticipantResumed(10.2, ANN, 0),
        UtteranceAcknowledged(10.3, ANN, session(ANN), 0, 0),
    ]
    findings = checked(tmp_path, *lines)
    assert (findings.ambiguous, findings.listeners_lost) == (1, 0)


def resumed(wanted: int) -> list[AnyLine]:
    """Ann's connection is lost right after the cut, and the acceptance with it."""
    return [CUT, ParticipantResumed(10.1, ANN, wanted)]


BEN_LEFT: list[AnyLine] = [
    ChangeRequested(5.0, BEN, "leave", ROOM, ""),
    *told_all(5.1, ANN, CHO),
]


@pytest.mark.parametrize(
    ("middle", "found"),
    [
        ([*BEN_LEFT, *resumed(1)], []),
        ([*BEN_LEFT, *resumed(0)], ["lost: 1"]),
        (resumed(1), ["listeners_lost: 1"]),
    ],
    ids=["for nobody but the speaker's language", "sent again, and not taken", "for a listener"],
)
def test_a_resume_shows_what_the_server_has_taken(
    middle: list[AnyLine], found: list[str], tmp_path: Path
) -> None:
    assert checked(tmp_path, *middle, node=NODE[:1]).violations(CALM) == found


def test_a_kill_counts_as_in_delivery_if_somebody_still_waited(tmp_path: Path) -> None:
    kill = InjectedFault(10.1, "kill_in_delivery", "instance-0", 12.0)
    for at, count in ((10.1, 1), (10.5, 0)):
        place = tmp_path / f"{at}"
        place.mkdir()
        faults = (kill, DeliveryInterrupted(at, "instance-0", said()))
        assert checked(place, *SAY, *HEAR, faults=faults).dangers["delivery_kill"] == count


@pytest.mark.parametrize("danger", ROOM_DANGERS)
def test_a_run_that_did_not_go_through_a_danger_of_rooms_is_void(danger: Any) -> None:
    rules, findings = ChaosRules(needs=frozenset({danger})), ChaosFindings(utterances=1)
    assert findings.voids(rules) == [ROOM_DANGERS[danger]]
    findings.dangers[danger] += 1
    assert findings.voids(rules) == []


def test_what_schedulers_count_must_be_what_was_seen() -> None:
    findings = ChaosFindings(metrics={"utterances": (4, 5), "jobs completed": (3, 3)})
    assert findings.violations(CALM) == ["/metrics says 4 utterances, the checker counted 5"]
