"""The steps about streams: somebody speaks, a node listens, and the job follows or does not.

A part of the machine in `test_machine.py`. Streams are opened and closed also in cells that are not
their session's home, and any of them may be forgotten: its instance was killed.
"""

from __future__ import annotations

import hashlib

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lingua_scheduler.state.stream_scripts import OpenedStream, StreamSpec
from model.owners import chance, pick, seldom
from model.samples import DEMANDS, LANES, NODES, SESSIONS


class Hearing:
    """What nodes hear before there is a job."""

    @rule(
        which=pick,
        lane=st.sampled_from(LANES),
        demand=pick,
        turn=st.sampled_from(("", "", "t1", "t2")),
        preferred=st.none() | pick,
        mine=chance,
        former=seldom,
        park=st.sampled_from((0, 1, 1, 2)),
        again=seldom,
    )
    def begin_to_speak(
        self, which, lane, demand, turn="", preferred=None, mine=True, former=False, park=1,
        again=False,
    ) -> None:  # fmt: skip
        name = SESSIONS[which % len(SESSIONS)] if which % 16 else "s9"
        cell, twin = self.home(name)
        spec = StreamSpec(
            session=name,
            lane=lane,
            demand=DEMANDS[demand % len(DEMANDS)].text,
            turn=turn,
            preferred=NODES[preferred % len(NODES)] if preferred is not None else "",
            fence=self.fence_of(name, mine=mine) + 9 * former,
        )
        if len(self.world.cells.all) == 1:
            park = min(park, 1)
        stream = self.some_stream(which).id if again and self.spoken else self.new_stream()
        self.listen(cell, twin, stream, spec, park)

    @precondition(lambda self: len(self.world.cells.all) > 1)
    @rule(which=pick, demand=pick, where=pick, only=st.none() | pick)
    def another_cell_listens(self, which, demand, where, only) -> None:
        cell = self.world.cells.all[where % len(self.world.cells.all)]
        spec = StreamSpec(lane=LANES[which % 2], demand=DEMANDS[demand % len(DEMANDS)].text)
        name = NODES[only % len(NODES)] if only is not None else ""
        self.listen(cell, self.twins[cell.name], self.new_stream(), spec.elsewhere(name), 0)

    def listen(self, cell, twin, stream: str, spec: StreamSpec, park: int) -> None:
        answer = self.world.run(self.store.streams.open(cell, stream, spec, park=park))
        expected = twin.stream_open(stream, spec, park)
        opened = answer.stream
        if opened is None:
            return self.same((answer.reply.name, answer.label, answer.affinity), expected)
        self.spoken.append(opened)
        real = (answer.reply.name, opened.node, opened.instance, opened.expires_at_ms)
        return self.same(real, expected)

    @precondition(lambda self: getattr(self, "spoken", None))
    @rule(which=st.lists(pick, min_size=1, max_size=3), ms=st.sampled_from((0, 1500, 4999)))
    def go_on_speaking(self, which, ms=0) -> None:
        self.tick(ms)
        for name, twin in self.twins.items():
            some = {s.id: (s.node, s.id) for s in map(self.some_stream, which) if s.cell == name}
            cell, pairs = self.world.cells.named(name), list(some.values())
            real = self.world.run(self.store.streams.renew(cell, pairs))
            self.same(("renewed", real), ("renewed", twin.stream_renew(pairs)))

    @precondition(lambda self: getattr(self, "spoken", None))
    @rule(which=pick)
    def fall_silent(self, which) -> None:
        stream = self.some_stream(which)
        cell, twin = self.world.cells.named(stream.cell), self.twins[stream.cell]
        real = self.world.run(self.store.streams.close(cell, stream.node, stream.id))
        self.same(("closed", real), ("closed", twin.free_stream(stream.node, stream.id)))

    @precondition(lambda self: getattr(self, "spoken", None))
    @rule(which=pick, lane=st.sampled_from(LANES), demand=pick, turn=st.sampled_from(("", "t1")))
    def finish_speaking(self, which, lane, demand, turn="") -> None:
        """The job of a stream, in the session's own cell; it may be refused."""
        self.submit(
            which, lane, demand, 0 if which % 8 else 300, unwanted=False, turn=turn, part="whole",
            preferred=which if which % 4 == 0 else None, park=which % 3, audio=False,
            stream=self.some_stream(which // 2),
        )  # fmt: skip

    @rule(
        which=pick, lane=st.sampled_from(LANES), demand=st.integers(0, 11),
        streams=st.integers(1, 4), ms=st.sampled_from((0, 1500, 4999, 5000)),
        end=st.sampled_from(("cut", "cut", "cut twice", "dropped", "killed")),
    )  # fmt: skip
    def speak_while_nodes_listen(self, which, lane, demand, streams, ms, end) -> None:
        """Several begin, one goes on for a while, and then its job comes, or does not."""
        before, turn = len(self.spoken), ("", "t1")[which % 2]
        for number in range(streams):
            self.begin_to_speak(
                1 + 16 * which + number, lane, demand, turn, which if which % 3 else None
            )
        if len(self.spoken) == before:
            return
        last = len(self.spoken[-6:]) - 1
        self.go_on_speaking([last], ms)
        if end == "dropped":
            self.fall_silent(last)
        for _ in range({"cut": 1, "cut twice": 2}.get(end, 0)):
            self.submit(
                which, lane, demand, 0, unwanted=False, turn=turn, part="whole", preferred=None,
                park=which % 3, audio=False, stream=self.spoken[-1],
            )  # fmt: skip

    def some_stream(self, which: int) -> OpenedStream:
        """One of the latest streams."""
        latest = self.spoken[-6:]
        return latest[which % len(latest)]

    def new_stream(self) -> str:
        self.streams_begun += 1
        digest = hashlib.blake2b(str(self.streams_begun).encode(), digest_size=8)
        return f"str-{digest.hexdigest()}"
