"""Calls of the store, as a link sends them: alone, or several steps' calls in one.

A server spends more on receiving a call, on reading the time and on answering than on many a verb
itself. So the calls of steps (`steps.py`) that one turn of the event loop makes on one cell are
sent as one call of the verb `batch`. Only neighbours are, so that calls keep their order. Each has
its own answer and its own error, and is sent again alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import hiredis
import msgspec

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from lingua_scheduler.state.script import Script, Word
    from lingua_scheduler.steps import Answer

# The stub of hiredis types the argument as a tuple of exactly one item.
pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)

BATCH: Final = "batch"
# A batch is one script: the server does nothing else meanwhile.
BATCH_CALLS_MAX: Final = 32
BATCH_BYTES_MAX: Final = 256 * 1024


class StoreCall(msgspec.Struct, eq=False):
    """One command in flight: its bytes, kept for a resend, and the future of its reply.

    The reply of a step's call has an `Answer` in place of a future.
    """

    future: asyncio.Future[Any] | Answer[Any]
    packed: bytes
    # The script of an FCALL, else None.
    script: Script | None
    slot: int
    # The monotonic time after which the call is not sent again.
    deadline: float
    # When the current link considers the server unavailable: at first the deadline. After a resend
    # this is later, so that an old call does not end a healthy connection.
    expires: float
    # How often it was redirected or sent in another form, and how often it was retried.
    turns: int = 0
    retries: int = 0

    @property
    def label(self) -> str:
        """The script's name, or the first word of the command: never its arguments."""
        if self.script is not None:
            return self.script.name
        return self.packed.split(b"\r\n", 3)[2].decode(errors="replace")

    def command(self) -> bytes:
        """Return the command in the server's format."""
        return self.packed

    def fail(self, error: Exception) -> None:
        """Set the error if the call is still pending."""
        if not self.future.done():
            self.future.set_exception(error)
            # Marks the error as retrieved, for a caller that was cancelled before it awaited.
            self.future.exception()


class CallForm(NamedTuple):
    """What all calls of a script on one cell have in common."""

    script: Script
    slot: int
    keys: tuple[Word, ...]
    # Their first arguments, which a batch has once: the time, the policy.
    shared: tuple[Word, ...]
    # The first words of a call alone, and of a batch.
    alone: tuple[Word, ...]
    batch: tuple[Word, ...]

    @classmethod
    def of(
        cls, script: Script, slot: int, keys: tuple[Word, ...], shared: tuple[Word, ...]
    ) -> CallForm:
        """Return the form of a script's calls on the keys of a cell, which are in that slot."""
        together = script.library.script(BATCH).function
        return cls(
            script,
            slot,
            keys,
            shared,
            alone=(b"FCALL", script.function, len(keys), *keys, *shared),
            batch=(b"FCALL", together, len(keys), *keys, *shared),
        )


class StepCall(StoreCall, eq=False, kw_only=True):
    """A call of a step, which may be sent together with others."""

    form: CallForm
    # Its arguments after those of its form. They are packed when it is sent, with those of all
    # calls that go with it.
    args: tuple[Word, ...]
    # How long those of its arguments are that may be long.
    size: int

    def command(self) -> bytes:
        """Return the command in the server's format."""
        return pack((*self.form.alone, *self.args))


class CallBatch:
    """Several calls of steps as one command."""

    __slots__ = ("calls", "expires")

    def __init__(self, calls: list[StepCall]) -> None:
        self.calls = calls
        self.expires = calls[0].expires

    def command(self) -> bytes:
        """Return the command in the server's format."""
        words = [*self.calls[0].form.batch]
        for call in self.calls:
            args = call.args
            words += (call.form.script.name, len(args))
            words += args
        return pack(tuple(words))

    def fail(self, error: Exception) -> None:
        """Set the error of every call that is still pending."""
        for call in self.calls:
            call.fail(error)


def grouped(calls: Sequence[StoreCall]) -> list[StoreCall | CallBatch]:
    """Return calls as they are sent, in order: neighbours that may go together do."""
    sent: list[StoreCall | CallBatch] = []
    group: list[StepCall] = []
    size = 0
    for call in calls:
        if not isinstance(call, StepCall):
            if group:
                sent.append(_sent(group))
                group, size = [], 0
            sent.append(call)
            continue
        size += call.size
        if group and (
            size > BATCH_BYTES_MAX
            or len(group) >= BATCH_CALLS_MAX
            # One that is resent goes alone.
            or call.turns
            or group[0].turns
            or call.form.batch != group[0].form.batch
        ):
            sent.append(_sent(group))
            group, size = [], call.size
        group.append(call)
    if group:
        sent.append(_sent(group))
    return sent


def _sent(group: list[StepCall]) -> StoreCall | CallBatch:
    return CallBatch(group) if len(group) > 1 else group[0]
