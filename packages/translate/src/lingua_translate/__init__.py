"""Interpreting one speaker: a source of speech in, a report of the outcomes out.

    sources (file, pipe, microphone) ──> run (interpret) ──> report (InterpretationReport)
                                           └──> spoken       what was spoken when, measured here
    report ──> outputs (captions, JSON, audio)    screen, playback: listeners that show and play

Built on the client SDK alone, so it works with any scheduler. Used by `lingua translate`, `lingua
demo` and `lingua bench speech`. docs/translate.md describes what is measured and how.
"""

from lingua_translate.report import (
    InterpretationReport,
    Rendition,
    TranslatedUtterance,
    own_share_ms,
    quantile,
)
from lingua_translate.run import ListenerGroup, NullListener, Order, TranslationListener, interpret
from lingua_translate.sources import (
    AudioSource,
    NoMicrophone,
    PipeSource,
    RecordingSource,
    SourceFailed,
    microphone,
)

__all__ = [
    "AudioSource",
    "InterpretationReport",
    "ListenerGroup",
    "NoMicrophone",
    "NullListener",
    "Order",
    "PipeSource",
    "RecordingSource",
    "Rendition",
    "SourceFailed",
    "TranslatedUtterance",
    "TranslationListener",
    "interpret",
    "microphone",
    "own_share_ms",
    "quantile",
]
