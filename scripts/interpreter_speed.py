"""Print how slow this interpreter is, for `scripts/interpreter.sh`: less is better.

The number is the least time of several rounds of what the scheduler's CPU goes to: calls,
attributes, dictionaries, small objects and texts. Exits with an error if the interpreter is too old
or cannot make an environment.
"""

import ensurepip  # noqa: F401 Debian has it in a package of its own
import sys
import sysconfig
import time
import venv  # noqa: F401 the same
from pathlib import Path

ROUNDS, STEPS = 9, 20_000
# More than any time: a package that has no wheel cannot be built without the headers.
WITHOUT_HEADERS = 1_000_000_000


class Message:
    """Something with a few attributes."""

    __slots__ = ("index", "kind", "size")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.size = len(kind) + index


def work(steps: int) -> int:
    """Do what messages cause; return something that depends on all of it."""
    known: dict[str, Message] = {}
    total = 0
    for index in range(steps):
        message = Message(index & 255, "utterance")
        name = f"{message.kind}:{message.index}"
        before = known.get(name)
        known[name] = message
        total += message.size if before is None else before.index
    return total


def main() -> None:
    """Measure and print."""
    if sys.version_info < (3, 11):  # noqa: UP036 that is what is asked
        sys.exit(1)
    least_ns = WITHOUT_HEADERS
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        work(STEPS)
        least_ns = min(least_ns, time.process_time_ns() - began)
    has_headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    sys.stdout.write(f"{least_ns if has_headers else least_ns + WITHOUT_HEADERS}\n")


if __name__ == "__main__":
    main()
