"""Real speech: engines that recognise, translate and speak, and the node made of them.

    node (assembly, calibration) ──> pipeline ──> host ──pipes──> worker process ──> engines
                                                     plugins: the available engines

An engine is a plain synchronous class behind a small interface (`engine.py`). It runs in a process
of its own: if it blocks, crashes or uses all memory, the node only sees a failed job. Nothing here
depends on the scheduler; the node SDK connects the two. See docs/speech.md.
"""

from __future__ import annotations

import os

# Speech is private: official builds of onnxruntime send telemetry unless this is set before they
# are loaded, and so does the library that fetches the models of faster-whisper.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")
