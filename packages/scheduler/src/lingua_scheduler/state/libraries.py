"""Loading the library of functions into servers, and what a server answers that lacks it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from lingua_scheduler.errors import StoreRejected, StoreUnfit

if TYPE_CHECKING:
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.script import FunctionLibrary

# The answer to a call of a function that the server does not have.
NO_FUNCTION: Final = "ERR Function not found"
# The answer to a second load: another instance, or another call, was first.
LOADED_BEFORE: Final = re.compile(r"ERR Library '\w+' already exists")
TOO_OLD: Final = re.compile(r"ERR unknown command\W+function", re.IGNORECASE)
FORBIDDEN: Final = "NOPERM "


async def load_on_masters(connection: Connection, library: FunctionLibrary) -> None:
    """Load the library into every master; raise `StoreUnfit` if one cannot have it."""
    slots = connection.masters()
    await asyncio.gather(*(load_on_master(connection, slot, library) for slot in slots))


async def load_on_master(connection: Connection, slot: int, library: FunctionLibrary) -> None:
    """Load the library into the master of a slot."""
    try:
        await connection.command(slot, "FUNCTION", "LOAD", library.source)
    except StoreRejected as error:
        if not is_loaded(error):
            raise unfit(error) from None


def is_loaded(error: BaseException | None) -> bool:
    """Tell whether the server has the library after it answered a load so."""
    if error is None:
        return True
    return isinstance(error, StoreRejected) and LOADED_BEFORE.fullmatch(error.reply) is not None


def unfit(error: StoreRejected) -> StoreRejected:
    """Return the error of a refused load, with what an operator can do if that is known."""
    if TOO_OLD.match(error.reply):
        return StoreUnfit(
            "the server has no functions",
            "it must be Redis 7.0 or later, or Valkey; all data stays as it is in an upgrade",
        )
    if error.reply.startswith(FORBIDDEN):
        return StoreUnfit(error.reply, "give the user the rights that `lingua config acl` prints")
    return error
