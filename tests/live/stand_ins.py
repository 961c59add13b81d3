"""A session on a board without a store: what the unit tests of `live` talk to.

The session, the board, the workshop, the hall and the teller are the real ones; the clock is set
by hand, outlets and the post keep what is sent, and tasks are noted instead of run. Whatever would
ask the store fails; `offices.py` is for what does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from lingua_scheduler.config import Settings
from lingua_scheduler.live.assembly import job_of
from lingua_scheduler.live.board import JobBoard, Means
from lingua_scheduler.live.declared import Said
from lingua_scheduler.live.hall import Hall
from lingua_scheduler.live.node import LiveNode
from lingua_scheduler.live.outcome import HEARD, StoredResult, encode_result
from lingua_scheduler.live.piece import Piece
from lingua_scheduler.live.profile import Profile, Target
from lingua_scheduler.live.reception import rules_of
from lingua_scheduler.live.session import LiveSession, Opened
from lingua_scheduler.live.workshop import Workshop
from lingua_scheduler.messages.from_client import SessionInit
from lingua_scheduler.messages.from_node import NodeRegister
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.session.rooms import Member, Room
from lingua_scheduler.session.segmenter import Segmenter
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.records import Released
from lingua_scheduler.state.room_store import RoomStore

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.messages.codec import Sound
    from lingua_scheduler.messages.to_client import ToClient, TranslationResult
    from lingua_scheduler.messages.to_node import ToNode

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
        self.is_behind = False

    def send(self, message: ToClient) -> None:
        self.sent.append(message)

    def send_with(self, message: TranslationResult, sound: Sound) -> None:
        assert not message.tts_audio
        self.sent.append(msgspec.structs.replace(message, tts_audio=sound.raw))

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"nothing here closes a socket: {code} {reason}")

    def take(self) -> list[ToClient]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


class ClosingOutlet(KeepingOutlet):
    """A client whose socket may be closed."""

    closed_with = 0

    def close(self, code: int, reason: str) -> None:
        self.closed_with = code


class NodeSocket:
    """A node's socket that keeps everything it is sent; one that is dead takes nothing."""

    def __init__(self, *, is_dead: bool = False) -> None:
        self.is_dead = is_dead
        self.sent: list[ToNode] = []
        self.closed_with = 0

    def send(self, message: ToNode) -> bool:
        if not self.is_dead:
            self.sent.append(message)
        return not self.is_dead

    def close(self, code: int, reason: str) -> None:
        self.closed_with = code

    def take(self) -> list[ToNode]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


class KeepingPost:
    """Letters that were written, and to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Letter]] = []

    def send(self, to: str, letter: Letter) -> Coroutine[Any, Any, bool]:
        # When it is asked to, not when the task runs: noted tasks never do.
        self.sent.append((to, letter))
        return self._arrive()

    async def _arrive(self) -> bool:
        return True


class NotedTasks:
    """Keeps the names of what should run, and runs nothing."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.started.append(cast("Any", work).__name__)
        work.close()


class Scene:
    """One session and its board; others may be added as listeners."""

    def __init__(
        self, *, outlet: KeepingOutlet | None = None, token: str = "", **init: Any
    ) -> None:
        self.settings = Settings()
        self.clock = HandClock()
        self.tasks = NotedTasks()
        self.post = KeepingPost()
        self.metrics = LiveMetrics()
        nothing = cast("Any", None)
        means = Means(
            self.clock, self.metrics, cast("Any", self.tasks), nothing, cast("Any", self.post),
            nothing,
        )  # fmt: skip
        self.board = JobBoard("here", nothing, nothing, Cells("test", 1), means)
        self.board.workshop = Workshop(self.board)
        # Sessions that went on elsewhere, and letters to ourselves.
        self.dropped: list[LiveSession] = []
        self.board.on_dropped = self.dropped.append
        self.own_letters: list[Letter] = []
        self.board.take_letter = self.own_letters.append
        self.hall = hall_of(self.board, self.settings)
        self.outlet = outlet or KeepingOutlet()
        self.session = self.enter("s1", self.outlet, token=token, **init)

    def enter(
        self, name: str, outlet: KeepingOutlet, *, token: str = "", **init: Any
    ) -> LiveSession:
        """Add a session."""
        profile = profile_of(**init)
        home = self.board.cells.all[0]
        session = LiveSession(
            Opened(name, home, EPOCH, "", "t1", token=token), profile, outlet,
            board=self.board, hall=self.hall, settings=self.settings,
            segmenter=Segmenter(rules_of(self.settings), profile.audio),
        )  # fmt: skip
        self.board.sessions[name] = session
        return session

    def gather(self, *names: str) -> None:
        """Put the speaker and others into one room, as this instance knows it."""
        home = self.board.cells.all[0].name
        members = {
            name: Member(name, None, None, 0, self.board.instance, home)
            for name in (self.session.id, *names)
        }
        room = Room("123456", "", 1, 0, 0, members)
        for name in members:
            self.hall.rooms.entered(name, room)

    def node(self, name: str = "n1", **register: Any) -> tuple[LiveNode, NodeSocket]:
        """Add a node; without a boot id it is one of the older protocol."""
        said = Said.at_first(NodeRegister(node_id=name, **({"boot_id": "b1"} | register)))
        socket = NodeSocket()
        node = LiveNode(name, f"conn-{name}", socket, said, tenant="", max_jobs=4)
        self.board.nodes[name] = node
        return node, socket

    def job(self, index: int, lane: str = "en", *, audience: str = "") -> LiveJob:
        """Put a job on the board, as if the store had taken it."""
        now = self.clock.now_ms()
        target = Target(lane, lane, audience)
        piece = Piece(
            index, b"", self.session.profile, (target,), "t1", "manual", now, now,
            turn=f"s1-t{index}",
        )  # fmt: skip
        job = job_of(self.session, piece, target, self.settings.segmentation, retain_audio=False)
        self.board.jobs[job.id] = job
        return job


def hall_of(board: JobBoard, settings: Settings) -> Hall:
    """Return a hall that knows what it was told and cannot ask."""
    return Hall(board, RoomStore.of(cast("Any", None), board.cells, settings), settings)


def profile_of(**init: Any) -> Profile:
    """Return the profile of a `session_init`, from zh into en unless it says otherwise."""
    given = {"src_lang": "zh", "tgt_lang": "en"} | init
    return Profile.of(SessionInit(**given), tenant="", labels=(), paired="")


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


def heard(
    seq: int, index: int = 40, *, heard_id: str = "s9|9|1", kind: str = "completed", **more: str
) -> Released:
    """Return an entry of an outbox that somebody else's speech put there."""
    mark = "" if kind == "completed" else "!"
    payload = f"{kind} {mark}{heard_id}".encode()
    return released(seq, index, kind=HEARD, job="j9", payload=payload, **more)


def passed(seq: int, index: int = 0, **more: Any) -> Released:
    """Return an entry of a speaker's outbox about something that others have heard."""
    return released(seq, index, **more)._replace(is_passed=True)
