"""Who may read along in a room: its code, its tenant, the token, and no guessing of codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.auth.policy import Forbidden, allow_captions, tenant_of
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.session.rooms import RoomProblem, check_code
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidLanguage
from lingua_wire.languages import language

if TYPE_CHECKING:
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.rooms.caption_feed import CaptionFeed
    from lingua_scheduler.rooms.caption_feeds import CaptionFeeds
    from lingua_scheduler.state.room_scripts import RoomScripts, StoredRoom

# The HTTP status of each problem with a room.
STATUS = {
    ErrorCode.ROOM_NOT_FOUND: 404,
    ErrorCode.INVALID_ROOM_CODE: 422,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.ROOM_FULL: 503,
    ErrorCode.BUSY: 503,
}
RETRY_S = {429: "5", 503: "10"}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who asks for a room: what the token allows, and who guesses if the code is wrong."""

    grant: ClientGrant | None
    remote: str

    @property
    def tenant(self) -> str:
        """Return the tenant of the visitor."""
        return tenant_of(self.grant)

    @property
    def name(self) -> str:
        """Return who is slowed down after wrong codes."""
        return f"token {self.grant.id}" if self.grant is not None else f"address {self.remote}"


@dataclass(frozen=True, slots=True)
class RoomDoor:
    """Lets visitors read along in rooms, or raises `Problem`."""

    feeds: CaptionFeeds

    @property
    def store(self) -> RoomScripts:
        """Return the scripts about rooms."""
        return self.feeds.cache.store

    async def feed(self, visitor: Visitor, code: str, lang: str) -> CaptionFeed:
        """Return the captions of a room in a language."""
        spoken = self._allowed(visitor, code, lang)
        known = self.feeds.known(code, spoken, visitor.tenant)
        try:
            self.feeds.check_room()
            if known is not None:
                return known
            self.feeds.guesses.check(visitor.name)
            return await self.feeds.open(code, spoken, visitor.tenant)
        except RoomProblem as problem:
            raise self._refused(visitor, problem) from None

    async def room(self, visitor: Visitor, code: str) -> StoredRoom:
        """Return a room that the visitor may know of."""
        try:
            check_code(code)
            self.feeds.guesses.check(visitor.name)
        except RoomProblem as problem:
            raise self._refused(visitor, problem) from None
        found = (await self.store.read(code)).room
        if found is None or found.tenant != visitor.tenant:
            raise self._refused(visitor, RoomProblem(ErrorCode.ROOM_NOT_FOUND))
        return found

    def language(self, visitor: Visitor, code: str, lang: str) -> str:
        """Return the language, in which the visitor may read this room's captions."""
        return self._allowed(visitor, code, lang)

    def _allowed(self, visitor: Visitor, code: str, lang: str) -> str:
        try:
            spoken = language(lang)
            allow_captions(visitor.grant, code, spoken)
            check_code(code)
        except Forbidden as problem:
            raise Problem(403, ErrorCode.FORBIDDEN, str(problem)) from None
        except InvalidLanguage as problem:
            raise Problem(422, ErrorCode.UNSUPPORTED_LANGUAGE, str(problem)) from None
        except RoomProblem as problem:
            raise self._refused(visitor, problem) from None
        return spoken

    def _refused(self, visitor: Visitor, problem: RoomProblem) -> Problem:
        if problem.code in (ErrorCode.ROOM_NOT_FOUND, ErrorCode.INVALID_ROOM_CODE):
            self.feeds.guesses.wrong(visitor.name)
        status = STATUS[problem.code]
        headers = {"Retry-After": RETRY_S[status]} if status in RETRY_S else {}
        return Problem(status, problem.code, problem.code.hint or str(problem), headers)
