"""The node SDK: an async function with a decorator is a node.

    sdk (Node) ──> link ──> wire        one connection after another, registering, heartbeats
        └────────> worker ──> job       one task per job, results kept until acknowledged
    simulate, old_node                  nodes that only pretend, for trials and tests

It needs the wire (`lingua_scheduler.messages`) and nothing of the server. See docs/node-sdk.md.
"""

from lingua_scheduler.messages.shared import ExtraResult, Gpu, InstalledModel, InstalledService
from lingua_scheduler.node.job import Job, JobFailed, Result
from lingua_scheduler.node.link import NodeRefused
from lingua_scheduler.node.sdk import Node
from lingua_scheduler.node.worker import Stats

__all__ = [
    "ExtraResult",
    "Gpu",
    "InstalledModel",
    "InstalledService",
    "Job",
    "JobFailed",
    "Node",
    "NodeRefused",
    "Result",
    "Stats",
]
