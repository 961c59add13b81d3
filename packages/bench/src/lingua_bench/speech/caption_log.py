"""Keeps what captions would have shown, and when, while a recording is interpreted."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from lingua_bench.speech.caption_lag import SeenCaption, lag_of, voiced_parts
from lingua_bench.speech.spoken_lag import TranslatedPiece
from lingua_translate import NullListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_bench.speech.caption_lag import CaptionLag
    from lingua_translate import Rendition, TranslatedUtterance
    from lingua_wire.recording import Recording


class CaptionLog(NullListener):
    """A listener that keeps every caption of every utterance with the time of its arrival."""

    def __init__(
        self, target: str, recording: Recording, now_s: Callable[[], float] = monotonic
    ) -> None:
        # The language whose translations are kept.
        self._target = target
        # What is spoken, from the beginning of the session on.
        self._recording = recording
        self._now_s = now_s
        self._shown: list[tuple[TranslatedUtterance, list[SeenCaption]]] = []

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:  # noqa: ARG002 in parts
        """Keep the text so far and its translation."""
        so_far = utterance.so_far
        if so_far is None:
            return
        translation = so_far.translations.get(self._target)
        caption = SeenCaption(self._now_s() * 1000, so_far.stable, so_far.unstable)
        if translation is not None:
            caption = caption._replace(
                stable_translation=translation.stable, unstable_translation=translation.unstable
            )
        self._captions_of(utterance).append(caption)

    def rendered(self, utterance: TranslatedUtterance, _: Rendition) -> None:
        """Keep that an utterance has ended; its texts are in it."""
        self._captions_of(utterance)

    def figures(self) -> list[CaptionLag]:
        """Return the figures of the utterances with a result and a known voice."""
        return [
            lag_of(
                utterance.text_asr,
                result.text,
                captions,
                self._voiced(utterance),
                result.arrived_s * 1000,
            )
            for utterance, captions in self._shown
            if (result := utterance.renditions.get(self._target)) is not None
            and not result.reason
            and utterance.voice_end_s is not None
        ]

    def pieces(self) -> list[TranslatedPiece]:
        """Return the utterances with spoken translations, in order."""
        return [
            TranslatedPiece(
                tuple((start / 1000, end / 1000) for start, end in self._voiced(utterance)),
                result.text,
                result.arrived_s,
                len(result.pcm) / 2 / result.sample_rate,
            )
            for utterance, _ in self._shown
            if (result := utterance.renditions.get(self._target)) is not None
            and result.pcm
            and utterance.voice_end_s is not None
        ]

    def _voiced(self, utterance: TranslatedUtterance) -> list[tuple[float, float]]:
        """Return the parts of an utterance with voice, by the monotonic clock."""
        pcm, rate = self._recording.pcm, self._recording.sample_rate
        first, last = (
            2 * round(at_ms * rate / 1000) for at_ms in (utterance.start_ms, utterance.voice_end_ms)
        )
        began_ms = 1000 * (utterance.voice_end_s or 0.0) - (last - first) * 500 / rate
        parts = voiced_parts(pcm[first:last], rate)
        return [(began_ms + start, began_ms + end) for start, end in parts]

    def _captions_of(self, utterance: TranslatedUtterance) -> list[SeenCaption]:
        for one, captions in reversed(self._shown):
            if one is utterance:
                return captions
        self._shown.append((utterance, []))
        return self._shown[-1][1]
