"""What was delivered to one client; a store that lost its last writes releases it again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.records import speaker_of

if TYPE_CHECKING:
    from lingua_scheduler.state.records import Released

# Speakers and lanes whose last index is remembered for a listener.
RECEIVED_MAX = 1024
# Utterances whose positions are remembered, to send their outcomes again.
POSITIONS_MAX = 32


class DeliveredOutcomes:
    """The last index delivered of each lane, and where the latest outcomes are."""

    __slots__ = ("_passed", "_positions", "_received", "lanes")

    def __init__(self) -> None:
        # Lane -> the last index delivered.
        self.lanes: dict[str, int] = {}
        # The same for outcomes that listeners received, which may come after later own ones; None
        # before the first.
        self._passed: dict[str, int] | None = None
        # Speaker and lane -> the last index received of it, for the same reason.
        self._received: dict[tuple[str, str], int] | None = None
        # Utterance -> positions of its outcomes, for the latest ones.
        self._positions: dict[int, list[int]] = {}

    @property
    def has_received(self) -> bool:
        """Tell whether any outcome of another speaker was received."""
        return bool(self._received)

    def note(self, outcome: Released) -> bool:
        """Note an outcome of the client itself; False if it was delivered before."""
        index, lane, lanes, positions = outcome.utterance, outcome.lane, self.lanes, self._positions
        last = lanes.get(lane, -1)
        if outcome.is_passed:
            passed = self._passed = self._passed or {}
            if index <= passed.get(lane, -1):
                return False
            passed[lane] = index
        elif index <= last:
            return False
        if index > last:
            lanes[lane] = index
        if index in positions:
            positions[index].append(outcome.seq)
        else:
            positions[index] = [outcome.seq]
            if len(positions) > POSITIONS_MAX:
                del positions[next(iter(positions))]
        return True

    def note_received(self, heard_id: str, outcome: Released) -> bool:
        """Note an outcome of another speaker; False if it was delivered before."""
        source = (speaker_of(heard_id), outcome.lane)
        received = self._received = self._received or {}
        if outcome.utterance <= received.get(source, -1):
            return False
        received.pop(source, None)
        received[source] = outcome.utterance
        if len(received) > RECEIVED_MAX:
            del received[next(iter(received))]
        return True

    def positions_of(self, index: int) -> tuple[int, ...]:
        """Return where the outcomes of an utterance are in the outbox, if they are recent."""
        return tuple(self._positions.get(index, ()))

    def start_over(self) -> None:
        """Forget positions: they count from one again."""
        self._positions.clear()
