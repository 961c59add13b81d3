"""Engines in processes of their own, as the node calls them.

    pipeline ──> WorkerPool ──> WorkerProcess ──socket──> child process: engines
                  queue          one process               one call at a time

A `WorkerPool` keeps worker processes, replaces those that die, hang or run out of memory, and gives
each one call at a time. `engine.py` defines the calls, `messages.py` the messages on the socket.
Nothing here imports an engine except `child.py`, which runs in the worker process.
"""

from lingua_speech.host.worker_pool import (
    CallPreempted,
    WorkerBusy,
    WorkerPool,
    WorkerPoolRules,
)
from lingua_speech.host.worker_process import Urgency, WorkerLost, WorkerProcess, WorkerRules

__all__ = [
    "CallPreempted",
    "Urgency",
    "WorkerBusy",
    "WorkerLost",
    "WorkerPool",
    "WorkerPoolRules",
    "WorkerProcess",
    "WorkerRules",
]
