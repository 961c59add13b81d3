"""Whether this instance accepts new work: one state that every part of it asks."""

from __future__ import annotations

from enum import StrEnum

from lingua_scheduler.transitions import IllegalTransition


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    RUNNING = "running"
    # No new sessions, nodes and audio; accepted speech is finished or handed over.
    DRAINING = "draining"


class Lifecycle:
    """The state of one instance."""

    def __init__(self) -> None:
        self.state = InstanceState.RUNNING
        # It drains, and clients that may resume are asked to do so on another instance.
        self.hands_over = False

    @property
    def is_draining(self) -> bool:
        """Tell whether nothing new is accepted."""
        return self.state is InstanceState.DRAINING

    def drain(self, *, hands_over: bool = False) -> None:
        """Accept nothing new from now on."""
        if self.state is InstanceState.DRAINING:
            raise IllegalTransition("instance", self.state, InstanceState.DRAINING)
        self.state, self.hands_over = InstanceState.DRAINING, hands_over
