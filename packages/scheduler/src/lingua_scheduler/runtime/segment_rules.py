"""The segmenter's rules for a session, from the settings and what the client chose."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from lingua_scheduler.session.segmenter import SegmentRules

if TYPE_CHECKING:
    from lingua_scheduler.config import SegmentationSettings
    from lingua_scheduler.jobs.profile import Profile


@lru_cache(maxsize=8)
def rules_of(cuts: SegmentationSettings) -> SegmentRules:
    """Return the rules of the settings; sessions that change none of them share them."""
    return SegmentRules(
        pause_ms=cuts.pause_ms,
        max_duration_ms=cuts.max_duration_ms,
        max_bytes=cuts.max_bytes,
        hangover_auto_ms=cuts.hangover_auto_ms,
        hangover_manual_ms=cuts.hangover_manual_ms,
        short_merge_ms=cuts.short_merge_ms,
        silence_ms=cuts.silence_ms,
        slice_search_ms=cuts.slice_search_ms,
        silence_min_ms=cuts.silence_min_ms,
        silence_max_ms=cuts.silence_max_ms,
        sentence_min_ms=cuts.sentence_min_ms if cuts.sentence_cuts else 0,
    )


def rules_for(cuts: SegmentationSettings, profile: Profile) -> SegmentRules:
    """Return the rules of a session."""
    rules = rules_of(cuts)
    if profile.silence_ms is not None:
        rules = replace(rules, silence_ms=profile.silence_ms)
    if profile.silence_min_ms is not None:
        rules = replace(rules, silence_min_ms=profile.silence_min_ms)
    if profile.silence_max_ms is not None:
        rules = replace(rules, silence_max_ms=profile.silence_max_ms)
    if profile.sentence_cuts is not None:
        sentence_min_ms = cuts.sentence_min_ms if profile.sentence_cuts else 0
        rules = replace(rules, sentence_min_ms=sentence_min_ms)
    return rules
