"""What the store keeps of a session for a later owner: languages, their changes, the glossary."""

from __future__ import annotations

import msgspec

from lingua_wire.from_client import SessionInit  # noqa: TC001 msgspec reads it
from lingua_wire.shared import Term  # noqa: TC001 msgspec reads it

# How many changes of languages are kept with their place in the audio; the audio that may be
# outstanding has room for no more.
CHANGES_MAX = 8


class LanguageChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of languages: audio up to this chunk has the former languages."""

    after_seq: int
    init: SessionInit


class SessionFields(msgspec.Struct, frozen=True, array_like=True):
    """What another instance needs of a session to restore it."""

    # The languages of the first chunk that is not in the store, and changes since.
    init: SessionInit
    trace_id: str
    # The node it was paired with, and which optional messages its client wants.
    paired: str = ""
    speaks_additions: bool = True
    wants_events: bool = False
    changes: tuple[LanguageChange, ...] = ()
    # The client's glossary, which never changes.
    glossary: tuple[Term, ...] = ()

    @property
    def latest(self) -> SessionInit:
        """Return the languages as the client wants them now."""
        return self.changes[-1].init if self.changes else self.init

    def changed(self, change: LanguageChange, stored_seq: int) -> SessionFields:
        """Return it with one more change; changes before all outstanding audio become one."""
        init, changes = self.init, (*self.changes, change)
        while changes and changes[0].after_seq <= stored_seq:
            init, changes = changes[0].init, changes[1:]
        if len(changes) > CHANGES_MAX:
            init, changes = changes[0].init, changes[1:]
        return msgspec.structs.replace(self, init=init, changes=changes)


encode_fields = msgspec.msgpack.Encoder().encode
decode_fields = msgspec.msgpack.Decoder(SessionFields).decode
