"""Tokens of open sockets, without sockets: when each is warned of, closed, and let go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from edge.locked import client_token, keys
from lingua_cli.logs import EventLog
from lingua_scheduler.auth.expiry import SWEEP_EVERY_S, WARN_S, TokenWatch
from lingua_scheduler.auth.tokens import LEEWAY_S, ClientGrant
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.revocations import Revocations, Revoked
from lingua_scheduler.state.single import SingleConnection
from lingua_wire.codes import CloseCode
from servers import start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

pytestmark = pytest.mark.store

GRANT = keys().read_client(client_token(subject="ann", ttl_s=3600))


class Holder:
    """A socket that keeps what happens to it."""

    def __init__(self, grant: ClientGrant = GRANT) -> None:
        self.grant: ClientGrant | None = grant
        self.is_open = True
        self.listens = True
        self.warnings: list[int] = []
        self.ends: list[CloseCode] = []

    def token_expires(self, in_ms: int) -> bool:
        if self.listens:
            self.warnings.append(in_ms)
        return self.listens

    def token_ends(self, code: CloseCode, reason: str) -> None:
        assert reason
        self.ends.append(code)


class Clock:
    """A wall clock that moves when told to."""

    now = GRANT.issued_at

    def __call__(self) -> float:
        return self.now


def play(
    scenario: Callable[[TokenWatch, Clock], Coroutine[Any, Any, None]], directory: Path
) -> None:
    async def whole(address: Any) -> None:
        connection = await SingleConnection.open(address, LinkOptions(call_timeout_ms=10_000))
        clock = Clock()
        permits = TokenWatch(Revocations(connection, Cell("lingua", 0)), EventLog("test"), clock)
        await permits.read()
        await scenario(permits, clock)
        await connection.close()

    with start_server(directory) as server:
        asyncio.run(whole(server.address))


def test_a_socket_is_warned_once_and_closed_when_its_token_would_be_refused(
    tmp_path: Path,
) -> None:
    async def scenario(permits: TokenWatch, clock: Clock) -> None:
        holder = Holder()
        permits.hold(holder)
        for at, warned, ended in (
            (GRANT.expires_at - WARN_S - 1, 0, 0),
            (GRANT.expires_at - WARN_S, 1, 0),
            (GRANT.expires_at - 1, 1, 0),
            (GRANT.expires_at + LEEWAY_S - 0.1, 1, 0),
            (GRANT.expires_at + LEEWAY_S, 1, 1),
            (GRANT.expires_at + 100, 1, 1),
        ):
            clock.now = at
            permits.look()
            assert (len(holder.warnings), len(holder.ends)) == (warned, ended), at
        assert holder.warnings == [int(WARN_S * 1000)]
        assert holder.ends == [CloseCode.TOKEN_EXPIRED]

    play(scenario, tmp_path)


def test_who_does_not_listen_yet_is_warned_later(tmp_path: Path) -> None:
    async def scenario(permits: TokenWatch, clock: Clock) -> None:
        holder = Holder()
        holder.listens = False
        permits.hold(holder)
        clock.now = GRANT.expires_at - 10
        permits.look()
        holder.listens = True
        permits.look()
        permits.look()
        assert holder.warnings == [10_000]

    play(scenario, tmp_path)


def test_the_same_token_again_is_no_news_and_a_newer_one_moves_the_end(tmp_path: Path) -> None:
    async def scenario(permits: TokenWatch, clock: Clock) -> None:
        holder = Holder()
        permits.hold(holder)
        clock.now = GRANT.expires_at - 10
        for _ in range(3):
            permits.look()
            permits.hold(holder)
        assert len(holder.warnings) == 1
        holder.grant = msgspec.structs.replace(GRANT, expires_at=GRANT.expires_at + 600)
        permits.hold(holder)
        clock.now = GRANT.expires_at + 100
        permits.look()
        assert (len(holder.warnings), holder.ends) == (1, [])
        clock.now = GRANT.expires_at + 599
        permits.look()
        assert len(holder.warnings) == 2

    play(scenario, tmp_path)


def test_what_a_short_token_began_lasts_as_long_as_the_token_it_was_made_with(
    tmp_path: Path,
) -> None:
    async def scenario(permits: TokenWatch, clock: Clock) -> None:
        secret = keys().read_client(keys().issue_secret(GRANT, 10).reveal())
        assert (secret.subject, secret.scopes, secret.rooms) == ("ann", {"speak"}, False)
        holder = Holder(secret)
        permits.hold(holder)
        clock.now = GRANT.expires_at
        permits.look()
        assert not holder.ends
        clock.now = GRANT.expires_at + LEEWAY_S
        permits.look()
        assert holder.ends == [CloseCode.TOKEN_EXPIRED]

    play(scenario, tmp_path)


def test_a_socket_that_is_gone_is_let_go(tmp_path: Path) -> None:
    async def scenario(permits: TokenWatch, clock: Clock) -> None:
        gone, there = Holder(), Holder()
        permits.hold(gone)
        permits.hold(there)
        gone.is_open = False
        clock.now += SWEEP_EVERY_S
        permits.look()
        assert list(permits._holders) == [there]

    play(scenario, tmp_path)


def test_who_is_revoked_is_closed_also_between_its_check_and_being_held(tmp_path: Path) -> None:
    async def scenario(permits: TokenWatch, _: Clock) -> None:
        before, after, other = (
            Holder(),
            Holder(),
            Holder(msgspec.structs.replace(GRANT, id="another", subject="")),
        )
        permits.hold(before)
        permits.hold(other)
        await permits.revocations.revoke(Revoked("subject", "ann"), int((GRANT.expires_at) * 1000))
        permits.hold(after)
        permits.look()
        assert before.ends == after.ends == [CloseCode.TOKEN_REVOKED]
        assert other.ends == []

    play(scenario, tmp_path)
