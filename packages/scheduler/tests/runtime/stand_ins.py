"""A session on an instance without a store: what the unit tests of `runtime` use.

The instance and all its parts are the real ones. The clock is set by hand, outlets and the sender
keep what is sent, and tasks are recorded instead of run. Every use of the store fails; the tests
that need a store use `bare_instances.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from lingua_cli.logs import EventLog
from lingua_scheduler.config import Settings
from lingua_scheduler.edge.old_protocol import outlet_for
from lingua_scheduler.jobs.profile import Profile
from lingua_scheduler.jobs.result import HEARD
from lingua_scheduler.jobs.result_format import encode_result
from lingua_scheduler.runtime.client_notifier import ClientNotifier
from lingua_scheduler.runtime.instance import Instance
from lingua_scheduler.runtime.job_builder import JobContext, build_job
from lingua_scheduler.runtime.node import LiveNode, NodeTraits
from lingua_scheduler.runtime.node_declaration import NodeDeclaration
from lingua_scheduler.runtime.session_state import SessionRecord
from lingua_scheduler.runtime.utterance import PendingUtterance
from lingua_scheduler.runtime.utterance_replies import UtteranceReplies
from lingua_scheduler.session.rooms import Room, RoomMember
from lingua_scheduler.session.utterance import Target
from lingua_scheduler.state.records import Released
from lingua_wire.from_client import SessionInit
from lingua_wire.from_node import NodeRegister
from lingua_wire.to_client import ErrorMessage, TranslationResult

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.rooms.fanout import SharedResults
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient, TranslationResult
    from lingua_wire.to_node import JobAssign, ToNode

EPOCH = "e1"
WALL_MS = 1_700_000_000_000
START_MS = 5_000.0
# How long a client is asked to wait before it tries again.
RETRY_MS = 700


class HandClock:
    """A clock that a test sets."""

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

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        self.speaks_additions, self.wants_events = speaks_additions, wants_events

    def send(self, message: ToClient) -> None:
        self.sent.append(message)

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
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
    """A node's socket that keeps everything it is sent; a dead one accepts nothing."""

    traits = NodeTraits()

    def __init__(self, *, is_dead: bool = False) -> None:
        self.is_dead = is_dead
        self.sent: list[ToNode] = []
        self.closed_with = 0

    def send(self, message: ToNode) -> bool:
        if not self.is_dead:
            self.sent.append(message)
        return not self.is_dead

    def assign(self, message: JobAssign, lane: str) -> bool:
        return self.send(message)

    def close(self, code: int, reason: str) -> None:
        self.closed_with = code

    def take(self) -> list[ToNode]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


class KeepingSender:
    """Keeps the messages to other instances, with their receivers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, PeerMessage]] = []

    def send(self, to: str, message: PeerMessage) -> Coroutine[Any, Any, bool]:
        # Kept when it is called, not when the task runs: recorded tasks never run.
        self.sent.append((to, message))
        return self._arrive()

    async def _arrive(self) -> bool:
        return True


class NotedTasks:
    """Keeps the names of the coroutines that should run, and runs none."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.started.append(cast("Any", work).__name__)
        work.close()

    begin = start


class UnusedConnection:
    """A connection to a store that a test must not use."""

    generation = 0

    def command(self, *words: object) -> None:
        raise AssertionError(f"no store here: {words}")


class Scene:
    """One session and its instance; others may be added as listeners."""

    def __init__(
        self, *, outlet: KeepingOutlet | None = None, token: str = "", **init: Any
    ) -> None:
        self.settings = settings_of_scene()
        self.clock = HandClock()
        self.tasks = NotedTasks()
        self.sender = KeepingSender()
        self.instance = Instance(
            self.settings,
            cast("Any", UnusedConnection()),
            EventLog("scene"),
            clock=self.clock,
            tasks=cast("Any", self.tasks),
            sender=cast("Any", self.sender),
        )
        self.metrics = self.instance.metrics
        self.jobs = self.instance.jobs
        self.effects = self.instance.effects
        # Sessions that another instance has taken.
        self.taken: list[LiveSession] = []
        self.outlet = outlet or KeepingOutlet()
        self.session = self.enter("s1", self.outlet, token=token, **init)

    @property
    def results(self) -> SharedResults:
        """Return the results that this instance keeps for listeners."""
        return self.instance.client_parts.registry.factory.results

    @property
    def own_messages(self) -> list[PeerMessage]:
        """Take the messages of the instance to itself."""
        queue = self.effects.peers.to_self
        return [queue.get_nowait() for _ in range(queue.qsize())]

    def enter(
        self, name: str, outlet: KeepingOutlet, *, token: str = "", **init: Any
    ) -> LiveSession:
        """Add a session."""
        record = SessionRecord(
            id=name,
            home=self.instance.cells.all[0],
            tenant="",
            trace_id="t1",
            token=token,
            epoch=EPOCH,
            fence=1,
        )
        factory = self.instance.client_parts.registry.factory
        session = factory.build(record, profile_of(**init), self._taken)
        session.attach(outlet)
        self.instance.sessions[name] = session
        return session

    def _taken(self, session: LiveSession) -> None:
        self.taken.append(session)
        self.instance.client_parts.registry._taken(session)

    def gather(self, *names: str) -> None:
        """Put the speaker and others into one room, as this instance knows it."""
        home = self.instance.cells.all[0].name
        members = {
            name: RoomMember(name, None, None, 0, self.instance.id, home)
            for name in (self.session.id, *names)
        }
        room = Room("123456", "", 1, 0, 0, members)
        for name in members:
            self.instance.rooms.cache.rooms.entered(name, room)

    def node(self, name: str = "n1", **register: Any) -> tuple[LiveNode, NodeSocket]:
        """Add a node; without a boot id it is one of the older protocol."""
        registration = NodeRegister(node_id=name, **({"boot_id": "b1"} | register))
        socket = NodeSocket()
        node = LiveNode(
            name,
            f"conn-{name}",
            outlet_for(registration, socket),
            NodeDeclaration.of_registration(registration),
            tenant="",
            max_jobs=4,
        )
        self.instance.nodes[name] = node
        return node, socket

    def job(self, index: int, lane: str = "en", *, audience: str = "") -> LiveJob:
        """Add a job, as if the store had taken it."""
        now, session = self.clock.now_ms(), self.session
        target = Target(lane, lane, audience)
        utterance = PendingUtterance(
            index=index,
            audio=b"",
            profile=session.languages.profile,
            trace_id="t1",
            trigger="manual",
            speech_end_ms=now,
            cut_ms=now,
            turn_id=f"s1-t{index}",
            targets=(target,),
        )
        job = build_job(context_of(session), utterance, target, self.settings.segmentation)
        self.jobs.add(job)
        return job


class NotifiedClient:
    """A client, its notifier, and the replies to its utterances."""

    def __init__(self, *, speaks_additions: bool = True, wants_events: bool = True) -> None:
        self.scene = Scene()
        self.clock = self.scene.clock
        self.outlet = KeepingOutlet(speaks_additions=speaks_additions, wants_events=wants_events)
        self.notifier = ClientNotifier("s1", self.clock)
        self.notifier.attach(self.outlet)
        self.replies = UtteranceReplies("s1", self.notifier, self.scene.metrics, RETRY_MS)
        self.job = self.scene.job(3)

    def codes(self) -> list[str]:
        """Return the codes of the errors sent since the last call."""
        return [m.code for m in self.outlet.take() if isinstance(m, ErrorMessage)]

    def utterance(self, **more: Any) -> PendingUtterance:
        """Return an utterance of the client."""
        return PendingUtterance(
            index=3,
            audio=b"",
            profile=self.scene.session.languages.profile,
            trace_id="t1",
            trigger="manual",
            speech_end_ms=0.0,
            cut_ms=0.0,
            start_ms=10,
            end_ms=20,
            **more,
        )


def settings_of_scene() -> Settings:
    """Return the settings of a scene: one instance called `here`, no voice detector."""
    whole = Settings(instance_id="here")
    return msgspec.structs.replace(
        whole,
        redis=msgspec.structs.replace(whole.redis, key_prefix="test"),
        segmentation=msgspec.structs.replace(whole.segmentation, voice_detector="off"),
    )


def context_of(session: LiveSession, *, retain_audio: bool = False) -> JobContext:
    """Return what a session adds to its jobs."""
    return JobContext(
        owner=session,
        record=session.record,
        top=session.admission.parts.progress.top,
        text=session.deliverer.groups.context,
        retain_audio=retain_audio,
        now_ms=session.admission.clock.now_ms(),
        wall_ms=session.admission.clock.wall_ms(),
    )


def profile_of(**init: Any) -> Profile:
    """Return the profile of a `session_init`, from zh into en unless it says otherwise."""
    given = {"src_lang": "zh", "tgt_lang": "en"} | init
    return Profile.of(SessionInit(**given), tenant="", labels=(), paired="")


def result_payload(text_asr: str = "ni hao", text_translated: str = "hello") -> bytes:
    """Return a result as the store keeps it."""
    return encode_result(content(text_asr, text_translated, b"sound"))


def content(
    text_asr: str,
    text_translated: str,
    tts_audio: bytes = b"",
    tts_format: str = "pcm16",
    trace_id: str = "t1",
    **more: Any,
) -> TranslationResult:
    """Return a result whose outcome has no place yet."""
    return TranslationResult(
        session_id="",
        utterance_index=0,
        job_id="",
        text_asr=text_asr,
        text_translated=text_translated,
        tts_audio=tts_audio,
        tts_format=tts_format,
        trace_id=trace_id,
        **more,
    )


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
    """Return an entry of an outbox that comes from another speaker."""
    mark = "" if kind == "completed" else "!"
    payload = f"{kind} {mark}{heard_id}".encode()
    return released(seq, index, kind=HEARD, job="j9", payload=payload, **more)


def passed(seq: int, index: int = 0, **more: Any) -> Released:
    """Return an entry of a speaker's outbox about an utterance that listeners have received."""
    return msgspec.structs.replace(released(seq, index, **more), is_passed=True)
