"""The audience of an utterance and its languages: found once, when it is cut; kept with the job."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.rooms.cache import room_from
from lingua_scheduler.session.rooms import captions_of
from lingua_scheduler.session.utterance import Target
from lingua_scheduler.state.policy import HEAR_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.session.rooms import Room, Wanted

# The shortest time between two notes in the store that a room is spoken in.
SPOKE_EVERY_MS = 5_000


class UtteranceAudience(NamedTuple):
    """The members who receive an utterance."""

    targets: tuple[Target, ...]
    # Members who understand the speaker, as a job's spec names them: they read the transcript and
    # need no node.
    readers: str = ""
    is_room: bool = False


class AudienceFinder:
    """Finds the audience of utterances."""

    def __init__(
        self, cache: RoomCache, *, serves: Callable[[str], bool], keeps_captions: bool
    ) -> None:
        self._cache = cache
        # Tells whether a session's speech may have other listeners.
        self.is_in_room: Callable[[str], bool] = cache.rooms.has_member
        # Tells whether a known node serves a demand.
        self._serves = serves
        # Whether captions are kept for members who come later, also if nobody reads them now.
        self._keeps_captions = keeps_captions
        # Room -> when the store last got a note that it is spoken in.
        self._spoke_at_ms: dict[str, float] = {}
        self._spoke_every_ms = min(SPOKE_EVERY_MS, cache.store.idle_ms // 4)

    async def of_utterance(self, session: str, profile: Profile) -> UtteranceAudience:
        """Return the present audience of an utterance, and its languages.

        As the store knows it: joining or leaving that another instance has confirmed counts. While
        the store is unavailable, as it is known here: members who come in later were not present.
        """
        room = self._cache.rooms.room_of(session)
        if room is None:
            return UtteranceAudience(profile.own_targets())
        self._spoke(session, room)
        with suppress(StoreUnavailable):
            if await self._cache.store.version(room.code) != room.version:
                room = await self._cache.latest(room)
        wanted = room.wanted_by_others(session, profile.source)
        if not (wanted.lanes or wanted.same_language or wanted.read or wanted.read_same):
            return UtteranceAudience(profile.own_targets())
        return self._audience(room, wanted, profile)

    def _audience(self, room: Room, wanted: Wanted, profile: Profile) -> UtteranceAudience:
        targets = [
            Target(code, code, self._places(room, (code,), heard_by, is_read=code in wanted.read))
            for code, heard_by in wanted.lanes.items()
        ]
        if wanted.read or wanted.read_same:
            targets += self._read_only(room, wanted, profile.in_room())
        if not wanted.lanes and not wanted.same_language and not targets:
            return UtteranceAudience(profile.own_targets())
        if not targets or targets[0].language == profile.source:
            # Nobody needs a translation; members of this language hear the speaker.
            readers = room.places_of(self._readiest_first(wanted.same_language))
            return UtteranceAudience(tuple(targets), readers, is_room=True)
        # Captions of the language that is spoken need no job of their own.
        members = [room.members[name].preferred_lang or "" for name in wanted.same_language]
        same = tuple(dict.fromkeys((*wanted.read_same, *(members if self._keeps_captions else ()))))
        readers = self._places(room, same, wanted.same_language, is_read=bool(same))
        return UtteranceAudience(tuple(targets), readers, is_room=True)

    def _read_only(self, room: Room, wanted: Wanted, profile: Profile) -> list[Target]:
        """Return the languages that are only read, as far as nodes serve them.

        A reader must never hold up a speaker: what no node serves is not asked for.
        """

        def served(lang: str, captions: Sequence[str]) -> list[Target]:
            target = Target(lang, lang, self._places(room, captions, (), is_read=True))._replace(
                is_read=True
            )
            return [target] if self._serves(profile.demand_for(target)) else []

        translated = [code for code in wanted.read if code not in wanted.lanes]
        targets = [target for code in translated for target in served(code, (code,))]
        if wanted.read_same and not targets and not wanted.lanes:
            # Nobody needs a translation, but some read what is said.
            return served(profile.source, wanted.read_same)
        return targets

    def _places(
        self, room: Room, languages: Sequence[str], names: tuple[str, ...], *, is_read: bool
    ) -> str:
        """Return the places of listeners, after those of the captions in these languages."""
        listeners = room.places_of(self._readiest_first(names))
        if not (is_read or self._keeps_captions):
            return listeners
        cell = self._cache.store.cell_of(room.code).name
        captions = " ".join(f"{cell}/{captions_of(room.code, code)}" for code in languages)
        return f"{captions} {listeners}".strip()

    def forget_ended_rooms(self) -> None:
        """Forget when rooms were spoken in that are not known here any more."""
        for code in [code for code in self._spoke_at_ms if code not in self._cache.rooms]:
            del self._spoke_at_ms[code]

    def _readiest_first(self, names: tuple[str, ...]) -> Sequence[str]:
        """Return listeners, with those last that are known to be behind with reading.

        In a large room outcomes go to the first ones first.
        """
        if len(names) <= HEAR_AT_ONCE:
            return names
        return sorted(names, key=self._is_behind)

    def _is_behind(self, name: str) -> bool:
        session = self._cache.sessions.get(name)
        return session is not None and session.notifier.is_behind

    def _spoke(self, session: str, room: Room) -> None:
        now = self._cache.clock.now_ms()
        if now - self._spoke_at_ms.get(room.code, -self._spoke_every_ms) >= self._spoke_every_ms:
            self._spoke_at_ms[room.code] = now
            self._cache.tasks.start(self._note_speech(room.code, session))

    async def _note_speech(self, code: str, session: str) -> None:
        answer = await self._cache.store.spoke(code, session)
        if answer.room is not None:
            self._cache.rooms.update(room_from(answer.room))
