"""The scripts of one deployment, grouped by noun.

`store.jobs.submit(...)` packs its arguments, runs one script on the cell's slot and reads the
answer. There is no logic here; the scripts in `lua/` decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.cell_scripts import CellScripts
from lingua_scheduler.state.job_scripts import JobScripts
from lingua_scheduler.state.lease_scripts import LeaseScripts
from lingua_scheduler.state.node_scripts import NodeScripts
from lingua_scheduler.state.outbox_scripts import OutboxScripts
from lingua_scheduler.state.request_scripts import RequestScripts
from lingua_scheduler.state.script_runner import ScriptRunner
from lingua_scheduler.state.session_scripts import SessionScripts
from lingua_scheduler.state.stream_scripts import StreamScripts

if TYPE_CHECKING:
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.policy import FleetPolicy


class Store:
    """The scripts of one deployment, over one connection."""

    def __init__(
        self, connection: Connection, policy: FleetPolicy, *, runner: ScriptRunner | None = None
    ) -> None:
        self.runner = runner or ScriptRunner(connection)
        self.jobs = JobScripts(self.runner, policy)
        self.requests = RequestScripts(self.runner, policy)
        self.outbox = OutboxScripts(self.runner, policy)
        self.sessions = SessionScripts(self.runner, policy)
        self.streams = StreamScripts(self.runner, policy)
        self.leases = LeaseScripts(self.runner, policy)
        self.nodes = NodeScripts(self.runner, policy)
        self.cells = CellScripts(self.runner, policy)

    async def warm(self) -> None:
        """Load our library into every master, so that no utterance has to wait for it."""
        await self.runner.warm()
