"""A session on a board without a store: what the unit tests of `live` talk to.

The session, the board, the hall and the teller are the real ones; the clock is set by hand, the
outlet keeps what is sent and tasks are noted instead of run. Whatever would ask the store fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lingua_scheduler.config import Settings
from lingua_scheduler.live.assembly import job_of
from lingua_scheduler.live.board import JobBoard, Means
from lingua_scheduler.live.hall import Hall
from lingua_scheduler.live.instance import rules_of
from lingua_scheduler.live.outcome import StoredResult, encode_result
from lingua_scheduler.live.profile import Profile, Target
from lingua_scheduler.live.session import LiveSession, Opened, Piece
from lingua_scheduler.messages.from_client import SessionInit
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.session.segmenter import Segmenter
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.records import Released

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.messages.to_client import ToClient

EPOCH = "e1"
WALL_MS = 1_700_000_000_000
START_MS = 5_000.0


class HandClock:
    """A clock that goes when it is told to."""

    def __init__(self, at_ms: float = START_MS) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> float:
        return self.at_ms

    def wall_ms(self) -> int:
        return WALL_MS + int(self.at_ms)


class KeepingOutlet:
    """A client that keeps everything it is sent."""

    def __init__(self, *, speaks_additions: bool = True, wants_events: bool = True) -> None:
        self.speaks_additions = speaks_additions
        self.wants_events = wants_events
        self.sent: list[ToClient] = []

    def send(self, message: ToClient) -> None:
        self.sent.append(message)

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"nothing here closes a socket: {code} {reason}")

    def take(self) -> list[ToClient]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


class NotedTasks:
    """Keeps the names of what should run, and runs nothing."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.started.append(cast("Any", work).__name__)
        work.close()


class Scene:
    """One session and its board; others may be added as listeners."""

    def __init__(self, **init: Any) -> None:
        self.settings = Settings()
        self.clock = HandClock()
        self.tasks = NotedTasks()
        self.metrics = LiveMetrics()
        means = Means(self.clock, self.metrics, cast("Any", self.tasks), cast("Any", None))
        nothing = cast("Any", None)
        self.board = JobBoard("here", nothing, nothing, nothing, means)
        self.hall = Hall(self.board.sessions, self.settings, self.clock)
        self.outlet = KeepingOutlet()
        self.session = self.enter("s1", self.outlet, **init)

    def enter(self, name: str, outlet: KeepingOutlet, **init: Any) -> LiveSession:
        """Add a session."""
        profile = profile_of(**init)
        session = LiveSession(
            Opened(name, Cell("test", 0), EPOCH, "", "t1"), profile, outlet,
            board=self.board, hall=self.hall, settings=self.settings,
            segmenter=Segmenter(rules_of(self.settings), profile.audio),
        )  # fmt: skip
        self.board.sessions[name] = session
        return session

    def gather(self, *names: str) -> None:
        """Put the speaker and others into one room."""
        self.hall.rooms.create("123456", self.session.id, now_ms=0)
        for name in names:
            self.hall.rooms.join("123456", name, now_ms=0)

    def job(
        self, index: int, lane: str = "en", *, listeners: tuple[str, ...] | None = None
    ) -> LiveJob:
        """Put a job on the board, as if the store had taken it."""
        now = self.clock.now_ms()
        target = Target(lane, lane, listeners)
        piece = Piece(
            index, b"", self.session.profile, (target,), "t1", "manual", now, now,
            turn=f"s1-t{index}",
        )  # fmt: skip
        job = job_of(self.session, piece, target, self.settings.segmentation, retain_audio=False)
        self.board.jobs[job.id] = job
        return job


def profile_of(**init: Any) -> Profile:
    """Return the profile of a `session_init`, from zh into en unless it says otherwise."""
    given = {"src_lang": "zh", "tgt_lang": "en"} | init
    return Profile.of(SessionInit(**given), tenant="", pools=(), paired="")


def result_payload(text_asr: str = "ni hao", text_translated: str = "hello") -> bytes:
    """Return what the store keeps of a result."""
    return encode_result(StoredResult(text_asr, text_translated, b"sound", "pcm16", "t1"))


def released(
    seq: int,
    utterance: int | None = None,
    *,
    lane: str = "en",
    kind: str = "completed",
    job: str = "-",
    reason: str = "-",
    payload: bytes | None = None,
) -> Released:
    """Return an outcome as the store releases it; the n-th position is utterance n-1."""
    index = seq - 1 if utterance is None else utterance
    if payload is None:
        payload = result_payload() if kind == "completed" else b""
    return Released(seq, kind, index, lane, job, 1, reason, payload)
