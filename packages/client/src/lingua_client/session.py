"""`Session`: speech in, outcomes out, over one connection after another.

This module has the methods for users, and the task that waits until a connection is lost and finds
the next one. `Conversation` handles the messages, `Endpoints` selects the URLs. docs/client-sdk.md
is the manual.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_client.conversation import Conversation
from lingua_client.endpoints import AttemptFailed, raise_if_permanent
from lingua_client.events import Reset, SessionLost, SessionRefused
from lingua_wire.codes import CloseCode
from lingua_wire.errors import InvalidMessage
from lingua_wire.from_client import FromClient, RoomCreate, RoomJoin
from lingua_wire.to_client import ResumeRejected, SessionInitAck, SessionResumed
from lingua_wire.token_source import fetch_token, retry_token

if TYPE_CHECKING:
    from types import TracebackType

    from lingua_client.connection import OpeningAnswer, SessionConnection
    from lingua_client.endpoints import Endpoints
    from lingua_client.events import Event
    from lingua_client.options import Options, SessionRequest
    from lingua_wire.shared import Coverage

# Below the server's limit for a message, even as base64.
CHUNK_BYTES_MAX: Final = 256 * 1024


class Session:
    """A session that is open inside `async with`; created by `connect`."""

    def __init__(self, endpoints: Endpoints, request: SessionRequest, options: Options) -> None:
        # How often it was resumed, at another server or at the same one.
        self.resumes = 0
        self._endpoints = endpoints
        self._request = request
        self._options = options
        self._conversation = Conversation(request, options)
        # The token of the next first message.
        self._token: str | None = None
        # Why a new session must be opened; None while there is one to resume.
        self._lost_reason: str | None = ""
        # The progress when the connection began: a connection with progress was a good one.
        self._progress_at_start: tuple[object, ...] = ()
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the session's id at the server; it changes with a `Reset`."""
        return self._conversation.state.id

    @property
    def epoch(self) -> str:
        """Return the epoch within which `seq` counts."""
        return self._conversation.tracker.epoch

    @property
    def seq(self) -> int:
        """Return the position of the last outcome received."""
        return self._conversation.tracker.seq

    @property
    def duplicates(self) -> int:
        """Return how many outcomes arrived again and were dropped."""
        return self._conversation.tracker.duplicates

    @property
    def url(self) -> str:
        """Return the URL of the present connection; empty while there is none."""
        connection = self._conversation.current.connection
        is_open = connection is not None and not connection.ended.done()
        return connection.url if connection is not None and is_open else ""

    @property
    def room(self) -> str:
        """Return the code of the room; empty outside of rooms."""
        return self._conversation.room.code

    async def send(self, chunk: bytes) -> None:
        """Send speech; waits while the server, the connection or the buffer accepts no more."""
        if self._request.audio_format == "pcm16" and len(chunk) % 2:
            raise InvalidMessage("a chunk of pcm16 has two bytes per sample, got an odd number")
        for start in range(0, len(chunk), CHUNK_BYTES_MAX):
            part = bytes(chunk[start : start + CHUNK_BYTES_MAX])
            await self._conversation.audio.send(part, is_final=False)

    async def cut(self) -> None:
        """End the utterance here."""
        await self._conversation.audio.send(b"", is_final=True)

    async def close(self, reason: str = "") -> Coverage | None:
        """End the session: wait until all speech is answered, and return its coverage.

        None if the server does not report it, or if the session was lost before its end.
        """
        state = self._conversation.state
        if not state.is_closing:
            self._conversation.close(reason)
        await state.over.wait()
        if state.error is not None:
            raise state.error
        return state.coverage

    def move(self) -> asyncio.Future[None]:
        """Drop the connection and resume at the next URL; the future is done after that."""
        current = self._conversation.current
        moved = current.next_connection()
        self._endpoints.reset_backoff()
        if current.connection is not None:
            current.connection.abort()
        return moved

    async def create_room(
        self, *, preferred_lang: str | None = None, display_name: str | None = None
    ) -> str:
        """Create a room, join it and return its code; raises `RoomRefused`."""
        await self._settle_audience()
        request = RoomCreate(preferred_lang=preferred_lang, display_name=display_name)
        return await self._conversation.room.create(request)

    async def join_room(
        self, code: str, *, preferred_lang: str | None = None, display_name: str | None = None
    ) -> None:
        """Join a room; raises `RoomRefused`."""
        await self._settle_audience()
        await self._conversation.room.join(
            RoomJoin(room_code=code, preferred_lang=preferred_lang, display_name=display_name)
        )

    async def leave_room(self) -> None:
        """Leave the room; its members still receive the speech from before."""
        await self._settle_audience()
        self._conversation.room.leave()

    async def _settle_audience(self) -> None:
        """Let the server accept all speech before the audience changes."""
        self._conversation.state.check_open()
        await self._conversation.audio.wait_until_accepted()

    def __aiter__(self) -> Session:
        return self

    async def __anext__(self) -> Event:
        event = await self._conversation.events.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Session:
        await self._connect(self._options.open_s)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Without `close()`: inform the server that the session ends, and wait for nothing."""
        task, conversation = self._task, self._conversation
        assert task is not None
        conversation.leave()
        task.cancel()
        await asyncio.wait({task})
        if conversation.current.connection is not None:
            await conversation.current.connection.close()
        if not task.cancelled():
            task.result()

    # One connection after another

    async def _run(self) -> None:
        """Stay connected until the session is over."""
        over = self._conversation.state.over
        try:
            while not over.is_set():
                await self._use_connection()
                if not over.is_set():
                    await self._reconnect()
        except (SessionLost, SessionRefused) as error:
            self._conversation.end(error)
        except BaseException:
            self._conversation.end(SessionLost("an error of the client, or cancelled"))
            raise

    async def _use_connection(self) -> None:
        """Wait until the connection is lost or must be left; keep its token fresh meanwhile."""
        current = self._conversation.current
        connection, go_away = current.connection, current.go_away
        assert connection is not None
        refreshing = asyncio.create_task(self._refresh_token())
        ends: set[asyncio.Future[Any]] = {connection.ended, go_away, refreshing}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not refreshing.cancel():
                refreshing.result()
        if connection.ended.done():
            connection.ended.result()
            self._check_close(connection)
        else:
            current.is_leaving = True
            self._endpoints.reset_backoff()
            await asyncio.sleep(go_away.result())

    async def _refresh_token(self) -> None:
        """Present a newer token when this one expires soon; raises what a token function raises."""
        expiring = self._conversation.current.token_expiring
        while True:
            await expiring.wait()
            expiring.clear()
            if callable(self._request.token):
                token = await retry_token(self._request.token)
                self._conversation.present_token(token or "")

    def _check_close(self, connection: SessionConnection) -> None:
        """Raise if the way a connection was closed means that reconnecting cannot help."""
        code = connection.close_code
        if code == CloseCode.REPLACED and self._endpoints.unanswered:
            # An earlier attempt of our own reached the server late.
            self._endpoints.unanswered -= 1
        elif code in (CloseCode.GOING_AWAY, CloseCode.TOKEN_EXPIRED):
            self._endpoints.reset_backoff()
        elif code == CloseCode.TOKEN_REVOKED and callable(self._request.token):
            pass  # the token function may return another one
        elif not self._conversation.state.over.is_set():
            raise_if_permanent(connection)

    async def _reconnect(self) -> None:
        """Resume at another URL; a former connection that still works is read until then."""
        state, former = self._conversation.state, self._conversation.current.connection
        assert former is not None
        if self._conversation.progress != self._progress_at_start:
            self._endpoints.reset_backoff()
        window_s = self._options.resume_s
        if not state.resume_token:
            window_s = self._lose("not_resumable")
        await self._connect(state.resume_ms / 1000 if window_s is None else window_s)
        await former.drop()

    async def _connect(self, window_s: float) -> None:
        """Try one URL after another until a session is open, or the time is over."""
        former, problem = self._conversation.current.connection, "no time was left"
        until = monotonic() + window_s
        while not self._conversation.state.over.is_set():
            if former is not None and not former.ended.done():
                until = monotonic() + window_s  # it is still read: nothing is lost yet
            wait_s = self._endpoints.backoff_s()
            if monotonic() + wait_s > until:
                until = monotonic() + self._handle_timeout(problem)
            await asyncio.sleep(wait_s)
            try:
                await self._attempt()
            except AttemptFailed as failed:
                problem = failed.reason
                await asyncio.sleep(min(failed.retry_after_s, max(0.0, until - monotonic())))
            else:
                return

    async def _attempt(self) -> None:
        """Resume at the next URL, or open a session there if the old one is lost."""
        try:
            # Before connecting: the server expects the first message in time.
            self._token = await fetch_token(self._request.token)
        except (OSError, TimeoutError) as error:
            raise AttemptFailed(f"no token now: {str(error) or 'none arrived in time'}") from None
        connection, answer = await self._endpoints.connect(self._first_message, self._on_answer)
        if not isinstance(answer, ResumeRejected):
            return
        try:
            self._lose(answer.reason)
        except SessionLost:
            await connection.drop()
            raise
        if self._conversation.state.over.is_set():
            await connection.drop()
        else:
            await self._endpoints.request(connection, self._first_message)

    def _first_message(self) -> FromClient:
        if self._lost_reason is None:
            return self._conversation.resume_message(self._token)
        return self._request.init(self._token)

    def _on_answer(self, connection: SessionConnection, answer: OpeningAnswer) -> None:
        """Use a new connection; called in its read callback, before anything else is read."""
        if isinstance(answer, SessionInitAck):
            reason, self._lost_reason = self._lost_reason, None
            self._endpoints.record_connected()
            self._conversation.begin_session(connection, answer, reason or "")
        elif isinstance(answer, SessionResumed):
            self.resumes += 1
            self._endpoints.record_connected()
            self._conversation.resume_session(connection, answer)
        self._progress_at_start = self._conversation.progress

    @property
    def _unaccepted_ms(self) -> int:
        """Return how much audio the server may not have."""
        return self._request.duration_ms(self._conversation.audio.replay.unaccepted_size)

    def _lose(self, reason: str) -> float:
        """Give up the session: return how long a new one may be tried, or end."""
        conversation, reopen = self._conversation, self._options.reopen
        open_ms, unaccepted_ms = conversation.tracker.open_ms, self._unaccepted_ms
        if conversation.state.is_closing and not unaccepted_ms and (reopen or not open_ms):
            # All speech was accepted: a new session would have nothing to do.
            if open_ms:
                conversation.events.put(Reset(reason, open_ms, conversation.state.id, ""))
            conversation.end(None)
        elif not reopen:
            raise SessionLost(reason, open_ms + unaccepted_ms)
        self._lost_reason = reason
        return self._options.open_s

    def _handle_timeout(self, problem: str) -> float:
        """Give up resuming, or raise if opening a session took too long."""
        if self._lost_reason is None:
            return self._lose("expired")
        lost_ms = self._conversation.tracker.open_ms + self._unaccepted_ms
        raise SessionLost(f"no session could be opened: {problem}", lost_ms)
