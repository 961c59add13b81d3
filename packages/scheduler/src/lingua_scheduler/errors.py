"""Errors of the scheduler, beside those that all packages share (`lingua_wire.errors`).

    LinguaError
    ├── InvalidInput           an external value cannot be used
    │   ├── InvalidIdentifier  ...an id that is not valid in a key
    │   ├── InvalidDemand      ...the requirements of a job
    │   └── InvalidNode        ...the declaration of a node
    ├── StoreUnavailable       the server could not be reached, or did not answer
    │   └── OutcomeUnknown     ...after the command was sent: it may or may not have run
    ├── StoreRejected          the server answered with an error we do not handle
    │   └── StoreUnfit         ...until an operator changes the server or its user
    └── EmbeddedServerError    the private server could not be started or kept running

`StoreUnavailable` is always safe to retry: nothing ran. `OutcomeUnknown` is safe to retry for every
script of this package, because each is idempotent by job and attempt.
"""

from __future__ import annotations

from lingua_wire.errors import InvalidInput, LinguaError


class InvalidIdentifier(InvalidInput):
    """An external identifier has characters or a length that are not valid in a key."""

    def __init__(self, kind: str, value: str) -> None:
        self.kind = kind
        self.value = value
        super().__init__(
            f"{kind} must be 1 to 128 characters of A-Z a-z 0-9 _ . : - but is: {value[:64]!r}"
        )


class InvalidDemand(InvalidInput):
    """The requirements of a job are not valid."""

    def __init__(self, what: str, value: object) -> None:
        self.what = what
        self.value = value
        super().__init__(f"{what}: {str(value)[:64]!r}")


class InvalidNode(InvalidInput):
    """The declaration of a node is not valid."""

    def __init__(self, what: str, value: object) -> None:
        self.what = what
        self.value = value
        super().__init__(f"{what}: {str(value)[:64]!r}")


class StoreUnavailable(LinguaError):
    """The store could not be reached; the call did not run."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(f"store {where} unavailable: {why}")


class OutcomeUnknown(StoreUnavailable):
    """The call was sent and the answer was lost: it may have run."""


class StoreRejected(LinguaError):
    """The server refused a command, and a retry would not help."""

    def __init__(self, command: str, reply: str) -> None:
        self.command = command
        self.reply = reply
        super().__init__(f"store refused {command}: {reply}")


class StoreUnfit(StoreRejected):
    """The server, or our user on it, lacks what we need: an operator must change that."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__("our library of functions", f"{problem} ({remedy})")


class EmbeddedServerError(LinguaError):
    """The private server of local mode could not be started or kept running."""
