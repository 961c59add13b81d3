"""Real speech: engines that listen, translate and speak, and the node that is made of them.

    node (assembly, calibration) ──> pipeline ──> host ──pipes──> worker process ──> engines
                                                     plugins: which engines there are

An engine is a plain synchronous class behind a small interface (`engine.py`) and runs in a process
of its own, so that it may block, crash or eat all memory without the node noticing more than a
failed job. Nothing here knows the server: a node needs the node SDK. See docs/speech.md.
"""

from __future__ import annotations

import os

# What people say is nobody's business: official builds of onnxruntime report to their maker unless
# this is set before they are loaded, and so does what fetches faster-whisper's models.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")
