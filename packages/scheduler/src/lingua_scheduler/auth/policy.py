"""What a grant allows: speech, rooms, languages, labels. Pure; every entry point asks here.

A grant of None means that no keys are set: everything is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_wire.languages import AUTO, language

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.auth.tokens import ClientGrant, NodeGrant
    from lingua_scheduler.jobs.profile import Profile
    from lingua_wire.from_client import SessionInit
    from lingua_wire.from_node import NodeRegister


# Guests of a room speak in that room only.
NOT_IN_ROOM = "the token is an invitation to a room: it allows nothing outside of that room"
NO_ROOM_OF_OWN = "the token is an invitation to a room: it does not allow to create one"


class Forbidden(Exception):
    """A token does not allow what was asked for."""


def allow_session(grant: ClientGrant | None, init: SessionInit) -> None:
    """Raise `Forbidden` if a token does not allow this session."""
    if grant is None:
        return
    _allow_any(grant)
    wanted = (init.src_lang, init.tgt_lang, init.lang_a, init.lang_b)
    allow_languages(grant, *wanted, *(init.tgt_langs or ()), *(init.auto_langs or ()))


def allow_renewal(former: ClientGrant | None, grant: ClientGrant | None) -> None:
    """Raise `Forbidden` if a newer token is not of the same client."""
    if grant is None or former is None:
        return
    if (grant.tenant, grant.subject, grant.room) != (former.tenant, former.subject, former.room):
        raise Forbidden("the token is not of this connection's tenant and subject")
    _allow_any(grant)


def _allow_any(grant: ClientGrant) -> None:
    if not grant.allows("speak") and not grant.allows("listen"):
        raise Forbidden("the token allows neither to speak nor to listen")


def speech_problem(grant: ClientGrant | None, profile: Profile) -> str:
    """Return why a token does not allow speech in a session of this profile; empty: it does."""
    two_way = profile.two_way or ()
    try:
        allow_speech(grant)
        allow_languages(grant, profile.source, *profile.targets, *profile.auto_langs, *two_way)
    except Forbidden as problem:
        return str(problem)
    return NOT_IN_ROOM if grant is not None and grant.room else ""


def allow_speech(grant: ClientGrant | None) -> None:
    """Raise `Forbidden` if a token allows only listening."""
    if grant is not None and not grant.allows("speak"):
        raise Forbidden("the token does not allow to speak")


def allow_room(grant: ClientGrant | None, language_code: str | None, code: str = "") -> None:
    """Raise `Forbidden` if a token allows no rooms, not this one, or not this language in one.

    Without a code a room is created, which guests may not.
    """
    if grant is not None and not grant.rooms:
        raise Forbidden("the token does not allow rooms")
    if grant is not None and grant.room and grant.room != code:
        raise Forbidden("the token is an invitation to another room" if code else NO_ROOM_OF_OWN)
    allow_languages(grant, language_code)


def allow_captions(grant: ClientGrant | None, code: str, language_code: str) -> None:
    """Raise `Forbidden` if a token does not allow to read this room's captions."""
    if grant is None:
        return
    if not grant.allows("captions") and not (grant.rooms and grant.allows("listen")):
        raise Forbidden("the token allows neither captions nor to listen in rooms")
    if grant.room and grant.room != code:
        raise Forbidden("the token is an invitation to another room")
    allow_languages(grant, language_code)


def allow_invite(grant: ClientGrant | None, scopes: Iterable[str]) -> None:
    """Raise `Forbidden` if the holder of a token may not invite guests with these scopes."""
    if grant is None:
        return
    if grant.room or not grant.rooms:
        raise Forbidden("the token does not allow to invite guests")
    for scope in scopes:
        # Who may listen in a room may read its captions.
        if not grant.allows(scope) and not (scope == "captions" and grant.allows("listen")):
            raise Forbidden(f"the token itself does not allow {scope!r}")


def allow_languages(grant: ClientGrant | None, *codes: str | None) -> None:
    """Raise `Forbidden` if a token does not allow one of these languages."""
    if grant is None or grant.languages is None:
        return
    for code in codes:
        if code and code.lower() != AUTO and not grant.allows_language(language(code)):
            raise Forbidden(f"the token does not allow the language {code[:16]!r}")


def tenant_of(grant: ClientGrant | NodeGrant | None) -> str:
    """Return the tenant that a grant binds to; '' for none."""
    return grant.tenant if grant is not None else ""


def labelled(register: NodeRegister, grant: NodeGrant | None) -> NodeRegister:
    """Return a registration with its effective labels, or raise `Forbidden`.

    A token that names labels gives them to a node that names none, and allows no others.
    """
    if grant is None or grant.labels is None:
        return register
    if register.labels is None:
        return msgspec.structs.replace(register, labels=grant.labels)
    foreign = sorted(set(register.labels) - set(grant.labels))
    if foreign:
        raise Forbidden(f"the token does not allow the label {foreign[0][:64]!r}")
    return register
