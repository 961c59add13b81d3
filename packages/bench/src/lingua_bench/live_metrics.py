"""What the scheduler's own `/metrics` adds to `lingua bench live`: messages between instances."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from dataclasses import dataclass
from typing import Final

from lingua_bench.live_speaker import LoadFailed

SCRAPE_S: Final = 10.0
LETTERS: Final = "scheduler_letters_total"
OUTCOMES: Final = "scheduler_jobs_total"
# A message that is tried again is still one message.
TRIED_AGAIN: Final = 'result="retried"'
SAMPLE: Final = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


@dataclass(frozen=True, slots=True)
class PeerTraffic:
    """Messages between instances and outcomes, since the scheduler started."""

    letters: float
    outcomes: float

    def per_outcome_since(self, before: PeerTraffic) -> float:
        """Return the messages per outcome between two scrapes; 0 if nothing came out."""
        outcomes = self.outcomes - before.outcomes
        return (self.letters - before.letters) / outcomes if outcomes > 0 else 0.0


async def peer_traffic(metrics_url: str) -> PeerTraffic:
    """Read the counts from a running scheduler, all its workers together."""
    return traffic_in(await asyncio.to_thread(_scrape, metrics_url))


def traffic_in(text: str) -> PeerTraffic:
    """Return the counts in a page of metrics; a counter without samples is left out there."""
    counts = {LETTERS: 0.0, OUTCOMES: 0.0}
    for found in filter(None, map(SAMPLE.match, text.splitlines())):
        if found["name"] in counts and TRIED_AGAIN not in (found["labels"] or ""):
            counts[found["name"]] += float(found["value"])
    return PeerTraffic(letters=counts[LETTERS], outcomes=counts[OUTCOMES])


def _scrape(metrics_url: str) -> str:
    try:
        with urllib.request.urlopen(metrics_url, timeout=SCRAPE_S) as answer:  # noqa: S310 our own
            return bytes(answer.read()).decode()
    except OSError as error:
        raise LoadFailed(f"{metrics_url}: {error}") from error
