"""The libraries of functions that other releases have left in the store.

They cost some memory and nothing else. None is deleted by us, because an instance of that release
may still run: it would have to load its library again at every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.maintenance.store_reader import NotAllowed
from lingua_scheduler.state.libraries import FORBIDDEN
from lingua_scheduler.state.script import LIBRARY_PREFIX
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from lingua_scheduler.state.connection import Connection


async def other_libraries(connection: Connection) -> tuple[str, ...]:
    """Return the names of all our libraries on any master, without that of this release."""
    try:
        replies = await connection.every_master(
            "FUNCTION", "LIST", "LIBRARYNAME", f"{LIBRARY_PREFIX}*"
        )
    except StoreRejected as error:
        if error.reply.startswith(FORBIDDEN):
            hint = "use the user of docs/operations.md, `lingua doctor`"
            raise NotAllowed("FUNCTION LIST", hint) from None
        raise
    own = {script.library.name for script in load_scripts().values()}
    names = {name_in(row) for reply in replies for row in reply}
    return tuple(sorted(names - own))


def name_in(row: list[bytes]) -> str:
    """Return the name of the library that a row of the list is about."""
    return row[row.index(b"library_name") + 1].decode()
