"""Who receives a partial result, in which language, and who does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.jobs.profile import Profile
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.peers.messages import PartialHeard
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.rooms import LocalRooms, Room, RoomMember, captions_of
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.streams.partial_router import PartialRouter
from lingua_wire.from_node import StreamPartial
from lingua_wire.shared import PartialTranslation

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_wire.to_client import PartialResult

pytestmark = pytest.mark.unit

PROFILE = Profile(source="en", targets=("es", "fr"), audio=AudioFormat("pcm16", 16_000))
PARTIAL = StreamPartial(
    stream_id="x",
    revision=7,
    upto_ms=500,
    stable="good",
    unstable="morning",
    translations=(
        PartialTranslation(tgt_lang="es", stable="buenos"),
        PartialTranslation(tgt_lang="fr", stable="bon"),
    ),
)


@dataclass
class Speaker:
    id: str = "speaker"
    home: Cell = field(default_factory=lambda: Cell("p", 0))
    fence: int = 1
    trace_id: str = "t"


class Receiver:
    """A session whose client wants partial results."""

    def __init__(self) -> None:
        self.got: list[PartialResult] = []
        self.notifier = self.early = self

    def partial(self, message: PartialResult, stream_id: str) -> bool:
        self.got.append(message)
        return stream_id is not None

    @property
    def languages(self) -> list[str]:
        return [part.tgt_lang for message in self.got for part in message.translations]


class Peers:
    instance = "here"

    def __init__(self) -> None:
        self.sent: list[tuple[str, PeerMessage]] = []

    def write(self, to: str, message: PeerMessage) -> None:
        self.sent.append((to, message))


@dataclass
class Scene:
    """Sessions of one instance, and those who are in a room with the speaker."""

    names: tuple[str, ...]
    rooms: LocalRooms = field(default_factory=LocalRooms)
    peers: Peers = field(default_factory=Peers)
    old_instances: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.sessions = {name: Receiver() for name in self.names}
        self.metrics = LiveMetrics().streams
        self.captions: list[tuple[str, PartialResult]] = []
        self.router = PartialRouter(
            self.sessions,
            self.rooms,
            self.peers,
            understands=lambda instance: instance not in self.old_instances,
            metrics=self.metrics,
            captions=lambda name, message: self.captions.append((name, message)),
        )

    def in_room(
        self,
        *members: tuple[str, str | None, str],
        feeds: dict[str, dict[str, int]] | None = None,
        session: str = "",
        code: str = "123456",
    ) -> None:
        """Put members into a room: name, language, instance; and who reads it.

        All that are here know of it, or only this session.
        """
        people = {
            name: RoomMember(name, None, lang, 0, instance=instance)
            for name, lang, instance in members
        }
        room = Room(code, "", 1, 0, 0, people, feeds=feeds or {})
        here = [name for name, _, instance in members if instance == "here"]
        for name in [session] if session else here:
            self.rooms.entered(name, room)
            self.rooms.update(room)

    def publish(self) -> None:
        self.router.publish(Speaker(), PROFILE, (3, 1000), PARTIAL)


def test_a_speaker_alone_reads_all_its_languages_at_their_place() -> None:
    scene = Scene(("speaker", "other"))
    scene.publish()
    (message,) = scene.sessions["speaker"].got
    assert (message.utterance_index, message.start_ms, message.upto_ms) == (3, 1000, 1500)
    assert (message.stable, message.unstable, message.revision) == ("good", "morning", 7)
    assert scene.sessions["speaker"].languages == ["es", "fr"]
    assert scene.sessions["other"].got == []
    assert scene.metrics.partial_results_total.labels(receiver="speaker").value == 1


def test_members_read_their_language_and_the_speaker_its_own_words() -> None:
    scene = Scene(("speaker", "spanish", "english", "silent", "outside"))
    scene.in_room(
        ("speaker", "en", "here"),
        ("spanish", "es", "here"),
        ("english", "en-us", "here"),
        ("silent", None, "here"),
    )
    scene.publish()
    assert scene.sessions["spanish"].languages == ["es"]
    assert [message.stable for message in scene.sessions["english"].got] == ["good"]
    assert scene.sessions["english"].languages == []
    assert scene.sessions["speaker"].languages == []
    assert len(scene.sessions["speaker"].got) == 1
    assert scene.sessions["silent"].got == []
    assert scene.sessions["outside"].got == []
    assert scene.metrics.partial_results_total.labels(receiver="listener").value == 2


def test_members_elsewhere_are_reached_by_one_message_to_each_instance() -> None:
    scene = Scene(("speaker",), old_instances=("old",))
    scene.in_room(
        ("speaker", "en", "here"),
        ("a", "es", "there"),
        ("b", "fr", "there"),
        ("c", "es", "old"),
    )
    scene.publish()
    ((to, message),) = scene.peers.sent
    assert to == "there"
    assert isinstance(message, PartialHeard)
    assert sorted(message.listeners) == [("a", "es"), ("b", "fr")]


def test_what_another_instance_sends_reaches_those_who_are_still_in_the_room() -> None:
    there = Scene(("speaker",))
    there.in_room(
        ("speaker", "en", "here"), ("a", "es", "there"), ("left", "es", "there"),
        ("moved", "fr", "there"),
    )  # fmt: skip
    there.publish()
    here = Scene(("a", "left", "moved", "b"))
    message = there.peers.sent[0][1]
    assert isinstance(message, PartialHeard)
    here.in_room(("speaker", "en", "there"), ("a", "es", "here"), session="a")
    here.in_room(("moved", "fr", "here"), session="moved", code="654321")
    here.router.receive(message)
    assert here.sessions["a"].languages == ["es"]
    for name in ("left", "moved", "b"):
        assert here.sessions[name].got == []


def test_readers_of_captions_get_their_language_on_their_instances() -> None:
    scene = Scene(("speaker",))
    feeds = {"es": {"here": 1, "there": 2}, "en": {"here": 1}}
    scene.in_room(("speaker", "en", "here"), feeds=feeds)
    scene.publish()
    here = {name: [part.tgt_lang for part in m.translations] for name, m in scene.captions}
    assert here == {captions_of("123456", "es"): ["es"], captions_of("123456", "en"): []}
    ((to, message),) = scene.peers.sent
    assert to == "there"
    assert isinstance(message, PartialHeard)
    assert message.listeners == ((captions_of("123456", "es"), "es"),)


def test_speech_that_nobody_needs_translated_needs_no_node() -> None:
    scene = Scene(("speaker",))
    assert [t.language for t in scene.router.targets_of("speaker", PROFILE)] == ["es", "fr"]
    scene.in_room(("speaker", "en", "here"), ("english", "en", "here"))
    assert scene.router.targets_of("speaker", PROFILE) == ()
    scene.in_room(("speaker", "en", "here"), ("a", "de", "here"), ("b", "en", "here"))
    assert [t.language for t in scene.router.targets_of("speaker", PROFILE)] == ["de"]
