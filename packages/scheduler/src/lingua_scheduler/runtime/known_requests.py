"""What a session remembers of its whole utterances: for as long as the store knows them. Pure.

A request that is known here is answered here; for any other one the store would have to be asked.
The store forgets a request some time after its outcome (`jobs.binding_ms`). Then it is forgotten
here, too: nothing is missing, and a session that goes on for long does not grow.
"""

from __future__ import annotations

from collections import deque

import msgspec

# More than these within that time, and there are requests that only the store knows.
KNOWN_MAX = 8192


class KnownRequest(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of an accepted request: the digest of its audio, and its index."""

    sound: int | str
    utterance: int


class KnownRequests:
    """The accepted requests of one session."""

    __slots__ = ("_binding_ms", "_ended", "_known", "is_complete", "open")

    def __init__(self, binding_ms: int, *, is_complete: bool) -> None:
        # How long the store knows a request after its outcome.
        self._binding_ms = binding_ms
        # Every request that the store knows is known here.
        self.is_complete = is_complete
        # By request id, or by the index that the client gave.
        self._known: dict[str | int, KnownRequest] = {}
        # Index -> request id of the named ones without an outcome.
        self.open: dict[int, str] = {}
        # Those with one, oldest first, with the time of the outcome; None before the first.
        self._ended: deque[tuple[float, int, str]] | None = None

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str | int) -> bool:
        return name in self._known

    def get(self, name: str | int) -> KnownRequest | None:
        """Return what is known of a request."""
        return self._known.get(name)

    def add(self, name: str | int, request: KnownRequest) -> None:
        """Remember a request that was accepted."""
        self._known[name] = request
        if isinstance(name, str):
            self.open[request.utterance] = name
        if len(self._known) > KNOWN_MAX:
            oldest = self._known.pop(next(iter(self._known)))
            self.open.pop(oldest.utterance, None)
            self.is_complete = False

    def settle(self, utterance: int, now_ms: float) -> None:
        """Note that an utterance has its outcome, and forget what the store has forgotten."""
        name = self.open.pop(utterance, None)
        if name is None:
            return
        ended = self._ended
        if ended is None:
            # What falls out of it is then known until there are too many.
            ended = self._ended = deque(maxlen=KNOWN_MAX)
        ended.append((now_ms, utterance, name))
        while ended[0][0] < now_ms - self._binding_ms:
            _, old, its_name = ended.popleft()
            known = self._known.get(its_name)
            # One that was refused may have been sent again under the same name.
            if known is not None and known.utterance == old:
                del self._known[its_name]

    def forget(self, name: str) -> None:
        """Forget a request that was refused: if it is sent again, it is new."""
        known = self._known.pop(name, None)
        if known is not None:
            self.open.pop(known.utterance, None)

    def restore(self) -> None:
        """Note that a former owner may have had requests that only the store knows."""
        self.is_complete = False
