"""`lingua doctor`: finds damage in the store, and with `--repair` repairs it.

Exit codes: 0 no findings, or all are repaired; 1 findings are left; 2 the store could not be read.
Two scans a moment apart must agree on a finding, so that work in progress is not reported.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.commands.explain import running_store
from lingua_scheduler.commands.scheduler_client import age_text, count_text
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.maintenance.doctor import examine
from lingua_scheduler.maintenance.finding import KINDS
from lingua_scheduler.maintenance.store_reader import NotAllowed

if TYPE_CHECKING:
    import argparse

    from lingua_scheduler.config import Settings
    from lingua_scheduler.maintenance.doctor import Diagnosis, ReportedFinding

NOT_READ = 2
# The most findings of one kind that are shown; `--json` has all.
SHOWN_MAX = 10
WIDTH = 80


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua doctor`."""
    parser = subparsers.add_parser("doctor", help="find damage in the store, and repair it")
    parser.add_argument("--repair", action="store_true", help="repair what can be repaired")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; the exit code tells whether any are left."""
    settings = load_settings(args.config, os.environ)
    try:
        diagnosis = asyncio.run(diagnose(settings, repairs=args.repair))
    except (StoreUnavailable, StoreRejected, NotAllowed) as error:
        print(f"lingua: {error}", file=sys.stderr)
        return NOT_READ
    print(msgspec.json.encode(diagnosis).decode() if args.json else page(diagnosis))
    return 0 if diagnosis.is_well else 1


async def diagnose(settings: Settings, *, repairs: bool) -> Diagnosis:
    """Examine the store of the settings."""
    async with running_store(settings) as connection:
        return await examine(connection, settings, repairs=repairs)


def page(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as text: a summary, the findings of each kind, the interpreter."""
    kinds = dict.fromkeys(finding.kind for finding in diagnosis.findings)
    sections = (
        section([each for each in diagnosis.findings if each.kind == kind]) for kind in kinds
    )
    head = textwrap.fill(sentence(diagnosis), WIDTH, break_on_hyphens=False)
    build = textwrap.fill(f"Python: {diagnosis.interpreter}", WIDTH, break_on_hyphens=False)
    return "\n\n".join((head, *sections, *libraries_note(diagnosis), build))


def libraries_note(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return what an operator may do with libraries of other releases, if there are any."""
    names = diagnosis.other_libraries
    if not names:
        return ()
    said = (
        "libraries of functions of other releases are in the store; when no instance of those "
        "runs, delete them on every master:"
    )
    head = textwrap.fill(said, WIDTH, break_on_hyphens=False)
    return ("\n".join((head, *(f"  FUNCTION DELETE {name}" for name in names))),)


def sentence(diagnosis: Diagnosis) -> str:
    """Return the summary."""
    scanned = (
        f"{count_text(diagnosis.keys, 'key')}, "
        f"{count_text(diagnosis.instances_alive, 'instance')} alive"
    )
    total = len(diagnosis.findings)
    if not total:
        return f"nothing is wrong ({scanned})"
    left = sum(finding.state != "repaired" for finding in diagnosis.findings)
    head = f"{count_text(total, 'finding')} ({scanned})"
    if not diagnosis.repairs:
        return f"{head}; nothing was changed, --repair does what is described below"
    return f"{head}; {total - left} repaired, {left} left"


def section(findings: list[ReportedFinding]) -> str:
    """Return the findings of one kind."""
    kind = findings[0].kind
    lines = [f"{kind}: {KINDS[kind].what}"]
    if findings[0].state == "found":
        remedy = findings[0].remedy
        lines.append(f"  would: {remedy}" if remedy else "  an operator must decide; not repaired")
    for finding in findings[:SHOWN_MAX]:
        lines.append(line_of(finding))
        if finding.state != "found":
            lines.append(f"      {finding.state}: {finding.remedy}")
    if len(findings) > SHOWN_MAX:
        lines.append(f"  and {len(findings) - SHOWN_MAX} more (--json has all)")
    wrapper = textwrap.TextWrapper(
        WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(line) for line in lines)


def line_of(finding: ReportedFinding) -> str:
    """Return one finding as a line."""
    since = f" for {age_text(finding.age_ms)}" if finding.age_ms is not None else ""
    about = f"  {finding.about}" if finding.about else ""
    where = f"  {finding.where}" if finding.where else ""
    return f"{where}  {finding.name}{about}{since}"
