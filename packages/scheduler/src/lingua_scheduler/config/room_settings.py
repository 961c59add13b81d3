"""The settings of rooms."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from lingua_scheduler.config.described import HOUR_MS, MINUTE_MS, milliseconds, whole


class RoomSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conversations of several people."""

    idle_ms: Annotated[
        int, milliseconds(1000, 24 * HOUR_MS, "How long a room exists without speech.")
    ] = 30 * MINUTE_MS
    members_max: Annotated[int, whole(2, 10_000, "People in one room.")] = 100
    kept_bytes_max: Annotated[
        int,
        whole(
            1 << 16,
            1 << 30,
            "Results of one speaker kept for listeners that are behind or disconnected; beyond this"
            " size the oldest lose their sound and keep their text.",
            "bytes",
        ),
    ] = 16 << 20
    captions_kept: Annotated[
        int,
        whole(
            0,
            10_000,
            "Captions of a room that are kept per language until the room ends: for those who join"
            " late and for the transcript. With 0 there is neither.",
        ),
    ] = 200
    caption_bytes_max: Annotated[
        int,
        whole(1 << 12, 64 << 20, "Captions of a room kept per language, in bytes.", "bytes"),
    ] = 256 << 10
    feeds_max: Annotated[
        int,
        whole(
            1,
            100,
            "Languages of one room in which captions are read. One that no member listens in costs"
            " a translation of each utterance.",
        ),
    ] = 8
    readers_max: Annotated[
        int, whole(1, 100_000, "Readers of captions on one instance, over all rooms.")
    ] = 5_000
