"""2,000 odd texts through the router as a node has it: what is said again, left out or changed.

`python scripts/odd_texts.py "en>es" [FILE]`: the counts, and each line that says something more
often in a row than its source does; FILE gets all lines, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import itertools

from training.translation import odd

from lingua_bench.translation.sets import file_text, read
from lingua_speech.engine import Unwatched
from lingua_speech.engines import sentences
from lingua_speech.engines.router import make
from lingua_speech.routing import guards

if TYPE_CHECKING:
    from collections.abc import Sequence

ODD, NUMBERED = 1700, 300


class Line(NamedTuple):
    """A text and what became of it."""

    source: str
    said: str
    route: str
    remarks: tuple[str, ...]
    took_s: float


def within(text: str) -> int:
    """Return how often something is said again right away within one sentence."""
    return max(map(guards.repetition, sentences.split(sentences.plain(text))), default=0)


def whole(text: str) -> int:
    """Return how often one sentence is said again right away."""
    said = [guards.SPOKEN.findall(one.lower()) for one in sentences.split(sentences.plain(text))]
    most = again = 0
    for before, after in itertools.pairwise(said):
        again = again + 1 if before == after else 0
        most = max(most, again)
    return most


def says_more(line: Line) -> bool:
    """Tell whether something is said more often in a row than in the source."""
    allowed = max(within(line.source), whole(line.source), guards.repetition(line.source))
    return within(line.said) > allowed or whole(line.said) > allowed


def translated(source: str, target: str) -> list[Line]:
    """Put all texts through the router."""
    sets = {one.direction: one for one in read("everyday", file_text("everyday-en-es.tsv"))}
    texts = odd.inputs(sets[source, target].texts, ODD) + odd.numbered(source, NUMBERED)
    router = make({})
    found = []
    for text in texts:
        began = perf_counter()
        done = router.translate(text, source, target, Unwatched())
        took_s = perf_counter() - began
        found.append(Line(text, done.text, done.route, done.remarks, took_s))
    router.close()
    return found


def report(lines: Sequence[Line], direction: tuple[str, str]) -> None:
    """Print the counts, and what is to be looked at."""
    changed = [
        line for line in lines if any(guards.changed_numbers(line.source, line.said, direction))
    ]
    more = [line for line in lines if says_more(line)]
    print(
        ">".join(direction), f"{len(lines)} texts, slowest {max(one.took_s for one in lines):.1f} s"
    )
    print(
        f"empty answers: {sum(not one.said.strip() and bool(one.source.strip()) for one in lines)}"
    )
    untold = sum(guards.NUMBERS not in one.remarks for one in changed)
    print(f"numbers changed: {len(changed)}, of which untold: {untold}")
    print(f"said more often in a row than in the source: {len(more)}")
    for line in more:
        print(f"  {line.route} {line.remarks}\n    {line.source[:200]}\n    {line.said[:200]}")


def main() -> None:
    """Do it."""
    source, _, target = sys.argv[1].partition(">")
    lines = translated(source, target)
    report(lines, (source, target))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(lines, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
