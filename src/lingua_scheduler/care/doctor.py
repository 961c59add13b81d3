"""Two looks, what both of them saw, and what was done about it.

On a system that serves, one look meets work in progress: an outcome between two reads, a slot
between its reservation and its job. What is still so a moment later is damage. After a repair a
further look says whether it helped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.care.finding import KINDS
from lingua_scheduler.care.look import look
from lingua_scheduler.care.repair import Done, Repairs

if TYPE_CHECKING:
    from lingua_scheduler.care.finding import Finding
    from lingua_scheduler.care.look import Seen
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.script import Connection

# Between two looks. Longer than any step under way, and than a beat after an outage of the store.
PAUSE_S = 2.5
# How often a repair that was handed to an instance is looked after.
VERIFY_LOOKS = 4


class Verdict(msgspec.Struct, frozen=True):
    """One finding and what became of it."""

    kind: str
    where: str
    name: str
    what: str
    about: str
    # `found` if nothing was to be repaired; else `repaired` or `left`.
    state: str
    # What was done, or would be; '' if that is for a person to judge.
    remedy: str
    # For how long it has been so, if known.
    age_ms: int | None


class Diagnosis(msgspec.Struct, frozen=True):
    """All of it."""

    findings: tuple[Verdict, ...]
    keys: int
    instances_alive: int
    repairs: bool

    @property
    def is_well(self) -> bool:
        """Tell whether nothing was found, or all that was is repaired."""
        return all(verdict.state == "repaired" for verdict in self.findings)


async def examine(
    connection: Connection,
    settings: Settings,
    *,
    repairs: bool = False,
    pause_s: float | None = None,
) -> Diagnosis:
    """Find what should not be there and, if told so, repair it."""
    pause_s = PAUSE_S if pause_s is None else pause_s
    first = await look(connection, settings)
    seen, found = first, []
    if first.findings:
        await asyncio.sleep(pause_s)
        seen = await look(connection, settings)
        found = [seen.findings[name] for name in first.findings if name in seen.findings]
    done: list[Done | None] = [None] * len(found)
    if repairs and found:
        done = await _repair(connection, settings, seen, found, pause_s)
    verdicts = (verdict_of(finding, each) for finding, each in zip(found, done, strict=True))
    return Diagnosis(tuple(verdicts), seen.ground.reader.keys_seen, len(seen.ground.alive), repairs)


async def _repair(
    connection: Connection, settings: Settings, seen: Seen, found: list[Finding], pause_s: float
) -> list[Done | None]:
    repairs = Repairs(seen.ground, settings.sessions.lease_ms)
    done = [await repairs.repair(finding) for finding in found]
    still: set[tuple[str, str, str]] = set()
    for turn in range(VERIFY_LOOKS):
        after = await look(connection, settings)
        still = {finding.identity for finding in found} & after.findings.keys()
        waits = any(each.state == "handed_over" for each in done)
        if not still or not waits or turn == VERIFY_LOOKS - 1:
            break
        await asyncio.sleep(pause_s)
    return [
        settled(each, is_there=finding.identity in still)
        for finding, each in zip(found, done, strict=True)
    ]


def settled(done: Done, *, is_there: bool) -> Done:
    """Return what a repair came to, by whether the finding is still there."""
    if not is_there:
        return Done("repaired", done.what)
    if done.state == "handed_over":
        return Done("left", f"{done.what} (not yet)")
    return done if done.state == "left" else Done("left", f"it is still so after: {done.what}")


def verdict_of(finding: Finding, done: Done | None) -> Verdict:
    """Return a finding as it is told."""
    kind = KINDS[finding.kind]
    return Verdict(
        finding.kind, finding.where, finding.name, kind.what, finding.about,
        done.state if done else "found", done.what if done else kind.remedy, finding.age_ms,
    )  # fmt: skip
