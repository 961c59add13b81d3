"""Engines in processes of their own: what the node calls, and nothing that an engine imports.

    pipeline ──> Crew ──> Worker ──socket──> child process: engines
                  queue     one child         one call at a time

`Crew` keeps worker processes, replaces those that die, hang or run out of memory, and gives each
one call at a time. See `engine.py` for what can be asked, `wire.py` for what goes over the socket.
"""

from lingua_scheduler.speech.host.crew import Crew, CrewRules, WorkerBusy
from lingua_scheduler.speech.host.worker import Worker, WorkerLost, WorkerRules

__all__ = ["Crew", "CrewRules", "Worker", "WorkerBusy", "WorkerLost", "WorkerRules"]
