"""`Session`: speech in, outcomes out, over one connection after another.

    Talk ──> Replay, Heard   chunks until the server has them; the position of the last outcome
      ├────> Mailbox, Rooms  events until they are iterated; the room
      └────> Pace            what runs ahead of live speech waits for the server
    Link ──> Line            which URL next; one connection, dialled and answered

Here are what a user may ask, and the task that waits for the loss of a connection and finds the
next. docs/client-sdk.md tells how to use it.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.client.events import Reset, SessionLost, SessionRefused
from lingua_scheduler.client.link import NotNow, raise_if_permanent
from lingua_scheduler.client.talk import Talk
from lingua_scheduler.dial import fresh_token, insist_on_token
from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_client import FromClient, RoomCreate, RoomJoin
from lingua_scheduler.messages.to_client import ResumeRejected, SessionInitAck, SessionResumed

if TYPE_CHECKING:
    from types import TracebackType

    from lingua_scheduler.client.events import Event
    from lingua_scheduler.client.line import Answer, Line
    from lingua_scheduler.client.link import Link
    from lingua_scheduler.client.options import Options, Wish
    from lingua_scheduler.messages.shared import Coverage

# Below the server's bound on a message, also as base64.
CHUNK_BYTES_MAX: Final = 256 * 1024


class Session:
    """A session that is open inside `async with`; made by `connect`."""

    def __init__(self, link: Link, wish: Wish, options: Options) -> None:
        # How often it went on, at another server or at the same one again.
        self.resumes = 0
        self._link = link
        self._wish = wish
        self._options = options
        self._talk = Talk(wish, options)
        # What is shown with the next first message.
        self._token: str | None = None
        # Why a session must be opened; None while there is one to go on with.
        self._gone: str | None = ""
        # How far it was when the connection began: one that brought it forward was a good one.
        self._began_at: tuple[object, ...] = ()
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the session's name at the server; it is another one after a `Reset`."""
        return self._talk.id

    @property
    def epoch(self) -> str:
        """Return which count of positions `seq` belongs to."""
        return self._talk.heard.epoch

    @property
    def seq(self) -> int:
        """Return the position of the last outcome received."""
        return self._talk.heard.seq

    @property
    def duplicates(self) -> int:
        """Return how many outcomes came again and were not given out again."""
        return self._talk.heard.duplicates

    @property
    def url(self) -> str:
        """Return where the session is connected now; empty while it is not."""
        line = self._talk.line
        return line.url if line is not None and not line.ended.done() else ""

    @property
    def room(self) -> str:
        """Return the code of the room; empty outside of rooms."""
        return self._talk.rooms.code

    async def send(self, chunk: bytes) -> None:
        """Send speech; waits while the server, the connection or the memory takes no more."""
        if self._wish.audio_format == "pcm16" and len(chunk) % 2:
            raise InvalidMessage("a chunk of pcm16 has two bytes per sample, got an odd number")
        for start in range(0, len(chunk), CHUNK_BYTES_MAX):
            await self._talk.speak(bytes(chunk[start : start + CHUNK_BYTES_MAX]), is_final=False)

    async def cut(self) -> None:
        """Say that the utterance ends here."""
        await self._talk.speak(b"", is_final=True)

    async def close(self, reason: str = "") -> Coverage | None:
        """End the session: wait until all that was said is answered; return what became of it.

        None if the server does not say, or if the session was lost on the way.
        """
        talk = self._talk
        if not talk.is_closing:
            talk.close(reason)
        await talk.over.wait()
        if talk.error is not None:
            raise talk.error
        return talk.coverage

    def move(self) -> asyncio.Future[None]:
        """Drop the connection and resume at the next URL; what is returned ends with that."""
        moved = self._talk.next_line()
        self._link.forgive()
        if self._talk.line is not None:
            self._talk.line.abort()
        return moved

    async def create_room(
        self, *, preferred_lang: str | None = None, display_name: str | None = None
    ) -> str:
        """Make a room, join it and return its code; raises `RoomRefused`."""
        self._talk.check_open()
        await self._talk.until_accepted()
        question = RoomCreate(preferred_lang=preferred_lang, display_name=display_name)
        return await self._talk.rooms.create(question)

    async def join_room(
        self, code: str, *, preferred_lang: str | None = None, display_name: str | None = None
    ) -> None:
        """Join a room; raises `RoomRefused`."""
        self._talk.check_open()
        await self._talk.until_accepted()
        await self._talk.rooms.join(
            RoomJoin(room_code=code, preferred_lang=preferred_lang, display_name=display_name)
        )

    async def leave_room(self) -> None:
        """Leave the room; what was said before is still for those in it."""
        self._talk.check_open()
        await self._talk.until_accepted()
        self._talk.rooms.leave()

    def __aiter__(self) -> Session:
        return self

    async def __anext__(self) -> Event:
        event = await self._talk.mailbox.get()
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
        """Without `close()`: say that the session ends, and wait for nothing."""
        task, talk = self._task, self._talk
        assert task is not None
        talk.leave()
        task.cancel()
        await asyncio.wait({task})
        if talk.line is not None:
            await talk.line.finish()
        if not task.cancelled():
            task.result()

    # One connection after another

    async def _run(self) -> None:
        """Stay connected until the session is over."""
        talk = self._talk
        try:
            while not talk.over.is_set():
                await self._stay()
                if not talk.over.is_set():
                    await self._come_back()
        except (SessionLost, SessionRefused) as error:
            talk.end(error)
        except BaseException:
            talk.end(SessionLost("an error of the client, or cancelled"))
            raise

    async def _stay(self) -> None:
        """Wait until the connection is lost or to be left; its token is kept fresh meanwhile."""
        line, go_away = self._talk.line, self._talk.go_away
        assert line is not None
        keeping = asyncio.create_task(self._keep_token())
        ends: set[asyncio.Future[Any]] = {line.ended, go_away, keeping}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not keeping.cancel():
                keeping.result()
        if line.ended.done():
            line.ended.result()
            self._look_at_close(line)
        else:
            self._talk.is_leaving = True
            self._link.forgive()
            await asyncio.sleep(go_away.result())

    async def _keep_token(self) -> None:
        """Show a newer token whenever the server says that this one ends; raises a provider's."""
        while True:
            await self._talk.expiring.wait()
            self._talk.expiring.clear()
            if callable(self._wish.token):
                self._talk.refresh(await insist_on_token(self._wish.token) or "")

    def _look_at_close(self, line: Line) -> None:
        if line.close_code == CloseCode.REPLACED and self._link.unanswered:
            # A former try of our own came through late.
            self._link.unanswered -= 1
        elif line.close_code in (CloseCode.GOING_AWAY, CloseCode.TOKEN_EXPIRED):
            self._link.forgive()
        elif line.close_code == CloseCode.TOKEN_REVOKED and callable(self._wish.token):
            pass  # it may give another one
        elif not self._talk.over.is_set():
            raise_if_permanent(line)

    async def _come_back(self) -> None:
        """Resume at another URL; a connection that still lives is heard until then."""
        former = self._talk.line
        assert former is not None
        if self._talk.progress != self._began_at:
            self._link.forgive()
        window_s = self._options.resume_s
        if not self._talk.resume_token:
            window_s = self._lose("not_resumable")
        await self._connect(self._talk.resume_ms / 1000 if window_s is None else window_s)
        await former.leave()

    async def _connect(self, window_s: float) -> None:
        """Try one URL after another until a session is open, or the time is over."""
        former, why = self._talk.line, "no time was left"
        until = monotonic() + window_s
        while not self._talk.over.is_set():
            if former is not None and not former.ended.done():
                until = monotonic() + window_s  # it is still heard: nothing is lost yet
            wait_s = self._link.backoff_s()
            if monotonic() + wait_s > until:
                until = monotonic() + self._give_up(why)
            await asyncio.sleep(wait_s)
            try:
                await self._try()
            except NotNow as problem:
                why = problem.why
                await asyncio.sleep(min(problem.after_s, max(0.0, until - monotonic())))
            else:
                return

    async def _try(self) -> None:
        """Resume at the next URL, or open a session there if the old one is gone."""
        try:
            # Before the connection: it would wait for its first message.
            self._token = await fresh_token(self._wish.token)
        except (OSError, TimeoutError) as error:
            raise NotNow(f"no token now: {str(error) or 'none came in time'}") from None
        line, answer = await self._link.attempt(self._first_message, self._welcome)
        if not isinstance(answer, ResumeRejected):
            return
        try:
            self._lose(answer.reason)
        except SessionLost:
            await line.leave()
            raise
        if self._talk.over.is_set():
            await line.leave()
        else:
            await self._link.ask(line, self._first_message)

    def _first_message(self) -> FromClient:
        token = self._token
        return self._talk.resume_message(token) if self._gone is None else self._wish.init(token)

    def _welcome(self, line: Line, answer: Answer) -> None:
        """A connection was found; called in its read callback, before anything else is read."""
        if isinstance(answer, SessionInitAck):
            reason, self._gone = self._gone, None
            self._link.connected()
            self._talk.opened(line, answer, reason or "")
        elif isinstance(answer, SessionResumed):
            self.resumes += 1
            self._link.connected()
            self._talk.resumed(line, answer)
        self._began_at = self._talk.progress

    def _lose(self, reason: str) -> float:
        """The session cannot go on: see to a new one, for so many seconds, or end."""
        talk = self._talk
        open_ms, unsaid_ms = talk.heard.open_ms, self._wish.duration_ms(talk.replay.unsaid_size)
        reopen = self._options.reopen
        if talk.is_closing and not unsaid_ms and (reopen or not open_ms):
            # There is nothing left to say: no session is needed for that.
            if open_ms:
                talk.mailbox.put(Reset(reason, open_ms, talk.id, ""))
            talk.end(None)
        elif not reopen:
            raise SessionLost(reason, open_ms + unsaid_ms)
        self._gone = reason
        return self._options.open_s

    def _give_up(self, why: str) -> float:
        """The time for resuming, or for opening, is over."""
        if self._gone is None:
            return self._lose("expired")
        talk = self._talk
        lost_ms = talk.heard.open_ms + self._wish.duration_ms(talk.replay.unsaid_size)
        raise SessionLost(f"no session could be opened: {why}", lost_ms)
