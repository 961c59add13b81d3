"""The screen of `lingua top`: a state of the console's stream as lines of text. Pure.

The most important comes first, so that a small window shows it: the verdict, the numbers of now,
the last hour, the nodes. What is left of the window is shared by the other lists.
"""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, NamedTuple

from lingua_cli.table import render_table
from lingua_scheduler.commands.scheduler_client import age_text, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lingua_cli.table import Cell
    from lingua_scheduler.edge.answers import NodeLanguages
    from lingua_scheduler.edge.console.documents import ConsoleNode, ConsoleState, RateRow

COLOURS = {"well": "32", "warn": "33", "bad": "31", "head": "1", "note": "2"}
MARKS = {"well": "✓", "warn": "!", "bad": "✗"}
BARS = " ▁▂▃▄▅▆▇█"
RECENT_MS = 70_000
WORKING = ("ready", "full", "busy")
LOST = ("failed", "expired", "missing")
# Nodes with trouble are shown first.
BY_TROUBLE = ("offline", "degraded", "busy", "drained", "draining", "registering")
BAR_CHARS = 10
PROBLEMS_MAX = 5
# The histograms of the service end here.
LONGEST_MS = 5000
COLUMNS_MIN = 40


class TopLine(NamedTuple):
    """One line, and its tone."""

    text: str
    tone: str = ""


def screen(state: ConsoleState, columns: int, rows: int, *, has_colours: bool) -> list[str]:
    """Return the lines that fit into a window."""
    width = max(COLUMNS_MIN, columns)
    lines = [*_head(state, width), *_numbers(state, width), *_hour(state, width)]
    for section in _sections(state, width):
        room = rows - len(lines)
        # The heading of a list without a row of it says nothing.
        if room < len(section[:3]):
            break
        lines += _shortened(section, room)
    return [_painted(line, width, has_colours=has_colours) for line in lines[:rows]]


def _painted(line: TopLine, width: int, *, has_colours: bool) -> str:
    # Names come from nodes and clients: nothing in them may steer the terminal.
    text = "".join(char if char.isprintable() else "?" for char in line.text).rstrip()
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    if not has_colours or line.tone not in COLOURS or not text:
        return text
    return f"\x1b[{COLOURS[line.tone]}m{text}\x1b[0m"


def _shortened(section: list[TopLine], room: int) -> list[TopLine]:
    if len(section) <= room:
        return section
    left = len(section) - room + 1
    return [*section[: room - 1], TopLine(f"… {left} more", "note")]


def _head(state: ConsoleState, width: int) -> list[TopLine]:
    service, verdict = state.service, state.verdict
    assert service
    assert verdict
    workers = f", {service.workers} workers" if service.workers > 1 else ""
    up = age_text(state.at_ms - service.started_at_ms)
    name = f"{service.service}  lingua {service.release}{workers}, up {up}"
    clock = time.strftime("%H:%M:%S", time.localtime(state.at_ms / 1000))
    lines = [TopLine(f"{name:{max(0, width - 9)}} {clock}", "head")]
    if not verdict.problems:
        return [*lines, TopLine(f"{MARKS[verdict.state]} {verdict.sentence}", verdict.state)]
    for problem in verdict.problems[:PROBLEMS_MAX]:
        names = f": {', '.join(problem.about)}" if len(problem.about) > 1 else ""
        text = f"{MARKS[problem.level]} {problem.text}{names}"
        wrapped = textwrap.wrap(text, width, subsequent_indent="  ", max_lines=2, placeholder=" …")
        lines += [TopLine(line, problem.level) for line in wrapped]
    more = len(verdict.problems) - PROBLEMS_MAX
    return [*lines, TopLine(f"  and {more} more", "note")] if more > 0 else lines


def _numbers(state: ConsoleState, width: int) -> list[TopLine]:
    assert state.nodes is not None
    nodes = [node for node in (state.nodes or {}).values() if node is not None]
    working = [node for node in nodes if node.health in WORKING]
    rows = recent_rows(state)
    seconds = max(1.0, sum(row.covers_ms for row in rows) / 1000)
    means = [(row.mean_ms, sum(row.outcomes.values()) or 1) for row in rows if row.mean_ms]
    total_ms, weight = sum(m * n for m, n in means), sum(n for _, n in means)
    p95 = max((row.p95_ms or 0 for row in rows), default=0)
    refused = sum(sum(row.refused.values()) for row in rows)
    lost = sum(row.outcomes.get(name, 0) for row in rows for name in LOST)
    known: list[tuple[str, object]] = [
        ("sessions", state.sessions.total if state.sessions else 0),
        ("rooms", state.rooms.total if state.rooms else 0),
        ("utterances", f"{sum(row.utterances for row in rows) / seconds:.1f}/s"),
        ("time to result", duration_text(total_ms / weight) if weight else "-"),
        ("95 %", quantile_text(p95)),
        ("nodes", f"{len(working)}/{state.nodes_total}"),
        ("slots", f"{sum(taken(n) for n in working)}/{sum(n.slots for n in working)}"),
        ("waiting", sum(queue.waiting for queue in state.queues or ())),
        ("lost/min", lost),
        ("refused/min", refused),
    ]
    text = "   ".join(f"{name} {value}".replace(" ", "~") for name, value in known)
    return [
        TopLine(""),
        *(TopLine(line.replace("~", " ")) for line in textwrap.wrap(text, width)),
        TopLine(""),
    ]


def _hour(state: ConsoleState, width: int) -> list[TopLine]:
    """Return the last hour as three lines of bars."""
    rows = state.rates.rows if state.rates else ()
    bucket_ms = state.rates.bucket_ms if state.rates else 1
    label = 22
    number = max(10, min(120, width - label - 1))
    wanted: tuple[tuple[str, Callable[[RateRow], float], str], ...] = (
        ("result, ms", lambda row: row.mean_ms or 0, "max"),
        ("utterances/s", lambda row: row.utterances * 1000 / bucket_ms, "mean"),
        ("refused/min", lambda row: sum(row.refused.values()) * 60_000 / bucket_ms, "mean"),
    )
    lines = []
    for name, value, how in wanted:
        columns = in_columns(rows, state.at_ms, number, value, how)
        top = max(columns, default=0)
        lines.append(TopLine(f"{name:13}{top:>8.{0 if top >= 10 else 1}f} {bars(columns)}"))
    return lines


def in_columns(
    rows: Iterable[RateRow],
    now_ms: int,
    number: int,
    value: Callable[[RateRow], float],
    how: str,
) -> list[float]:
    """Return the last hour in so many numbers: the highest or the mean of each span of time."""
    span_ms = 3_600_000 / number
    found: list[list[float]] = [[] for _ in range(number)]
    for row in rows:
        index = number - 1 - int((now_ms - row.at_ms) // span_ms)
        if 0 <= index < number:
            found[index].append(value(row))
    if how == "max":
        return [max(some, default=0) for some in found]
    return [sum(some) / len(some) if some else 0 for some in found]


def bars(values: Sequence[float]) -> str:
    """Return numbers as bars of eight heights; what is not 0 is seen."""
    top = max(values, default=0)
    if not top:
        return ""
    return "".join(BARS[max(1, round(value / top * 8)) if value else 0] for value in values)


def _sections(state: ConsoleState, width: int) -> Iterable[list[TopLine]]:
    yield _nodes(state, width)
    waiting = [queue for queue in state.queues or () if queue.waiting]
    yield _table(
        ("queue", "waiting", "what waits"),
        [
            (q.cell, q.waiting, ", ".join(f"{one.directions} {one.jobs}" for one in q.demands))
            for q in waiting
        ],
    )
    yield _table(
        ("instance", "state", "nodes", "inbox", "dead letters", "up", "where"),
        [
            (
                one.id,
                one.state,
                one.nodes,
                one.inbox,
                one.dead_letters,
                age_text(state.at_ms - one.started_at_ms) if one.started_at_ms else "-",
                f"{one.host} {one.pid}" if one.host else "-",
            )
            for one in state.instances or ()
        ],
    )
    yield _table(
        ("dead letter", "to", "kind", "reason", "age"),
        [
            (one.id, one.instance, one.kind, one.reason, age_text(state.at_ms - one.moved_at_ms))
            for one in (state.dead_letters.newest if state.dead_letters else ())
        ],
    )
    yield _table(
        ("room", "members", "languages", "last speech"),
        [
            (r.code, r.members, " ".join(r.languages), age_text(state.at_ms - r.spoke_at_ms))
            for r in (state.rooms.newest if state.rooms else ())
        ],
    )
    yield _table(
        ("session", "languages", "room", "open for", "waiting"),
        [
            (
                short(one.id),
                f"{one.source} → {' '.join(one.targets)}",
                one.room or "-",
                age_text(state.at_ms - one.opened_at_ms),
                one.backlog,
            )
            for one in (state.sessions.newest if state.sessions else ())
        ],
    )


def _nodes(state: ConsoleState, width: int) -> list[TopLine]:
    nodes = [node for node in (state.nodes or {}).values() if node is not None]
    nodes.sort(key=lambda node: (_trouble(node), node.id))
    pools = {(pool.cell, pool.id): pool for pool in state.pools or ()}
    is_wide = width >= 110
    heads = ["node", "health", "slots", "", "streams", "languages"]
    if is_wide:
        heads += ["services", "instance", "machine"]
    rows = []
    for node in nodes:
        pool = pools.get((node.cell, node.pool))
        row: list[Cell] = [
            node.id,
            f"{node.health}{_why(node, state.at_ms)}",
            slot_bar(taken(node), node.slots),
            f"{taken(node)}/{node.slots}",
            f"{node.streams_open}/{node.streams}" if node.streams else "-",
            languages_text(pool.languages) if pool else "?",
        ]
        if is_wide:
            services = " ".join(pool.services) if pool else ""
            row += [services, node.instance, f"{node.platform} {node.version}"]
        rows.append(row)
    if not rows:
        return [TopLine(""), TopLine("no node is registered: start one with `lingua node`", "note")]
    lines = _table(heads, rows)
    tones = ["", "", *(_tone(node) for node in nodes)]
    return [TopLine(line.text, line.tone or tone) for line, tone in zip(lines, tones, strict=True)]


def _table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[TopLine]:
    """Return a blank line, a heading and the rows; nothing without rows."""
    if not rows:
        return []
    head, *rest = render_table(headers, rows).split("\n")
    return [TopLine(""), TopLine(head, "note"), *map(TopLine, rest)]


def recent_rows(state: ConsoleState) -> list[RateRow]:
    """Return the rows of the last minute."""
    rows = state.rates.rows if state.rates else ()
    return [row for row in rows if row.at_ms > state.at_ms - RECENT_MS]


def taken(node: ConsoleNode) -> int:
    """Return how many of its slots are in use."""
    return node.leased + node.extra


def slot_bar(used: int, slots: int) -> str:
    """Return the share of slots in use as a bar."""
    filled = min(BAR_CHARS, round(BAR_CHARS * used / slots)) if slots else 0
    return "█" * filled + "░" * (BAR_CHARS - filled)


def quantile_text(duration_ms: float) -> str:
    """Return a quantile, which is not known beyond the last bound of the histograms."""
    if not duration_ms:
        return "-"
    is_over = duration_ms >= LONGEST_MS
    return f"over {duration_text(LONGEST_MS)}" if is_over else duration_text(duration_ms)


def duration_text(duration_ms: float) -> str:
    """Return a duration in ms, or in seconds if it is long."""
    return f"{duration_ms / 1000:.3g} s" if duration_ms >= LONGEST_MS else f"{duration_ms:.0f} ms"


def languages_text(known: NodeLanguages, most: int = 4) -> str:
    """Return what a pool translates, in few words."""

    def few(codes: Sequence[str] | None) -> str:
        if codes is None:
            return "any"
        more = len(codes) - most
        return " ".join(codes[:most]) + (f" +{more}" if more > 0 else "")

    if known.pairs is not None:
        return few(known.pairs)
    return f"{few(known.sources)} → {few(known.targets)}"


def _trouble(node: ConsoleNode) -> int:
    return BY_TROUBLE.index(node.health) if node.health in BY_TROUBLE else len(BY_TROUBLE)


def _tone(node: ConsoleNode) -> str:
    if node.health == "offline":
        return "bad"
    return "" if node.health == "ready" else "warn"


def _why(node: ConsoleNode, now_ms: int) -> str:
    if node.health == "offline":
        return f" {age_text(now_ms - node.beat_at_ms)}"
    return "".join(f" {over.resource} {over.percent:.0f} %" for over in node.over_by)
