"""`lingua dlq ls | show | replay | drop`: letters between instances that could not be applied.

A letter is a nudge, never the only copy of anything: dropping one costs at most time. Audio and
texts are never shown, only their size.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_scheduler.care.letters import Desk, shown_body
from lingua_scheduler.cli.ask import add_limit, age_text, count_text, short
from lingua_scheduler.cli.explain import running_store
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.config import load_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.between.deadletters import DeadLetter

    Act = Callable[[Desk, argparse.Namespace], Awaitable[int]]

SHOWN = (
    "id", "instance", "kind", "correlation", "attempt", "sender", "deliveries", "reason", "age",
)  # fmt: skip
HEADERS = ("id", "kind", "about", "try", "from", "tried", "age", "reason")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua dlq` and its acts."""
    parser = subparsers.add_parser("dlq", help="list, show, replay or drop dead letters")
    acts = parser.add_subparsers(title="acts", required=True, metavar="ACT")
    texts = {
        "ls": ("list them, newest first", list_letters),
        "show": ("show one, without what was said", show_letter),
        "replay": ("send one again", replay_letter),
        "drop": ("delete one, or all", drop_letters),
    }
    for name, (text, act) in texts.items():
        sub = acts.add_parser(name, help=text)
        sub.add_argument("--instance", default="", metavar="I", help="only of this instance")
        sub.add_argument("--json", action="store_true", help="print JSON rather than text")
        sub.set_defaults(run=run_dlq, act=act, parser=sub)
        if name == "ls":
            add_limit(sub)
        elif name == "drop":
            sub.add_argument("id", metavar="ID", nargs="?", help="the letter")
            sub.add_argument("--all", action="store_true", help="all of them; needs --yes")
            sub.add_argument("--yes", action="store_true", help="really")
        else:
            sub.add_argument("id", metavar="ID", help="the letter")
        if name == "replay":
            sub.add_argument(
                "--to", default="", metavar="INSTANCE",
                help="to whom (default: the same instance if it lives, else one that does)",
            )  # fmt: skip


def run_dlq(args: argparse.Namespace) -> int:
    """Do one act on the store that the settings name."""
    if args.act is drop_letters:
        check_drop(args)
    return asyncio.run(act_on_store(args))


def check_drop(args: argparse.Namespace) -> None:
    """Refuse to delete what was not clearly said."""
    if bool(args.id) == args.all:
        args.parser.error("say an ID, or --all --yes")
    if args.all and not args.yes:
        args.parser.error("--all deletes every dead letter; say --yes if that is meant")


async def act_on_store(args: argparse.Namespace) -> int:
    """Connect and act."""
    settings = load_settings(args.config, os.environ)
    act: Act = args.act
    async with running_store(settings) as connection:
        return await act(Desk(connection, settings), args)


async def list_letters(desk: Desk, args: argparse.Namespace) -> int:
    """Print the dead letters."""
    letters = await desk.list(args.instance, args.limit)
    if args.json:
        print(msgspec.json.encode([about(letter) for letter in letters]).decode())
        return 0
    total = sum((await desk.counts(args.instance)).values())
    print(list_page(letters, total))
    return 0


async def show_letter(desk: Desk, args: argparse.Namespace) -> int:
    """Print one letter."""
    letter = await desk.find(args.id, args.instance)
    fields: dict[str, Any] = {**about(letter), "body": shown_body(letter.body)}
    if args.json:
        print(msgspec.json.encode(fields).decode())
        return 0
    fields["age"] = age_text(fields["age_ms"])
    rows = [(name, text(fields[name])) for name in SHOWN]
    rows += [(f"body.{name}", text(value)) for name, value in fields["body"].items()]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:{width}}  {value}" for name, value in rows))
    return 0


async def replay_letter(desk: Desk, args: argparse.Namespace) -> int:
    """Send one letter again."""
    letter = await desk.find(args.id, args.instance)
    target = await desk.replay(letter, args.to)
    if args.json:
        print(msgspec.json.encode({"id": letter.id, "to": target}).decode())
    else:
        print(f"{letter.id} ({letter.kind} of {letter.correlation or 'nothing'}) went to {target}")
    return 0


async def drop_letters(desk: Desk, args: argparse.Namespace) -> int:
    """Delete one letter, or all."""
    if args.all:
        dropped = await desk.drop_all(args.instance)
    else:
        dropped = int(await desk.drop(await desk.find(args.id, args.instance)))
    if args.json:
        print(msgspec.json.encode({"dropped": dropped}).decode())
    else:
        print(f"{count_text(dropped, 'dead letter')} dropped")
    return 0


def about(letter: DeadLetter) -> dict[str, Any]:
    """Return what is known of a letter without its content."""
    return {
        "id": letter.id, "instance": letter.instance, "kind": letter.kind,
        "correlation": letter.correlation, "attempt": letter.attempt, "sender": letter.sender,
        "deliveries": letter.deliveries, "reason": letter.reason, "age_ms": age_ms(letter),
        "sent_at_ms": letter.sent_at_ms, "moved_at_ms": letter.moved_at_ms,
        "source_id": letter.source_id, "body_bytes": len(letter.body),
    }  # fmt: skip


def list_page(letters: Sequence[DeadLetter], total: int) -> str:
    """Return a table for each instance, newest first."""
    if not letters:
        return "no dead letters"
    more = f" (the newest {len(letters)} are shown: --limit)" if total > len(letters) else ""
    parts = [f"{count_text(total, 'dead letter')}{more}"]
    for instance in dict.fromkeys(letter.instance for letter in letters):
        own = [letter for letter in letters if letter.instance == instance]
        parts.append(f"to {instance}\n{render_table(HEADERS, [row(letter) for letter in own])}")
    return "\n\n".join(parts)


def row(letter: DeadLetter) -> tuple[str | int | None, ...]:
    """Return the cells of one letter."""
    return (
        letter.id, letter.kind or "-", short(letter.correlation or "-"), letter.attempt,
        short(letter.sender or "-"), letter.deliveries, age_text(age_ms(letter)), letter.reason,
    )  # fmt: skip


def age_ms(letter: DeadLetter) -> int:
    """Return since when it is dead, by this machine's clock; the store's may differ a little."""
    return max(0, time.time_ns() // 1_000_000 - letter.moved_at_ms)


def text(value: object) -> str:
    """Return a value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
