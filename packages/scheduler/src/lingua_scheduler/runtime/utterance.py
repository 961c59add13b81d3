"""An utterance with the profile of its session: what a cut is until its jobs are in the store."""

from __future__ import annotations

from typing import TypeAlias

from lingua_scheduler.jobs.profile import Profile
from lingua_scheduler.session.utterance import UtteranceCut

PendingUtterance: TypeAlias = UtteranceCut[Profile]
