"""`lingua dlq ls | show | replay | drop`: messages between instances that could not be applied.

A message is a notification, never the only copy of data: deleting one costs at most time. Audio and
texts are never shown, only their size.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.commands.explain import running_store
from lingua_scheduler.commands.scheduler_client import add_limit, age_text, count_text, short
from lingua_scheduler.config import load_settings
from lingua_scheduler.maintenance.dead_letter_admin import DeadLetterAdmin, shown_body

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.peers.deadletters import DeadLetter

    Action = Callable[[DeadLetterAdmin, argparse.Namespace], Awaitable[int]]

SHOWN = (
    "id",
    "instance",
    "kind",
    "correlation",
    "attempt",
    "sender",
    "deliveries",
    "reason",
    "age",
)
HEADERS = ("id", "kind", "about", "try", "from", "tried", "age", "reason")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua dlq` and its actions."""
    parser = subparsers.add_parser("dlq", help="list, show, replay or drop dead letters")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    texts = {
        "ls": ("list them, newest first", list_letters),
        "show": ("show one, without speech or text", show_letter),
        "replay": ("send one again", replay_letter),
        "drop": ("delete one, or all", drop_letters),
    }
    for name, (text, action) in texts.items():
        sub = actions.add_parser(name, help=text)
        sub.add_argument("--instance", default="", metavar="I", help="only of this instance")
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        sub.set_defaults(run=run_dlq, action=action, parser=sub)
        if name == "ls":
            add_limit(sub)
        elif name == "drop":
            sub.add_argument("id", metavar="ID", nargs="?", help="id of the dead letter")
            sub.add_argument("--all", action="store_true", help="delete all; needs --yes")
            sub.add_argument("--yes", action="store_true", help="confirm --all")
        else:
            sub.add_argument("id", metavar="ID", help="id of the dead letter")
        if name == "replay":
            sub.add_argument(
                "--to",
                default="",
                metavar="INSTANCE",
                help="the receiver (default: the same instance if it is alive, else another)",
            )


def run_dlq(args: argparse.Namespace) -> int:
    """Run one action on the store of the settings."""
    if args.action is drop_letters:
        check_drop(args)
    return asyncio.run(run_on_store(args))


def check_drop(args: argparse.Namespace) -> None:
    """Refuse an ambiguous request to delete."""
    if bool(args.id) == args.all:
        args.parser.error("give an ID, or --all --yes")
    if args.all and not args.yes:
        args.parser.error("--all deletes every dead letter; confirm with --yes")


async def run_on_store(args: argparse.Namespace) -> int:
    """Connect to the store and run the action."""
    settings = load_settings(args.config, os.environ)
    action: Action = args.action
    async with running_store(settings) as connection:
        return await action(DeadLetterAdmin(connection, settings), args)


async def list_letters(admin: DeadLetterAdmin, args: argparse.Namespace) -> int:
    """Print the dead letters."""
    letters = await admin.list(args.instance, args.limit)
    if args.json:
        print(msgspec.json.encode([about(letter) for letter in letters]).decode())
        return 0
    total = sum((await admin.counts(args.instance)).values())
    print(list_page(letters, total))
    return 0


async def show_letter(admin: DeadLetterAdmin, args: argparse.Namespace) -> int:
    """Print one dead letter."""
    letter = await admin.find(args.id, args.instance)
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


async def replay_letter(admin: DeadLetterAdmin, args: argparse.Namespace) -> int:
    """Send one dead letter again."""
    letter = await admin.find(args.id, args.instance)
    target = await admin.replay(letter, args.to)
    if args.json:
        print(msgspec.json.encode({"id": letter.id, "to": target}).decode())
    else:
        print(f"{letter.id} ({letter.kind} of {letter.correlation or 'nothing'}) went to {target}")
    return 0


async def drop_letters(admin: DeadLetterAdmin, args: argparse.Namespace) -> int:
    """Delete one dead letter, or all."""
    if args.all:
        dropped = await admin.drop_all(args.instance)
    else:
        dropped = int(await admin.drop(await admin.find(args.id, args.instance)))
    if args.json:
        print(msgspec.json.encode({"dropped": dropped}).decode())
    else:
        print(f"{count_text(dropped, 'dead letter')} dropped")
    return 0


def about(letter: DeadLetter) -> dict[str, Any]:
    """Return the fields of a dead letter, without its body."""
    return {
        "id": letter.id,
        "instance": letter.instance,
        "kind": letter.kind,
        "correlation": letter.correlation,
        "attempt": letter.attempt,
        "sender": letter.sender,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "age_ms": age_ms(letter),
        "sent_at_ms": letter.sent_at_ms,
        "moved_at_ms": letter.moved_at_ms,
        "source_id": letter.source_id,
        "body_bytes": len(letter.body),
    }


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
    """Return the cells of one dead letter."""
    return (
        letter.id,
        letter.kind or "-",
        short(letter.correlation or "-"),
        letter.attempt,
        short(letter.sender or "-"),
        letter.deliveries,
        age_text(age_ms(letter)),
        letter.reason,
    )


def age_ms(letter: DeadLetter) -> int:
    """Return the age of a dead letter by this machine's clock; the store's may differ."""
    return max(0, time.time_ns() // 1_000_000 - letter.moved_at_ms)


def text(value: object) -> str:
    """Return a value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
