"""Partial results to those who hear a speaker: the speaker, and the listeners in the room.

Best effort: they are dropped for clients that are behind with reading, and never sent after the
outcome of their utterance. In a room each listener gets the language that it reads. The audience is
that of this moment: a speaker who moves to another room is cut first, and the instance of a
listener, which knows first that it has left, sends it nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lingua_scheduler.peers.messages import PartialHeard
from lingua_scheduler.session.rooms import captions_of
from lingua_scheduler.session.utterance import Target
from lingua_wire.to_client import PartialResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.metrics import StreamMetrics
    from lingua_scheduler.session.rooms import LocalRooms, Room
    from lingua_scheduler.streams.outlets import StreamPeers
    from lingua_scheduler.streams.speech_stream import StreamingRecord
    from lingua_wire.from_node import StreamPartial

# Listeners of this language read what was said, without a translation.
AS_SPOKEN: Final = ""


class PartialSender(Protocol):
    """Sends partial results to one client, if it wants them."""

    def partial(self, message: PartialResult, stream_id: str) -> bool:
        """Send a partial result; tells whether it was sent."""


class PartialNotifier(Protocol):
    """The way to a client."""

    @property
    def early(self) -> PartialSender:
        """Return what the client is sent before outcomes."""


class PartialReceiver(Protocol):
    """A session that may receive partial results."""

    @property
    def notifier(self) -> PartialNotifier:
        """Return the way to its client."""


class PartialRouter:
    """Sends partial results to their receivers, here and on other instances."""

    def __init__(
        self,
        sessions: Mapping[str, PartialReceiver],
        rooms: LocalRooms,
        peers: StreamPeers,
        *,
        understands: Callable[[str], bool],
        metrics: StreamMetrics,
        captions: Callable[[str, PartialResult], None],
    ) -> None:
        self._sessions = sessions
        self._rooms = rooms
        self._peers = peers
        # Whether an instance is of a release that knows partial results.
        self._understands = understands
        # Called with the listener that stands for a room's captions, for their readers here.
        self._captions = captions
        self._to_speakers = metrics.partial_results_total.labels(receiver="speaker")
        self._to_listeners = metrics.partial_results_total.labels(receiver="listener")

    def targets_of(self, session: str, profile: Profile) -> tuple[Target, ...]:
        """Return the languages that speech would be translated into now; there may be none."""
        room = self._rooms.room_of(session)
        if room is None:
            return profile.own_targets()
        wanted = room.wanted_by_others(session, profile.source)
        if not (wanted.lanes or wanted.same_language or wanted.read or wanted.read_same):
            return profile.own_targets()
        read = (code for code in wanted.read if code not in wanted.lanes)
        targets = (
            *(Target(code, code) for code in wanted.lanes),
            *(Target(code, code, is_read=True) for code in read),
        )
        if not targets and wanted.read_same:
            return (Target(profile.source, profile.source, is_read=True),)
        return targets

    def publish(
        self,
        speaker: StreamingRecord,
        profile: Profile,
        place: tuple[int, int],
        partial: StreamPartial,
    ) -> None:
        """Send what was heard so far; `place` is the utterance's index and where it begins."""
        index, start_ms = place
        message = PartialResult(
            session_id=speaker.id,
            utterance_index=index,
            revision=partial.revision,
            start_ms=start_ms,
            upto_ms=start_ms + partial.upto_ms,
            src_lang=partial.src_lang,
            stable=partial.stable,
            unstable=partial.unstable,
            translations=partial.translations,
        )
        room = self._rooms.room_of(speaker.id)
        own = message if room is None else in_language(message, AS_SPOKEN)
        if self._send(speaker.id, own, partial.stream_id):
            self._to_speakers.inc()
        if room is not None:
            self._to_room(speaker.id, profile, room, message)

    def _to_room(self, speaker: str, profile: Profile, room: Room, message: PartialResult) -> None:
        wanted = room.wanted_by_others(speaker, profile.source)
        elsewhere: dict[str, list[tuple[str, str]]] = {}
        here: list[tuple[str, str]] = []
        for code, names in (*wanted.lanes.items(), (AS_SPOKEN, wanted.same_language)):
            for name in names:
                instance = room.members[name].instance
                if instance == self._peers.instance:
                    here.append((name, code))
                elif self._understands(instance):
                    elsewhere.setdefault(instance, []).append((name, code))
        for code, instances in room.feeds.items():
            reads = (captions_of(room.code, code), AS_SPOKEN if code in wanted.read_same else code)
            for instance in instances:
                if instance == self._peers.instance:
                    here.append(reads)
                elif self._understands(instance):
                    elsewhere.setdefault(instance, []).append(reads)
        for instance, listeners in elsewhere.items():
            self._peers.write(instance, PartialHeard(message, tuple(listeners)))
        self.receive(PartialHeard(message, tuple(here)))

    def receive(self, heard: PartialHeard) -> None:
        """Send a partial result to listeners here."""
        by_language: dict[str, PartialResult] = {}
        for name, code in heard.listeners:
            message = by_language.get(code)
            if message is None:
                message = by_language[code] = in_language(heard.partial, code)
            if name.startswith("@"):
                self._captions(name, message)
            elif self._is_with(name, message.session_id) and self._send(name, message, ""):
                self._to_listeners.inc()

    def _is_with(self, listener: str, speaker: str) -> bool:
        """Tell whether a listener here is in the speaker's room now.

        The sender's list of members may be older than a leave that was confirmed here.
        """
        room = self._rooms.room_of(listener)
        return room is not None and speaker in room.members

    def _send(self, session: str, message: PartialResult, stream_id: str) -> bool:
        found = self._sessions.get(session)
        return found is not None and found.notifier.early.partial(message, stream_id)


def in_language(message: PartialResult, code: str) -> PartialResult:
    """Return a partial result with one translation, or without any."""
    one = tuple(part for part in message.translations if part.tgt_lang == code)
    return msgspec.structs.replace(message, translations=one)
