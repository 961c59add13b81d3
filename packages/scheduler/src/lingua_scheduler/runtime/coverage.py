"""Converts a session's coverage between its ledger here and the sums in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_wire.shared import Coverage

if TYPE_CHECKING:
    from lingua_scheduler.session.ledger import CoverageLedger, Fate
    from lingua_scheduler.state.records import ResumedSession, Speech

# The order in which the store keeps the sums, the best fate first.
FATES: tuple[Fate, ...] = ("delivered", "silent", "skipped", "failed")


def restore_ledger(ledger: CoverageLedger, former: ResumedSession, position_ms: int) -> int:
    """Restore a former owner's ledger at this position in the stream; returns its silence."""
    speech = former.speech
    silence_ms = speech.silence_at(position_ms)
    ledger.restore(
        {
            "delivered": speech.delivered,
            "silent": speech.silent + silence_ms,
            "skipped": speech.skipped + speech.passed,
            "failed": speech.failed,
        }
    )
    for index, duration_ms, lanes, best, ended in former.unsettled:
        ledger.restore_open(index, duration_ms, lanes, ended, FATES[best - 1])
    return silence_ms


def ended_of(ledger: CoverageLedger, silence_ms: int, passed_ms: int) -> str:
    """Return the sums as the store keeps them: without speech that never had a job."""
    ended = ledger.ended
    ended["silent"] -= silence_ms
    ended["skipped"] -= passed_ms
    return " ".join(str(ended[fate]) for fate in FATES)


def coverage_of(speech: Speech, position_ms: int) -> Coverage:
    """Return the coverage of a session that ended when its client was at this position."""
    silent = speech.silent + speech.silence_at(max(speech.heard_ms, position_ms))
    skipped = speech.skipped + speech.passed
    return Coverage(
        admitted_ms=speech.delivered + silent + skipped + speech.failed,
        delivered_ms=speech.delivered,
        silent_ms=silent,
        failed_ms=speech.failed,
        skipped_ms=skipped,
    )
