"""What became of a session's speech, between its ledger here and the sums the store keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.messages.shared import Coverage

if TYPE_CHECKING:
    from lingua_scheduler.session.ledger import CoverageLedger, Fate
    from lingua_scheduler.state.records import Resumed, Speech

# The order in which the store keeps the sums, best end first.
FATES: tuple[Fate, ...] = ("delivered", "silent", "skipped", "failed")


def take_up(ledger: CoverageLedger, former: Resumed, position_ms: int) -> int:
    """Go on with a former owner's account, at this place of the stream; returns its silence."""
    speech = former.speech
    silence_ms = speech.silence_at(position_ms)
    ledger.go_on(
        {
            "delivered": speech.delivered,
            "silent": speech.silent + silence_ms,
            "skipped": speech.skipped + speech.passed,
            "failed": speech.failed,
        }
    )
    for index, duration_ms, lanes, best, ended in former.unsettled:
        ledger.go_on_with(index, duration_ms, lanes, ended, FATES[best - 1])
    return silence_ms


def ended_of(ledger: CoverageLedger, silence_ms: int, passed_ms: int) -> str:
    """Return the sums as the store keeps them: without what never was a job."""
    ended = ledger.ended
    ended["silent"] -= silence_ms
    ended["skipped"] -= passed_ms
    return " ".join(str(ended[fate]) for fate in FATES)


def coverage_of(speech: Speech, position_ms: int) -> Coverage:
    """Return the account of a session that ended, whose client stood at this place."""
    silent = speech.silent + speech.silence_at(max(speech.heard_ms, position_ms))
    skipped = speech.skipped + speech.passed
    return Coverage(
        admitted_ms=speech.delivered + silent + skipped + speech.failed,
        delivered_ms=speech.delivered,
        silent_ms=silent,
        failed_ms=speech.failed,
        skipped_ms=skipped,
    )
