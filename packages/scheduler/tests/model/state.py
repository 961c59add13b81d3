"""The whole state of a cell, read from the server and from the twin, in one form for comparison."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from lingua_scheduler.jobs.placement import furthest_filter, rank_pools
from lingua_scheduler.jobs.requirement import Demand
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cell, family_of
from model.twin import TIES, CellTwin

READ = {
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "string": ("GET",),
}

State = dict[str, Any]

# The same few names are looked up after each of thousands of steps.
known_family = lru_cache(maxsize=10_000)(family_of)


async def read_keys(connection: Connection, cell: Cell, prefix: str) -> dict[str, Any]:
    """Every key of the cell by its name without the base, decoded; unknown keys are an error."""
    names = [key.decode() for key in await connection.command(cell.slot, "KEYS", cell.base + "*")]
    found: dict[str, Any] = {}
    replies = []
    for name in names:
        family = known_family(name, prefix)
        assert family is not None, f"not in the dictionary: {name}"
        verb, *rest = READ[family.kind]
        replies.append((name, family.kind, connection.command(cell.slot, verb, name, *rest)))
    for name, kind, reply in replies:
        found[name.removeprefix(cell.base)] = shape(kind, await reply)
    return found


def shape(kind: str, raw: list[bytes]) -> Any:
    if kind in ("list", "string"):
        return raw
    pairs = [(raw[i], raw[i + 1]) for i in range(0, len(raw), 2)]
    if kind == "zset":
        return {name.decode(): float(score) for name, score in pairs}
    return {name.decode(): value for name, value in pairs}


def family(keys: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        key.split(":", 1)[1]: value for key, value in keys.items() if key.startswith(f"{name}:")
    }


def real_state(keys: dict[str, Any]) -> State:
    leases, marks, pools = (family(keys, name) for name in ("leases", "marks", "pool"))
    streams = family(keys, "streams")
    return {
        "clock": keys["clock"].decode(),
        "due": keys.get("due", {}),
        "pending": keys.get("pending", {}),
        "waiting": keys.get("waiting", {}),
        "queues": family(keys, "queue"),
        "reserved": {m: n.decode() for m, n in keys.get("reserved", {}).items()},
        "nodes": {
            name: real_node(row, leases.get(name, {}), marks.get(name, {}))
            | {"streams": streams.pop(name, {})}
            for name, row in family(keys, "node").items()
        },
        "indexed": set(keys.get("nodes", {})),
        # Streams of no node.
        "lost_streams": streams,
        "streaming": family(keys, "streaming"),
        "heard_streams": {name: node.decode() for name, node in family(keys, "stream").items()},
        "pools": pools,
        "described": set(keys.get("pools", {})),
        "sessions": {
            name: real_session(row, keys.get(f"outbox:{name}", []))
            for name, row in family(keys, "session").items()
        },
        "jobs": {name: real_job(row) for name, row in family(keys, "job").items()},
        "audio": {name: set(row) - {"audio"} for name, row in family(keys, "audio").items()},
        "relays": {
            name: [line.decode() for line in rows] for name, rows in family(keys, "relay").items()
        },
        "heards": {name: set(row) - {"p", "t"} for name, row in family(keys, "heard").items()},
        "captions": {
            name: {
                key.removeprefix("from:"): tuple(map(int, place.split(b":")))
                for key, place in row.items()
                if key.startswith("from:")
            }
            for name, row in family(keys, "captions").items()
        },
    }


def real_node(row: dict[str, bytes], leases: dict[str, float], marks: dict[str, float]) -> State:
    text = {name: value.decode() for name, value in row.items() if name != "can"}
    return {
        **{name: text[name] for name in ("boot", "conn", "status", "pool", "instance")},
        **{name: text[name] == "1" for name in ("drain", "over", "acks")},
        "hold": text.get("hold") == "1",
        **{name: int(text[name]) for name in ("max", "extra", "silence_ms", "beat_at", "good")},
        "streams_max": real_streams_max(text),
        "bad": text["bad"],
        "orphans": [lease for lease in text["orphans"].split(",") if lease],
        "missing": {lease for lease in text["missing"].split(",") if lease},
        "leases": leases,
        "marks": marks,
    }


def real_streams_max(text: dict[str, str]) -> int:
    count, _, conn = text.get("streams", "0 ").partition(" ")
    return int(count) if conn == text["conn"] else 0


def real_session(row: dict[str, bytes], outbox: list[bytes]) -> State:
    text = {name: value.decode() for name, value in row.items()}
    numbers = {k.removeprefix("from:"): v for k, v in text.items() if k.startswith("from:")}
    lanes: dict[str, State] = {}
    for name in text.get("lanes", "").split():
        spans = re.findall(r"(\d+):(\d+),", text.get(f"skip:{name}", ""))
        entries = {
            int(key.rsplit(":", 1)[1]): real_entry(value)
            for key, value in text.items()
            if key.startswith(f"at:{name}:")
        }
        unwanted = [(int(a), int(b)) for a, b in spans]
        lanes[name] = {"next": int(text[f"next:{name}"]), "unwanted": unwanted, "entries": entries}
    return {
        "epoch": int(text["epoch"]),
        "born": int(text["born"]),
        **{name: text[name] for name in ("owner", "tenant")},
        **{name: text.get(name, "") for name in ("token", "about")},
        "fence": int(text["fence"]),
        "heard": int(text.get("heard", -1)),
        "heard_ms": int(text.get("heard_ms", 0)),
        "top": int(text.get("top", 0)),
        "speech": int(text.get("speech", 0)),
        "ended": [int(part) for part in text.get("ended", "0 0 0 0").split()],
        "partly": {
            int(name[3:]): real_partly(*value.split())
            for name, value in text.items()
            if name.startswith("of:")
        },
        "seq": int(text["seq"]),
        "trimmed": int(text["trimmed"]),
        "confirmed": text.get("confirmed", ""),
        "closed": "closed" in text,
        "said_count": int(text.get("said", 0)),
        "froms": {name: tuple(map(int, number.split(":"))) for name, number in numbers.items()},
        "lanes": lanes,
        "turns": {k.removeprefix("turn:"): v for k, v in text.items() if k.startswith("turn:")},
        "sticky": {k.removeprefix("pool:"): v for k, v in text.items() if k.startswith("pool:")},
        "outbox": [real_row(entry) for entry in outbox],
    }


def real_partly(ms: str, lanes: str, best: str, *names: str) -> tuple[int, int, int, list[str]]:
    return int(ms), int(lanes), int(best) - 1, list(names)


def real_row(entry: bytes) -> tuple[str, int, str, str, int, str]:
    kind, index, lane, job, attempt, reason = entry.split(b"\n")[0].decode().split(" ")
    return kind, int(index), lane, job, int(attempt), reason


def real_entry(value: str) -> tuple[str, int, tuple[str, str] | None]:
    put_ms, _, rest = value.lstrip("=").partition(" ")
    if not value.startswith("="):
        put_ms, tilde, left = put_ms.partition("~")
        return tilde + left if tilde else rest, int(put_ms), None
    kind, _, _, job, _, reason = real_row(rest.encode())
    return job, int(put_ms), (kind.lstrip("+"), reason)


def real_job(row: dict[str, bytes]) -> State:
    raw = ("spec", "body", "audio")
    text = {name: value.decode() for name, value in row.items() if name not in raw}
    held = bool(text.get("node"))
    return {
        "state": text["state"],
        "attempt": int(text["attempt"]),
        "node": text.get("node", ""),
        "holder": (text["cell"], text["boot"], text["acks"] == "1") if held else None,
        "due_at": int(text["due_at"]),
        "tried": text.get("tried", ""),
        "rests": text.get("rests", ""),
        "waits_until": int(text.get("waits_until") or 0),
        "outcome": text.get("outcome", ""),
        "past": text.get("past", ""),
        "reason": text.get("reason", ""),
        **{name: int(text.get(name, 0)) for name in ("created_at", "placed_at", "ended_at")},
        "seq": int(text.get("seq", 0)),
        "has_audio": bool(row.get("audio")),
        "spec": msgspec.msgpack.decode(row["spec"]),
    }


def twin_state(cell: CellTwin) -> State:
    queues: dict[str, dict[str, float]] = {}
    for job in cell.pending:
        queues.setdefault(cell.jobs[job].spec.demand, {})[job] = cell.queue_place(job)
    pools: dict[str, dict[str, float]] = {}
    for name, view in cell.fleet().nodes.items():
        pools.setdefault(view.pool, {})[name] = twin_score(view)
    streaming: dict[str, dict[str, float]] = {}
    for view in cell.hearers().nodes.values():
        streaming.setdefault(view.pool, {})[view.id] = twin_score(view)
    return {
        "clock": cell.clock.text,
        "due": cell.due,
        "pending": cell.pending,
        "waiting": {demand: min(queue.values()) for demand, queue in queues.items()},
        "queues": queues,
        "reserved": cell.reserved,
        "nodes": {name: twin_node(node) for name, node in cell.nodes.items()},
        "indexed": set(cell.nodes),
        "lost_streams": {},
        "streaming": streaming,
        "heard_streams": cell.heard_streams,
        "pools": pools,
        "described": set(pools),
        "sessions": {name: twin_session(session) for name, session in cell.sessions.items()},
        "jobs": {name: twin_job(tracked) for name, tracked in cell.jobs.items()},
        "audio": cell.audio,
        "relays": {name: [item.line for item in items] for name, items in cell.relays.items()},
        "heards": cell.heards,
        "captions": cell.captions,
    }


def twin_score(view: Any) -> float:
    if view.status == "offline":
        return 6_000_000_000
    if view.draining:
        return 5_000_000_000
    if view.status != "ready":
        return 4_000_000_000
    if view.over:
        return 3_000_000_000
    return 2_000_000_000 if view.blocked_by else view.load * TIES


def twin_node(node: Any) -> State:
    return {
        **{name: getattr(node, name) for name in ("boot", "conn", "pool", "instance")},
        "status": node.health.status,
        **{name: getattr(node, name) for name in ("drain", "over", "acks", "max", "extra", "hold")},
        "silence_ms": node.silence_ms,
        "beat_at": node.health.beat_at_ms,
        "good": node.health.good,
        "bad": "".join("1" if bad else "0" for bad in node.health.bad),
        "orphans": list(node.orphans),
        "missing": node.missing,
        "leases": node.leases,
        "marks": node.marks,
        **{name: getattr(node, name) for name in ("streams", "streams_max")},
    }


def twin_session(session: Any) -> State:
    lanes = {
        name: {
            "next": lane.next_index,
            "unwanted": lane.unwanted,
            "entries": {i: (e.job, e.put_ms, e.outcome) for i, e in lane.entries.items()},
        }
        for name, lane in session.lanes.items()
    }
    return {
        **{name: getattr(session, name) for name in ("epoch", "born", "owner", "fence")},
        **{name: getattr(session, name) for name in ("seq", "trimmed", "confirmed")},
        **{name: getattr(session, name) for name in ("tenant", "token", "about")},
        **{name: getattr(session, name) for name in ("heard", "heard_ms", "top", "speech")},
        **{name: getattr(session, name) for name in ("ended", "partly")},
        **{name: getattr(session, name) for name in ("said_count", "froms")},
        "closed": session.closed,
        "lanes": lanes,
        "turns": session.turns,
        "sticky": session.pools,
        "outbox": session.outbox[session.trimmed :],
    }


def twin_job(tracked: Any) -> State:
    machine = tracked.job
    holder = (machine.cell, machine.boot, machine.node_acks) if machine.node else None
    return {
        "state": machine.state,
        "attempt": machine.attempt,
        "node": machine.node,
        "holder": holder,
        "due_at": machine.due_at_ms,
        "tried": "".join(f"{node}@{boot}," for node, boot in machine.tried),
        "rests": "".join(f"{node}@{at}," for node, at in tracked.rests.items()),
        "waits_until": tracked.waits_until,
        "outcome": machine.outcome,
        **{name: getattr(tracked, name) for name in ("past", "reason")},
        **{name: getattr(tracked, name) for name in ("created_at", "placed_at", "ended_at")},
        "seq": tracked.seq,
        "has_audio": tracked.has_audio,
        "spec": msgspec.to_builtins(tracked.spec),
    }


def check_demand_cache(keys: dict[str, Any], cell: CellTwin) -> None:
    """Whatever the cell remembers about a demand is what the policy says now."""
    pools = list(cell.fleet().pools.values())
    for text, answer in keys.get("demands", {}).items():
        wanted = Demand.parse(text)
        groups = rank_pools(pools, wanted)
        listed = "".join(";" + ",".join(pool.id for pool in group) for group in groups)
        assert answer.decode() == f"{listed}#{furthest_filter(pools, wanted)}", text
