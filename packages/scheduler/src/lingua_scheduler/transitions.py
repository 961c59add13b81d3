"""What all state machines share: the error of a transition that the machine does not allow."""

from __future__ import annotations


class IllegalTransition(RuntimeError):
    """A defect of ours: code asked for a transition that its state machine does not have."""

    def __init__(self, machine: str, before: str, after: str) -> None:
        self.machine = machine
        self.before = before
        self.after = after
        super().__init__(f"{machine}: no transition from {before} to {after}")
