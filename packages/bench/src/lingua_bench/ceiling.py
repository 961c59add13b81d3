"""The ceiling of `lingua bench placement`: the store's work on the same keys, without its logic.

Three generated scripts stand for job_submit, job_settle and outbox_ack. Each

* makes the same server commands as the hot path of its counterpart, in the same order, on the same
  kinds of keys of the same cell: the same number of fields, values of the same size (scores are
  shorter), a new job record for every pair that expires after the same time;
* is sent over the same client as one FCALL with the words of the real call, plus the names the
  real script finds out for itself: session, node, pool;
* branches nowhere, decodes nothing, includes nothing, reads none of the replies, and answers with
  one number rather than with a placement or a released outcome.

So the distance to the ceiling is what our Lua, our arguments and answers, and the client's packing
and reading of them cost; no way of placing a job with these keys can be faster than the ceiling.
A pair leaves the fleet as it found it (no lease, a score of an idle node), so that real phases and
ceiling phases can take turns on one fleet. The sessions it writes to are its own.

`lingua bench placement` compares the commands of both by the server's own count, call for call; the
tests also compare their order and keys. Only the mark of the cell's clock, which scripts read and
write some times a second, is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lingua_bench.fleet import DEMAND, LANE, POLICY
from lingua_bench.load import ACK_EVERY, BODY, PAYLOAD, PairLoad
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import JobSpec
from lingua_scheduler.state.script import Script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from lingua_bench.fleet import RegisteredFleet
    from lingua_bench.load import WorkerSession
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Word

# Names of the words of each call; the first ones are those of the real script.
SUBMIT_WORDS = (
    "now",
    "policy",
    "audio",
    "job",
    "spec",
    "body",
    "park",
    "session",
    "node",
    "pool",
    "second",
)
SETTLE_WORDS = (
    "now",
    "policy",
    "job",
    "attempt",
    "node",
    "kind",
    "reason",
    "payload",
    "session",
    "pool",
)
ACK_WORDS = ("now", "session", "epoch", "seq")

# Lua with blanks: `{family}` and `{family:<word>}` are keys, `<word>` a word, `@NAME@` a constant.
SUBMIT = """
redis.call('TIME')
redis.call('HGET', {job:<job>}, 'state')
redis.call('HMGET', {session:<session>}, 'epoch', 'owner', 'closed', 'seq', 'trimmed', 'next:es',
  'at:es:1', 'skip:es', 'fence', 'top', 'heard', 'at:es:0')
redis.call('HGET', {demands}, '@DEMAND@')
redis.call('ZRANGE', {pool:<pool>}, 0, 0, 'WITHSCORES')
redis.call('ZRANGE', {pool:<second>}, 0, 0, 'WITHSCORES')
redis.call('HMGET', {node:<node>}, 'block', 'max', 'extra', 'pool', 'boot', 'acks', 'instance')
redis.call('ZCOUNT', {leases:<node>}, @NOW_MS@, '+inf')
redis.call('ZADD', {leases:<node>}, @END_MS@, <job> .. '|1')
redis.call('ZADD', {pool:<pool>}, '16252928', <node>)
redis.call('HSET', {job:<job>}, 'state', 'CREATED', 'attempt', 1, 'node', <node>, 'cell', 'c0',
  'boot', 'b1', 'acks', '0', 'ends_at', @END_MS@, 'due_at', @END_MS@, 'placed_at', @NOW_MS@,
  'spec', <spec>, 'body', <body>)
redis.call('ZADD', {due}, @END_MS@, 'j|' .. <job>)
redis.call('HSET', {session:<session>}, 'at:es:1', '@NOW_MS@ ' .. <job>)
return 1
"""
SETTLE = """
redis.call('TIME')
redis.call('HMGET', {job:<job>}, 'state', 'attempt', 'node', 'cell', 'spec')
redis.call('ZREM', {leases:<node>}, <job> .. '|1')
redis.call('HMGET', {node:<node>}, 'block', 'max', 'extra', 'pool', 'boot', 'acks', 'instance')
redis.call('ZCOUNT', {leases:<node>}, @NOW_MS@, '+inf')
redis.call('ZADD', {pool:<pool>}, '524288', <node>)
redis.call('HMGET', {session:<session>}, 'epoch', 'owner', 'seq', 'next:es', 'skip:es', 'at:es:2',
  'ended', 'born', 'at:es:1')
redis.call('RPUSH', {outbox:<session>}, 'completed 1 es ' .. <job> .. ' 1 -\\n' .. <payload>)
redis.call('HDEL', {session:<session>}, 'at:es:1')
redis.call('HSET', {session:<session>}, 'seq', 1, 'next:es', 1, 'ended', '0 0 0 0')
redis.call('HSET', {job:<job>}, 'state', 'RELEASED', 'outcome', <kind>, 'seq', 1, 'reason', '-',
  'ended_at', @NOW_MS@)
redis.call('PEXPIRE', {job:<job>}, @BINDING_MS@)
redis.call('ZREM', {due}, 'j|' .. <job>)
redis.call('EXISTS', {waiting})
return 1
"""
ACK = """
redis.call('TIME')
redis.call('HMGET', {session:<session>}, 'epoch', 'trimmed', 'seq', 'fence', 'hears')
redis.call('LTRIM', {outbox:<session>}, @ACK_EVERY@, -1)
redis.call('HSET', {session:<session>}, 'trimmed', <seq>)
return 1
"""
# The search reads one pool if there is only one, else two.
SECOND_LOOK = "redis.call('ZRANGE', {pool:<second>}, 0, 0, 'WITHSCORES')\n"

CONSTANTS = {
    "DEMAND": DEMAND,
    "BINDING_MS": POLICY.binding_ms,
    "ACK_EVERY": ACK_EVERY,
    # Times of as many digits as real ones.
    "NOW_MS": 1_800_000_000_000,
    "END_MS": 1_800_000_030_000,
}
BLANK = re.compile(r"\{([a-z]+)(?::<([a-z]+)>)?\}|<([a-z]+)>|@([A-Z_]+)@")


class CeilingTarget(NamedTuple):
    """The node that a ceiling pair names, its pool, and another pool to read."""

    node: str
    pool: str
    second: str


class CeilingLoad(PairLoad[CeilingTarget]):
    """Pairs of the ceiling's scripts, which name all nodes in turn."""

    def __init__(
        self, fleet: RegisteredFleet, speakers: list[WorkerSession], targets: list[CeilingTarget]
    ) -> None:
        super().__init__(fleet.connection, speakers)
        self._cell = fleet.cell
        self._targets = targets
        self._scripts = ceiling_scripts(fleet.cell, fleet.shape.pools)
        # As long as those of the real calls, packed once.
        self._policy = pack(POLICY.for_jobs())
        spec = JobSpec(session=speakers[0].session, index=100, lane=LANE, demand=DEMAND)
        self._spec = pack(spec)
        # Where each session starts its round, so that the sessions do not all name one node.
        step = max(1, len(targets) // len(speakers))
        self._first = {speaker.session: n * step for n, speaker in enumerate(speakers)}

    @classmethod
    async def on(cls, fleet: RegisteredFleet, speakers: list[WorkerSession]) -> CeilingLoad:
        """Find out where the nodes are, and return the load."""
        rows = await fleet.rows()
        pools = sorted({row.pool for row in rows})
        follows = dict(zip(pools, [*pools[1:], pools[0]], strict=True))
        targets = [CeilingTarget(row.node, row.pool, follows[row.pool]) for row in rows]
        return cls(fleet, speakers, targets)

    async def submit(self, speaker: WorkerSession) -> CeilingTarget:
        """Touch the keys that job_submit touches."""
        first = self._first[speaker.session]
        target = self._targets[(first + speaker.index) % len(self._targets)]
        job, session = job_of(speaker), speaker.session
        words = (0, self._policy, b"", job, self._spec, BODY, 0, session, *target)
        await self._call("submit", speaker, words)
        return target

    async def settle(self, speaker: WorkerSession, held: CeilingTarget) -> None:
        """Touch the keys that job_settle touches."""
        job, result = job_of(speaker), ("completed", "-", PAYLOAD)
        words = (0, self._policy, job, 1, held.node, *result, speaker.session, held.pool)
        await self._call("settle", speaker, words)
        speaker.index += 1

    async def acknowledge(self, speaker: WorkerSession) -> None:
        """Touch the keys that outbox_ack touches."""
        await self._call("ack", speaker, (0, speaker.session, speaker.epoch, speaker.index))

    def _call(self, name: str, speaker: WorkerSession, words: tuple[Word, ...]) -> Awaitable[int]:
        speaker.calls += 1
        return self._connection.run(self._scripts[name], self._cell.slot, self._cell.keys, words)


def job_of(speaker: WorkerSession) -> str:
    """Return the id of a session's next job, as long as a real one."""
    return f"job-{speaker.session:0>16}{speaker.index:016x}"


def ceiling_scripts(cell: Cell, pools: int) -> dict[str, Script]:
    """Generate the scripts for a cell in which so many pools serve the demand."""
    submit = SUBMIT if pools > 1 else SUBMIT.replace(SECOND_LOOK, "")
    return {
        "submit": Script.of("ceiling_submit", fill(submit, cell, SUBMIT_WORDS)),
        "settle": Script.of("ceiling_settle", fill(SETTLE, cell, SETTLE_WORDS)),
        "ack": Script.of("ceiling_ack", fill(ACK, cell, ACK_WORDS)),
    }


def fill(lua: str, cell: Cell, words: Sequence[str]) -> str:
    """Fill the blanks of a script for one cell."""

    def argument(word: str) -> str:
        return f"ARGV[{words.index(word) + 1}]"

    def value(found: re.Match[str]) -> str:
        family, rest, word, name = found.groups()
        if name:
            return str(CONSTANTS[name])
        if word:
            return argument(word)
        return f"'{cell.base}{family}:' .. {argument(rest)}" if rest else f"'{cell.base}{family}'"

    return BLANK.sub(value, lua)
