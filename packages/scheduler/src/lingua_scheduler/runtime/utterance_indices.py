"""The indices of a session's utterances, and the gaps in each lane. Pure.

A client may number whole utterances itself and leave indices out; those may still come. If an
utterance does not go into a lane, its index is declared as skipped there: otherwise the order of
the lane would wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.runtime.job_builder import spec_after
from lingua_wire.errors import InvalidMessage

if TYPE_CHECKING:
    from lingua_scheduler.state.records import JobSpec, ResumedSession

# A client may begin anywhere up to here; the store's own bound is far beyond it.
INDEX_MAX = 1 << 32


class UtteranceIndices:
    """Numbers utterances, and knows the gaps in each lane."""

    __slots__ = ("_in_flight_max", "_lane_next", "_skipped", "late", "next")

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        # The next free index, and those a client left out that may still come.
        self.next = 0
        # Frozen, because both are empty nearly always, and all empty ones are one object.
        self._skipped: frozenset[int] = frozenset()
        # Left-out indices that came later and are not submitted yet: others wait for them, so that
        # they must not wait for others.
        self.late: frozenset[int] = frozenset()
        # Lane -> the next index that is not declared in it.
        self._lane_next: dict[str, int] = {}

    def restore(self, former: ResumedSession) -> None:
        """Continue where a former owner stopped."""
        self._lane_next = dict(former.lanes)
        # The place of an utterance that was refused is taken as well.
        self.next = max(former.next_index, *self._lane_next.values(), 0)

    def take(self) -> int:
        """Return the next index."""
        index = self.next
        self.next = index + 1
        return index

    def take_requested(self, requested: int) -> int:
        """Return the index of a whole utterance whose client asked for one."""
        if requested > INDEX_MAX:
            raise InvalidMessage(f"utterance_index {requested} is too far ahead of any speech")
        index = requested
        if index == self.next:
            self.next = index + 1
            return index
        if index in self._skipped:
            self._skipped -= {index}
            self.late |= {index}
        elif index < self.next:
            index = self.next
        elif index >= self.next + self._in_flight_max and self.next:
            raise InvalidMessage(
                f"utterance_index {index} is too far ahead: the next one is {self.next}"
            )
        elif self.next:
            self._skipped |= set(range(self.next, index))
        self.next = max(self.next, index + 1)
        return index

    def submitted(self, index: int) -> None:
        """Note that an index is submitted; called if any is late."""
        self.late -= {index}

    def filled(self, index: int) -> None:
        """Note that the place of an index is filled: it is waited for no longer."""
        if self._skipped:
            self._skipped -= {index}

    # Lanes

    def forget_lanes(self) -> None:
        """Note that the store lost all lanes: the first utterance of each defines its start."""
        self._lane_next.clear()

    def in_lane(self, spec: JobSpec) -> JobSpec:
        """Return a spec that declares which indices before it are skipped in its lane."""
        known = self.unheard_before(spec.lane, spec.index)
        return spec if spec.unwanted_from == known else spec_after(spec, known)

    def unheard_before(self, lane: str, index: int) -> int:
        """Return the first of the indices before this one that are skipped in a lane.

        -1 if there are none, or only indices that may still come, which are waited for.
        """
        known = self._lane_next.get(lane, 0)
        if known == index:
            self._lane_next[lane] = index + 1
            return -1
        self._lane_next[lane] = max(known, index + 1)
        before = range(known, index)
        if all(at in self._skipped or at in self.late for at in before):
            return -1
        # A left-out index that is skipped here gets a new number if its utterance comes later.
        # `before` may be long, and is never listed.
        if self._skipped:
            self._skipped = frozenset(at for at in self._skipped if at not in before)
        return known
