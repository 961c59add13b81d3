"""Every error the package raises on purpose, in one tree.

    LinguaError
    ├── ConfigError            a setting is unknown or impossible; nothing was started
    ├── InvalidInput           something from outside cannot be used
    │   ├── InvalidIdentifier  ...an id that no key may carry
    │   ├── InvalidLanguage    ...a language code that is none
    │   ├── InvalidLabel       ...a label of a node that is none
    │   ├── InvalidGlossary    ...a glossary with too much in it, or with a term that is none
    │   ├── InvalidDemand      ...what a job asks of a node
    │   ├── InvalidNode        ...what a node says of itself
    │   └── InvalidMessage     ...a message that is none of the catalogue, or not in this phase
    ├── StoreUnavailable       the server could not be asked, or did not answer
    │   └── OutcomeUnknown     ...after the command was sent: it may or may not have run
    ├── StoreRejected          the server answered with an error we do not handle
    └── EmbeddedServerError    the private server could not be started or kept

`StoreUnavailable` is always safe to retry: nothing ran. `OutcomeUnknown` is safe to retry for every
script of this package, because each is idempotent by job and attempt.
"""

from __future__ import annotations


class LinguaError(Exception):
    """Root of all errors raised on purpose."""


class ConfigError(LinguaError):
    """A setting is unknown or has an impossible value."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)


class InvalidInput(LinguaError):
    """Something from outside cannot be used; nothing was changed."""


class InvalidIdentifier(InvalidInput):
    """An identifier from outside has characters or a length that no key may carry."""

    def __init__(self, kind: str, value: str) -> None:
        self.kind = kind
        self.value = value
        super().__init__(
            f"{kind} must be 1 to 128 characters of A-Z a-z 0-9 _ . : - but is: {value[:64]!r}"
        )


class InvalidLanguage(InvalidInput):
    """A language code that is none."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"not a language code: {code[:40]!r}")


class InvalidLabel(InvalidInput):
    """A label of a node that is none."""

    def __init__(self, label: str, problem: str = "not a label (a letter or digit, then _ . -)"):
        self.label = label
        super().__init__(f"{problem}: {label[:64]!r}")


class InvalidGlossary(InvalidInput):
    """A glossary has too much in it, or a term that is none."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"glossary: {problem}"[:300])


class InvalidDemand(InvalidInput):
    """What a job asks of a node cannot be asked."""

    def __init__(self, what: str, value: object) -> None:
        self.what = what
        self.value = value
        super().__init__(f"{what}: {str(value)[:64]!r}")


class InvalidNode(InvalidInput):
    """What a node says of itself cannot be."""

    def __init__(self, what: str, value: object) -> None:
        self.what = what
        self.value = value
        super().__init__(f"{what}: {str(value)[:64]!r}")


class InvalidMessage(InvalidInput):
    """A message cannot be read, is none of the catalogue, or is not allowed now."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem[:300])


class StoreUnavailable(LinguaError):
    """The store could not be reached; the call did not run."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(f"store {where} unavailable: {why}")


class OutcomeUnknown(StoreUnavailable):
    """The call was sent and the answer was lost: it may have run."""


class StoreRejected(LinguaError):
    """The server refused a command for a reason that retrying does not cure."""

    def __init__(self, command: str, reply: str) -> None:
        self.command = command
        self.reply = reply
        super().__init__(f"store refused {command}: {reply}")


class EmbeddedServerError(LinguaError):
    """The private server of local mode could not be started or kept running."""
