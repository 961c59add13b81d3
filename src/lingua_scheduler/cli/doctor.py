"""`lingua doctor`: finds what should not be in the store, and with `--repair` puts it right.

Exit codes: 0 nothing was found or all of it is repaired, 1 findings are left, 2 the store could not
be looked at. A finding was seen in two looks a moment apart, so work in progress is none.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.care.doctor import examine
from lingua_scheduler.care.finding import KINDS
from lingua_scheduler.care.reading import NotAllowed
from lingua_scheduler.cli.ask import age_text, count_text
from lingua_scheduler.cli.explain import running_store
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import StoreRejected, StoreUnavailable

if TYPE_CHECKING:
    import argparse

    from lingua_scheduler.care.doctor import Diagnosis, Verdict
    from lingua_scheduler.config import Settings

NOT_LOOKED_AT = 2
# Of one kind; `--json` has all.
SHOWN_MAX = 10
WIDTH = 80


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua doctor`."""
    parser = subparsers.add_parser(
        "doctor", help="find what should not be in the store, and repair it"
    )
    parser.add_argument("--repair", action="store_true", help="put right what can be put right")
    parser.add_argument("--json", action="store_true", help="print JSON rather than text")
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Print what was found; the exit code says whether anything is left."""
    settings = load_settings(args.config, os.environ)
    try:
        diagnosis = asyncio.run(visit(settings, repairs=args.repair))
    except (StoreUnavailable, StoreRejected, NotAllowed) as error:
        print(f"lingua: {error}", file=sys.stderr)
        return NOT_LOOKED_AT
    print(msgspec.json.encode(diagnosis).decode() if args.json else page(diagnosis))
    return 0 if diagnosis.is_well else 1


async def visit(settings: Settings, *, repairs: bool) -> Diagnosis:
    """Look at the store that the settings name."""
    async with running_store(settings) as connection:
        return await examine(connection, settings, repairs=repairs)


def page(diagnosis: Diagnosis) -> str:
    """Return what a person reads: a sentence, then the findings of each kind."""
    kinds = dict.fromkeys(verdict.kind for verdict in diagnosis.findings)
    sections = (
        section([each for each in diagnosis.findings if each.kind == kind]) for kind in kinds
    )
    head = textwrap.fill(sentence(diagnosis), WIDTH, break_on_hyphens=False)
    return "\n\n".join((head, *sections))


def sentence(diagnosis: Diagnosis) -> str:
    """Return the whole in one sentence."""
    looked = (
        f"{count_text(diagnosis.keys, 'key')}, "
        f"{count_text(diagnosis.instances_alive, 'instance')} alive"
    )
    total = len(diagnosis.findings)
    if not total:
        return f"nothing is wrong ({looked})"
    left = sum(verdict.state != "repaired" for verdict in diagnosis.findings)
    head = f"{count_text(total, 'finding')} ({looked})"
    if not diagnosis.repairs:
        return f"{head}; nothing was changed, --repair does what is said below"
    return f"{head}; {total - left} repaired, {left} left"


def section(verdicts: list[Verdict]) -> str:
    """Return the findings of one kind."""
    kind = verdicts[0].kind
    lines = [f"{kind}: {KINDS[kind].what}"]
    if verdicts[0].state == "found":
        remedy = verdicts[0].remedy
        lines.append(f"  would: {remedy}" if remedy else "  for a person to judge; not repaired")
    for verdict in verdicts[:SHOWN_MAX]:
        lines.append(line_of(verdict))
        if verdict.state != "found":
            lines.append(f"      {verdict.state}: {verdict.remedy}")
    if len(verdicts) > SHOWN_MAX:
        lines.append(f"  and {len(verdicts) - SHOWN_MAX} more (--json has all)")
    return "\n".join(
        textwrap.fill(line, WIDTH, subsequent_indent="      ", break_long_words=False,
                      break_on_hyphens=False)
        for line in lines
    )  # fmt: skip


def line_of(verdict: Verdict) -> str:
    """Return one finding in a line."""
    since = f" for {age_text(verdict.age_ms)}" if verdict.age_ms is not None else ""
    about = f"  {verdict.about}" if verdict.about else ""
    where = f"  {verdict.where}" if verdict.where else ""
    return f"{where}  {verdict.name}{about}{since}"
