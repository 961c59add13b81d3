"""Steps: coroutines that need no task while they wait for nothing but the store.

Most work of an instance is a coroutine that asks the store once and acts on its answer. A task and
a future would cost more than such work itself. A step runs at once, in the callback that causes it,
and goes on in the callback that brings the answer. A step that waits for anything else (a pause, a
lock, another coroutine) becomes a task there. So the usual case needs no task, and no case needs
another path. `Tasks` owns the steps and what becomes of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Answer(msgspec.Struct, Generic[T], eq=False):
    """An answer that is outstanding; at most one coroutine awaits it.

    It is set like a future. A step goes on right then; a task that awaits it goes on in the next
    turn of the loop. What is set is read by `read` when the waiting coroutine goes on, so that
    reading an answer needs no coroutine of its own.
    """

    _read: Callable[[Any], T] | None = None
    _is_done: bool = False
    _value: Any = None
    _error: BaseException | None = None
    # How the coroutine that awaits it goes on.
    _go_on: Callable[[], None] | None = None

    def done(self) -> bool:
        """Tell whether it is set, or awaited no more."""
        return self._is_done

    def set_result(self, value: Any) -> None:
        """Set the answer; a late one changes nothing."""
        if self._is_done:
            return
        self._is_done = True
        self._value = value
        if self._go_on is not None:
            self._go_on()

    def set_exception(self, error: BaseException) -> None:
        """Set the error to be raised in place of an answer."""
        self._error = error
        self.set_result(None)

    def exception(self) -> BaseException | None:
        """Return the error that was set."""
        return self._error

    def __await__(self) -> Generator[Any, Any, T]:
        if not self._is_done:
            step = RUNNING.step
            try:
                if step is not None:
                    self._go_on = step.advance
                    yield self
                else:
                    future = asyncio.get_running_loop().create_future()
                    self._go_on = partial(_wake, future)
                    yield from future
            finally:
                self._is_done = True
        if self._error is not None:
            raise self._error
        return self._value if self._read is None else self._read(self._value)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # its task may have been cancelled
        future.set_result(None)


class StepOwner(Protocol):
    """Whom a step reports to, once."""

    def step_ended(self, step: Step, error: Exception | None) -> None:
        """Note that it has ended, with its error."""

    def step_waits(self, step: Step, rest: Coroutine[Any, Any, Any]) -> None:
        """Go on with what is left of it in a task: it waits for something else."""


class Step(msgspec.Struct, eq=False):
    """A coroutine that runs without a task."""

    _work: Coroutine[Any, Any, Any]
    _owner: StepOwner

    def advance(self) -> None:
        """Run until it waits for an answer, ends, or needs a task."""
        running = RUNNING
        before, running.step = running.step, self
        try:
            waits_for = self._work.send(None)
        except StopIteration:
            self._owner.step_ended(self, None)
        except Exception as error:  # noqa: BLE001 reported to the owner, like that of a task
            self._owner.step_ended(self, error)
        else:
            if waits_for.__class__ is not Answer:
                self._owner.step_waits(self, _rest_of(self._work, waits_for))
        finally:
            running.step = before

    def close(self) -> None:
        """End it where it waits."""
        self._work.close()


class RunningStep:
    """The step that runs now; steps run inside callbacks of the loop, never at the same time.

    An object of its own: an attribute of the class `Step` would make the interpreter forget what
    it knows of that class at every change.
    """

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step: Step | None = None


RUNNING: Final = RunningStep()


async def _rest_of(work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
    """Go on with a coroutine that has begun, where it waits for this."""
    await _Begun(work, waits_for)


class _Begun(Generator[Any, Any, Any]):
    """A coroutine that has begun, to be awaited: what it waits for already is given first."""

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._work = work
        self._waits_for: tuple[Any, ...] = (waits_for,)

    def __await__(self) -> _Begun:
        return self

    def send(self, value: Any) -> Any:
        """Let it go on with a value."""
        if self._waits_for:
            (waits_for,), self._waits_for = self._waits_for, ()
            return waits_for
        return self._work.send(value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise an error in it, such as a cancellation."""
        del value, traceback  # of an older form of this call
        return self._work.throw(error)
