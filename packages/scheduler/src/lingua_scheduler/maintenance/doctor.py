"""Diagnosis of a store: two scans, the findings of both, and their repair.

In a running system, one scan also sees work in progress: an outcome between two reads, a slot
between its reservation and its job. A state that is still there a moment later is damage. After a
repair, another scan tells whether it helped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_cli.interpreter import this_interpreter
from lingua_scheduler.maintenance.finding import KINDS
from lingua_scheduler.maintenance.libraries import other_libraries
from lingua_scheduler.maintenance.repair import RepairResult, Repairs
from lingua_scheduler.maintenance.scan import scan

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.maintenance.finding import Finding
    from lingua_scheduler.maintenance.scan import ScanResult
    from lingua_scheduler.state.connection import Connection

# Between two scans. Longer than any step in progress, and than the time from the end of an outage
# of the store to the next heartbeat.
PAUSE_S = 2.5
# How many scans wait for a repair that was handed over to an instance.
VERIFY_SCANS = 4


class ReportedFinding(msgspec.Struct, frozen=True):
    """One finding and the result of its repair."""

    kind: str
    where: str
    name: str
    what: str
    about: str
    # `found` if no repair was requested; else `repaired` or `left`.
    state: str
    # What was done, or would be done; '' if an operator must decide.
    remedy: str
    # How long it has been so, if known.
    age_ms: int | None


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings."""

    findings: tuple[ReportedFinding, ...]
    keys: int
    instances_alive: int
    repairs: bool
    # How the interpreter of this command was built: the same installation runs the instances here.
    interpreter: str
    # Libraries of functions of other releases: no damage, and nothing that a repair removes.
    other_libraries: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Tell whether there are no findings, or all of them are repaired."""
        return all(finding.state == "repaired" for finding in self.findings)


async def examine(
    connection: Connection,
    settings: Settings,
    *,
    repairs: bool = False,
    pause_s: float | None = None,
) -> Diagnosis:
    """Find damage and, with `repairs`, repair it."""
    pause_s = PAUSE_S if pause_s is None else pause_s
    first = await scan(connection, settings)
    seen, found = first, []
    if first.findings:
        await asyncio.sleep(pause_s)
        seen = await scan(connection, settings)
        found = [seen.findings[name] for name in first.findings if name in seen.findings]
    done: list[RepairResult | None] = [None] * len(found)
    if repairs and found:
        done = await _repair(connection, settings, seen, found, pause_s)
    reports = (report_of(finding, each) for finding, each in zip(found, done, strict=True))
    context = seen.context
    return Diagnosis(
        findings=tuple(reports),
        keys=context.reader.keys_seen,
        instances_alive=len(context.alive),
        repairs=repairs,
        interpreter=f"{this_interpreter()}",
        other_libraries=await other_libraries(connection),
    )


async def _repair(
    connection: Connection,
    settings: Settings,
    seen: ScanResult,
    found: list[Finding],
    pause_s: float,
) -> list[RepairResult | None]:
    repairs = Repairs(seen.context, settings.sessions.lease_ms)
    done = [await repairs.repair(finding) for finding in found]
    still: set[tuple[str, str, str]] = set()
    for turn in range(VERIFY_SCANS):
        after = await scan(connection, settings)
        still = {finding.identity for finding in found} & after.findings.keys()
        waits = any(each.state == "handed_over" for each in done)
        if not still or not waits or turn == VERIFY_SCANS - 1:
            break
        await asyncio.sleep(pause_s)
    return [
        settled(each, is_there=finding.identity in still)
        for finding, each in zip(found, done, strict=True)
    ]


def settled(done: RepairResult, *, is_there: bool) -> RepairResult:
    """Return the final result of a repair: whether the finding is still there decides."""
    if not is_there:
        return RepairResult("repaired", done.what)
    if done.state == "handed_over":
        return RepairResult("left", f"{done.what} (not yet)")
    return (
        done if done.state == "left" else RepairResult("left", f"it is still so after: {done.what}")
    )


def report_of(finding: Finding, done: RepairResult | None) -> ReportedFinding:
    """Return a finding with the result of its repair."""
    kind = KINDS[finding.kind]
    return ReportedFinding(
        kind=finding.kind,
        where=finding.where,
        name=finding.name,
        what=kind.what,
        about=finding.about,
        state=done.state if done else "found",
        remedy=done.what if done else kind.remedy,
        age_ms=finding.age_ms,
    )
