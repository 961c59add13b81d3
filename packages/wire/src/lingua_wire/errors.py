"""The errors that all packages share, in one tree; the scheduler adds those of its store.

LinguaError
├── ConfigError            a setting or an option is unknown or impossible; nothing was started
└── InvalidInput           something from outside cannot be used
    ├── InvalidLanguage    ...not a valid language code
    ├── InvalidLabel       ...not a valid label of a node
    ├── InvalidGlossary    ...a glossary that is too large, or has an invalid term
    └── InvalidMessage     ...a message that is malformed, unknown or not allowed now
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


class InvalidLanguage(InvalidInput):
    """Not a valid language code."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"not a language code: {code[:40]!r}")


class InvalidLabel(InvalidInput):
    """Not a valid label of a node."""

    def __init__(self, label: str, problem: str = "not a label (a letter or digit, then _ . -)"):
        self.label = label
        super().__init__(f"{problem}: {label[:64]!r}")


class InvalidGlossary(InvalidInput):
    """A glossary is too large, or has an invalid term."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"glossary: {problem}"[:300])


class InvalidMessage(InvalidInput):
    """A message is malformed, unknown or not allowed now."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem[:300])
