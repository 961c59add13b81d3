"""Interpreting one speaker: a source of speech in, a report of what came of it out.

    sources (file, pipe, microphone) ──> run (interpret) ──> report (Report, Utterance, Rendition)
                                           └──> spoken       what was said when, measured here
    report ──> outputs (captions, JSON, audio)    screen, playback: listeners that show and play

Built on the client SDK alone, so it works with any scheduler. Used by `lingua translate`,
`lingua demo` and `lingua bench speech`. docs/translate.md tells what is measured and how.
"""

from lingua_scheduler.interpret.report import Rendition, Report, Utterance, own_share_ms, quantile
from lingua_scheduler.interpret.run import Audience, Listener, Order, Unheard, interpret
from lingua_scheduler.interpret.sources import (
    NoMicrophone,
    PipeSource,
    RecordingSource,
    Source,
    SourceFailed,
    microphone,
)

__all__ = [
    "Audience",
    "Listener",
    "NoMicrophone",
    "Order",
    "PipeSource",
    "RecordingSource",
    "Rendition",
    "Report",
    "Source",
    "SourceFailed",
    "Unheard",
    "Utterance",
    "interpret",
    "microphone",
    "own_share_ms",
    "quantile",
]
