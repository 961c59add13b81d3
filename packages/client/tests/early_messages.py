"""Partial texts and parts of speech, as a service sends them."""

from __future__ import annotations

from typing import Any

from lingua_wire.to_client import PartialResult, TtsPart


def partial(index: int, stable: str = "", unstable: str = "", **fields: Any) -> PartialResult:
    told: dict[str, Any] = {
        "session_id": "s1",
        "revision": 1,
        "start_ms": 100,
        "upto_ms": 900,
        **fields,
    }
    return PartialResult(utterance_index=index, stable=stable, unstable=unstable, **told)


def part(index: int, part_index: int, audio: bytes = b"\0\0", **fields: Any) -> TtsPart:
    told: dict[str, Any] = {
        "session_id": "s1",
        "job_id": f"j{index}",
        "attempt_id": 1,
        "tgt_lang": "es",
        "tts_format": "pcm16",
        **fields,
    }
    return TtsPart(utterance_index=index, part_index=part_index, audio=audio, **told)
