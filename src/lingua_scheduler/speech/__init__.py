"""Real speech: engines that listen, translate and speak, and the node that is made of them.

    node (assembly, calibration) ──> pipeline ──> host ──pipes──> worker process ──> engines
                                                     plugins: which engines there are

An engine is a plain synchronous class behind a small interface (`engine.py`) and runs in a process
of its own, so that it may block, crash or eat all memory without the node noticing more than a
failed job. Nothing here knows the server: a node needs the node SDK. See docs/speech.md.
"""
