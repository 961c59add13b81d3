"""Keeps what captions would have shown, and when, while a recording is interpreted."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_bench.speech.caption_lag import CaptionedUtterance, ShownText
from lingua_translate import NullListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_translate import Rendition, TranslatedUtterance

# The lane of what was said; translations have the names of their languages.
AS_SPOKEN: Final = ""


class CaptionLog(NullListener):
    """A listener that keeps every text of every utterance with the time of its arrival."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        # The utterance; language -> what was shown.
        self._shown: list[tuple[TranslatedUtterance, dict[str, list[ShownText]]]] = []

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        """Keep the text so far and its translations."""
        now_s, lanes = self._now_s(), self._lanes(utterance)
        lanes.setdefault(AS_SPOKEN, []).append(ShownText(now_s, text))
        for target, one in (utterance.so_far.translations if utterance.so_far else {}).items():
            lanes.setdefault(target, []).append(ShownText(now_s, one.text))

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Keep the final texts."""
        if rendition.reason:
            return
        lanes = self._lanes(utterance)
        lanes.setdefault(AS_SPOKEN, []).append(ShownText(rendition.arrived_s, utterance.text_asr))
        lanes.setdefault(rendition.target, []).append(
            ShownText(rendition.arrived_s, rendition.text)
        )

    def captioned(self, lane: str = AS_SPOKEN) -> list[CaptionedUtterance]:
        """Return the utterances with an outcome and a known voice, in one language."""
        return [
            CaptionedUtterance(tuple(lanes[lane]), voice_s(utterance))
            for utterance, lanes in self._shown
            if utterance.renditions and utterance.voice_end_s is not None and lane in lanes
        ]

    def _lanes(self, utterance: TranslatedUtterance) -> dict[str, list[ShownText]]:
        for one, lanes in reversed(self._shown):
            if one is utterance:
                return lanes
        self._shown.append((utterance, {}))
        return self._shown[-1][1]


def voice_s(utterance: TranslatedUtterance) -> tuple[float, float]:
    """Return when the voice of an utterance began and ended, by the monotonic clock."""
    end_s = utterance.voice_end_s or 0.0
    return end_s - (utterance.voice_end_ms - utterance.start_ms) / 1000, end_s
