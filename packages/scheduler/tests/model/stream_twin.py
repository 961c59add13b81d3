"""The part of the twin about streams: what nodes hear of utterances that are being spoken.

See `stream_*.lua` and `streams.lua` of the includes. Streams have leases and ranks of their own,
which no job slot depends on; the choice of a node is that of `jobs/placement.py`, by streams.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from lingua_scheduler.jobs.placement import (
    CellFleet,
    PlacementRequest,
    choose,
    may_take,
    rank_pools,
    refusal,
)
from lingua_scheduler.jobs.requirement import Demand
from lingua_scheduler.state.stream_scripts import STREAM_LEASE_MS, StreamSpec

TIES = 1 << 20


def stream_tie(stream: str) -> float:
    return int(hashlib.sha1(stream.encode()).hexdigest()[:5], 16) / TIES


class Streams:
    """The streams of one cell."""

    def hearers(self, *, current: bool = False) -> CellFleet:
        """The nodes by their streams: as they are ranked, or as they are at this moment."""
        fleet = self.fleet()
        views = {}
        for name, view in fleet.nodes.items():
            node = self.nodes[name]
            used = len(live(node.streams, self.now)) if current else node.streams_ranked
            if used is not None and node.streams_max:
                views[name] = replace(
                    view, max_jobs=node.streams_max, leased=used, extra=0, tie=node.streams_tie
                )
        fleet.nodes = views
        return fleet

    def rank_streams(self, name: str, tie: float) -> None:
        node = self.nodes[name]
        if not node.streams_max:
            return
        node.streams = live(node.streams, self.now)
        idle = replace(self.fleet().nodes[name], max_jobs=1, leased=0, extra=0)
        node.streams_ranked = None if idle.blocked_by else len(node.streams)
        node.streams_tie = tie

    def drop_streams(self, name: str) -> None:
        self.nodes[name].streams, self.nodes[name].streams_ranked = {}, None

    def take_stream(self, name: str, stream: str) -> tuple:
        node = self.nodes[name]
        node.streams = live(node.streams, self.now)
        assert len(node.streams) < node.streams_max
        node.streams[stream] = self.now + STREAM_LEASE_MS
        node.streams_ranked, node.streams_tie = len(node.streams), stream_tie(stream)
        self.heard_streams[stream] = name
        return ("STREAM_OPENED", name, node.instance, node.streams[stream])

    def free_stream(self, name: str, stream: str) -> bool:
        if self.heard_streams.get(stream) == name:
            del self.heard_streams[stream]
        node = self.nodes.get(name)
        if node is None or stream not in node.streams:
            return False
        del node.streams[stream]
        self.rank_streams(name, stream_tie(stream))
        return True

    # The scripts

    def stream_open(self, stream: str, spec: StreamSpec, park: int) -> tuple:
        session = self.sessions.get(spec.session)
        if spec.session:
            if session is None:
                return ("NO_SESSION", "no_session", "")
            if session.closed:
                return ("SESSION_CLOSED", "session_closed", "")
            if spec.fence and spec.fence != session.fence:
                return ("FENCED", "owner", "")
        known = self.nodes.get(self.heard_streams.get(stream, ""))
        if known is not None and known.streams.get(stream, 0) > self.now:
            name = self.heard_streams[stream]
            return ("STREAM_OPENED", name, known.instance, known.streams[stream])
        wish = PlacementRequest(
            Demand.parse(spec.demand),
            tie=stream_tie(stream),
            near=session.owner if session is not None else "",
        )
        holders = [holder.split("/") for holder in self.turn_nodes(spec)]
        here = [name for cell, name in holders if cell == self.name]
        elsewhere = [f"{cell}/{name}" for cell, name in holders if cell != self.name]
        for name in [*here, spec.preferred]:
            if self.may_hear(name, wish):
                return self.take_stream(name, stream)
        if spec.only:
            return ("NO_AVAILABLE_NODE", "no_free_stream", "")
        if park == 2 or (park == 1 and elsewhere):
            return ("NO_AVAILABLE_NODE", "affinity_elsewhere", ",".join(elsewhere))
        return self.hear_anywhere(stream, spec, wish, in_turn=bool(holders))

    def may_hear(self, name: str, wish: PlacementRequest) -> bool:
        """Also forgets what expired, of a node that could do the work."""
        fleet = self.hearers(current=True)
        if name not in fleet.nodes:
            return False
        idle = CellFleet(fleet.pools, {name: replace(fleet.nodes[name], leased=0)})
        if may_take(idle, wish, name):
            self.nodes[name].streams = live(self.nodes[name].streams, self.now)
        return may_take(fleet, wish, name)

    def hear_anywhere(
        self, stream: str, spec: StreamSpec, wish: PlacementRequest, *, in_turn: bool
    ) -> tuple:
        session = self.sessions.get(spec.session)
        directions = spec.demand.split("|")[0]
        is_sticky = self.policy.sticky_pools and session is not None
        if is_sticky:
            kept, _, pool = session.pools.get(spec.lane, "").partition(" ")
            wish = replace(wish, sticky=pool if kept == directions else "")
        if self.policy.spread and session is not None and not in_turn and session.last_node:
            recent = self.now - session.last_node_at < self.policy.spread_ms
            wish = replace(wish, avoid=session.last_node if recent else "")
        fleet = self.hearers()
        chosen = choose(fleet, wish).node
        groups = rank_pools(fleet.pools.values(), wish.demand)
        if not chosen:
            if groups:
                return ("NO_AVAILABLE_NODE", "no_free_stream", "")
            verdict = refusal(fleet, groups, fleet.members(), wish.demand)
            return (verdict.code, verdict.label, "")
        pool = fleet.pools[fleet.nodes[chosen].pool]
        if is_sticky and any(len(group) > 1 and pool in group for group in groups):
            session.pools[spec.lane] = f"{directions} {pool.id}"
        return self.take_stream(chosen, stream)

    def stream_renew(self, streams: list[tuple[str, str]]) -> list[str]:
        gone = []
        for name, stream in streams:
            held = self.nodes[name].streams if name in self.nodes else {}
            if held.get(stream, 0) > self.now:
                held[stream] = self.now + STREAM_LEASE_MS
            else:
                gone.append(stream)
        return gone


def live(streams: dict[str, int], now: int) -> dict[str, int]:
    return {stream: expiry for stream, expiry in streams.items() if expiry > now}
