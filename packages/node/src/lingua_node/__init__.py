"""The node SDK: an async function with a decorator is a node.

    node ──> settings, registration      what the user writes, in the terms of the protocol
      ├────> connection                  one socket after another
      │        ├──> addresses, node_socket
      │        └──> reporter ──> machine     registration and heartbeats
      └────> job_runner ──> job          one task per job
               ├──> result_buffer, stats     results are kept until acknowledged
               └──> stream_runner ──> stream     speech that is still going on
    simulate, old_node                   simulated nodes, for trials and tests

The package depends on `lingua_wire`, not on the server. See docs/node-sdk.md.
"""

from lingua_node.connection import NodeRefused
from lingua_node.job import Job, JobFailed, Result
from lingua_node.node import Node
from lingua_node.stats import Stats
from lingua_node.stream import Stream
from lingua_wire.shared import ExtraResult, Gpu, InstalledModel, InstalledService

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
    "Stream",
]
