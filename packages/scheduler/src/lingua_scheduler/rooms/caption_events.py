"""What readers of a room's captions get: each event is encoded once for all of them. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from lingua_scheduler.session.rooms import Room
    from lingua_scheduler.state.caption_scripts import StoredCaption
    from lingua_wire.to_client import PartialResult

_encode = msgspec.json.Encoder().encode


class RoomCaption(msgspec.Struct, frozen=True, kw_only=True, tag="caption"):
    """What somebody said, in the language of the readers; each comes once and in order."""

    id: str
    speaker: str
    name: str
    utterance_index: int
    text: str
    lang: str
    at_ms: int


class PartialCaption(msgspec.Struct, frozen=True, kw_only=True, tag="partial"):
    """What somebody is saying; it may be missing, and none follows the caption of its utterance."""

    speaker: str
    name: str
    utterance_index: int
    revision: int
    stable: str
    unstable: str
    lang: str


class CaptionMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the room, as readers see it."""

    speaker: str
    name: str
    lang: str
    is_away: bool


class CaptionMembers(msgspec.Struct, frozen=True, kw_only=True, tag="members"):
    """Who is in the room, and how many read its captions."""

    members: tuple[CaptionMember, ...]
    readers: int


class CaptionsEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """The room has ended: nothing follows."""

    reason: str


Shown = RoomCaption | PartialCaption | CaptionMembers | CaptionsEnd


class CaptionEvent:
    """An event with its encodings, which all readers share."""

    def __init__(self, shown: Shown, number: int = 0) -> None:
        self.shown = shown
        # Of a caption; 0 for other events.
        self.number = number
        self.json = _encode(shown)

    @property
    def kind(self) -> str:
        """Return the name of the event."""
        return str(self.shown.__struct_config__.tag)

    @cached_property
    def lines(self) -> bytes:
        """Return the event as one of Server-Sent Events."""
        lines = f"event: {self.kind}\n"
        if isinstance(self.shown, RoomCaption):
            lines += f"id: {self.shown.id}\n"
        return b"%sdata: %s\n\n" % (lines.encode(), self.json)

    @cached_property
    def chunked(self) -> bytes:
        """Return the same as one chunk of an HTTP response whose length is not known."""
        return b"%x\r\n%s\r\n" % (len(self.lines), self.lines)


def caption_event(born: str, number: int, lang: str, stored: StoredCaption) -> CaptionEvent:
    """Return the event of a caption."""
    caption = RoomCaption(
        id=f"{born}-{number}",
        speaker=stored.speaker,
        name=stored.name,
        utterance_index=stored.utterance_index,
        text=stored.text,
        lang=lang,
        at_ms=stored.at_ms,
    )
    return CaptionEvent(caption, number)


def members_of(room: Room) -> CaptionMembers:
    """Return the members of a room as readers see them."""
    members = (
        CaptionMember(
            speaker=member.session,
            name=member.display_name or "",
            lang=member.preferred_lang or "",
            is_away=member.is_away,
        )
        for member in room.members.values()
    )
    return CaptionMembers(members=tuple(members), readers=room.readers)


def partial_in(message: PartialResult, lang: str, name: str) -> PartialCaption | None:
    """Return a partial text in a language; None if it has none."""
    texts = {part.tgt_lang: (part.stable, part.unstable) for part in message.translations}
    found = texts.get(lang)
    if found is None and message.src_lang and base_of(message.src_lang) == base_of(lang):
        found = (message.stable, message.unstable)
    if found is None:
        return None
    return PartialCaption(
        speaker=message.session_id,
        name=name,
        utterance_index=message.utterance_index,
        revision=message.revision,
        stable=found[0],
        unstable=found[1],
        lang=lang,
    )


def place_of(event_id: str) -> tuple[str, int]:
    """Return the numbering and the number of an event's id; ('', 0) if it is none of ours."""
    born, _, number = event_id.partition("-")
    if not (born.isdecimal() and number.isdecimal() and len(event_id) <= 64):
        return "", 0
    return born, int(number)
