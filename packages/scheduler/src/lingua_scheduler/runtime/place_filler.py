"""Places in a session's order that get an outcome without a job: refused, or answered elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.state.records import JobSpec, LaneFill
    from lingua_scheduler.state.retry import StoreRetry


class PlaceFiller:
    """Fills places of one session."""

    def __init__(
        self,
        record: SessionRecord,
        *,
        dispatcher: Dispatcher,
        effects: Effects,
        retry: StoreRetry,
        reopen: Callable[[], Awaitable[None]],
        on_unfilled: Callable[[JobSpec, Reply], None],
    ) -> None:
        self._record = record
        self._dispatcher = dispatcher
        self._effects = effects
        self._retry = retry
        self._reopen = reopen
        # Called if a place cannot be filled: it is not waited for any more.
        self._on_unfilled = on_unfilled

    async def fill(self, spec: JobSpec, answer: LaneFill) -> bool:
        """Give a place in the order this outcome; tells whether it has it."""
        record, reply = self._record, Reply.FENCED
        while reply is Reply.FENCED and not record.is_over:
            fence = record.fence
            filled, work = await self._retry.until_stored(
                partial(
                    self._dispatcher.fill,
                    record.home,
                    record.id,
                    spec.lane,
                    answer=answer,
                    index=spec.index,
                    unwanted_from=spec.unwanted_from,
                    fence=fence,
                )
            )
            self._effects.perform(work)
            reply = filled.reply
            if reply is Reply.FENCED and fence == record.fence:
                await (
                    self._reopen()
                )  # another instance is the owner, or the store lost our ownership
        if reply is Reply.SETTLED:
            return True
        self._on_unfilled(spec, reply)
        return False
