"""Results that the scheduler has not acknowledged: kept within bounds, and sent again.

An older scheduler never acknowledges, so number, size and age of the results are bounded.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from lingua_wire.codec import encode_msgpack
from lingua_wire.shared import RunningJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_node.stats import Stats
    from lingua_wire.from_node import FromNode, JobResult

KEPT_MAX: Final = 512
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
# After this time no scheduler waits for the result any more.
KEPT_S: Final = 120.0
# A result that closes the connection each time (too big for the scheduler) is given up.
SENDS_MAX: Final = 5


class MessageSender(Protocol):
    """Sends messages to the scheduler while the node is registered."""

    def send(self, message: FromNode) -> None:
        """Send the message, or drop it if the node is not registered."""

    @property
    def is_open(self) -> bool:
        """Tell whether the node is registered on an open socket."""


class KeptResult:
    """A result that is not acknowledged yet."""

    __slots__ = ("at", "result", "sends")

    def __init__(self, result: JobResult) -> None:
        self.result = result
        # When the job ended, by `monotonic`.
        self.at = monotonic()
        # How often it was sent.
        self.sends = 0

    @property
    def bytes(self) -> int:
        """Return approximately how much memory it takes."""
        return len(self.result.tts_audio or b"")


class ResultBuffer:
    """The unacknowledged results of one node, oldest first."""

    def __init__(self, outbox: MessageSender, stats: Stats) -> None:
        self._outbox = outbox
        self._stats = stats
        # By job id.
        self._kept: dict[str, KeptResult] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def attempt_of(self, job_id: str) -> int | None:
        """Return the attempt whose result is kept for a job."""
        kept = self._kept.get(job_id)
        return None if kept is None else kept.result.attempt_id

    def jobs(self) -> Iterator[RunningJob]:
        """Give the jobs whose results are kept."""
        for kept in self._kept.values():
            yield RunningJob(job_id=kept.result.job_id, attempt_id=kept.result.attempt_id)

    def add(self, result: JobResult) -> None:
        """Send a result if that is possible now, and keep it until it is acknowledged."""
        kept = KeptResult(result)
        self._send(kept)
        self._kept[result.job_id] = kept
        self._bytes += kept.bytes
        while len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX:
            self._give_up(next(iter(self._kept)))

    def resend(self, job_id: str) -> None:
        """Send the result of one job again."""
        self._stats.resent += 1
        self._send(self._kept[job_id])

    def resend_all(self) -> None:
        """Send every result again, on a new connection."""
        oldest = monotonic() - KEPT_S
        for job_id, kept in tuple(self._kept.items()):
            if kept.at < oldest or kept.sends >= SENDS_MAX:
                self._give_up(job_id)
                continue
            self._stats.resent += 1 if kept.sends else 0
            self._send(kept)

    def remove(self, job_id: str) -> None:
        """Keep the result of a job no longer."""
        self._bytes -= self._kept.pop(job_id).bytes

    def _send(self, kept: KeptResult) -> None:
        if self._outbox.is_open:
            kept.sends += 1
            self._outbox.send(kept.result)
        else:
            # Raises now if the result can never be sent.
            encode_msgpack(kept.result)

    def _give_up(self, job_id: str) -> None:
        self._stats.lost_results += 1
        self.remove(job_id)
