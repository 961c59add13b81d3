"""Step 2: put sentences aside for testing, before anything looks at them.

Tatoeba has many translations of one sentence. Pairs that share an English or a Spanish side (but
for case, punctuation and spaces) form one group; a whole group goes to test, development or
training, by the hash of its smallest member. So no sentence of the test, on either side, is ever
seen in training, whichever translation it came with. English sentences of the other corpora, which
are used without a translation, are held to the same rule.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Pair = tuple[str, str]

PARALLEL: Final = ("spa-2023.tsv", "spa-2020.tsv")
ENGLISH_ONLY: Final = ("fra-2020.tsv", "ukr-2023.tsv")
# Of 1000 groups, how many go where.
TEST_SHARE: Final = 13
DEV_SHARE: Final = 13
SHARES: Final = 1000
# A test sentence is "near" if a training sentence has this share of common words.
NEAR: Final = 0.8
FIXED_SIZE: Final = 500
# One sentence with its many translations would count many times: one of them is kept.
MOST_OF_GROUP: Final = 1


def normal(text: str) -> str:
    """Return what counts when two sentences are compared."""
    folded = unicodedata.normalize("NFC", text).casefold()
    kept = "".join(char if char.isalnum() else " " for char in folded)
    return " ".join(kept.split())


def split(raw: Path, out: Path) -> None:
    """Write train, dev, test, the fixed evaluation set and further English sentences."""
    if (out / "english.txt").is_file():
        return
    out.mkdir(parents=True, exist_ok=True)
    pairs = sorted({pair for name in PARALLEL for pair in _pairs(raw / name)})
    parts = _parts(pairs)
    held = {side for name in ("test", "dev") for pair in parts[name] for side in _sides(pair)}
    # The groups already exclude it; checked again here, since all scores depend on it.
    train = [pair for pair in parts["train"] if not held.intersection(_sides(pair))]
    write_pairs(out / "train.tsv", train)
    write_pairs(out / "dev.tsv", _thinned(parts["dev"]))
    test = _thinned(parts["test"])
    write_pairs(out / "test.tsv", test)
    write_pairs(out / "everyday-en-es.tsv", sorted(test, key=_hash)[:FIXED_SIZE])
    write_pairs(out / "test-far.tsv", list(_far(test, train)))
    seen = held | {f"en {normal(english)}" for english, _ in train}
    more = {pair[0] for name in ENGLISH_ONLY for pair in _pairs(raw / name)}
    fresh = sorted(text for text in more if f"en {normal(text)}" not in seen)
    (out / "english.txt").write_text("\n".join(fresh) + "\n", "utf-8")


def read_pairs(path: Path) -> list[Pair]:
    """Read the pairs of a file of this pipeline."""
    lines = path.read_text("utf-8").splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def write_pairs(path: Path, pairs: Iterable[Sequence[str]]) -> None:
    """Write pairs, one on a line, tab between."""
    text = "".join("\t".join(pair) + "\n" for pair in pairs)
    path.write_text(text, "utf-8")


def _pairs(path: Path) -> Iterator[Pair]:
    for line in path.read_text("utf-8").splitlines():
        columns = line.split("\t")
        if len(columns) > 1:
            first, second = (" ".join(unicodedata.normalize("NFC", c).split()) for c in columns[:2])
            if normal(first) and normal(second):
                yield first, second


def _sides(pair: Pair) -> tuple[str, str]:
    return f"en {normal(pair[0])}", f"es {normal(pair[1])}"


def _parts(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Return the pairs of each part: groups are the connected components over shared sides."""
    parent: dict[str, str] = {}

    def root(side: str) -> str:
        parent.setdefault(side, side)
        while parent[side] != side:
            parent[side] = parent[parent[side]]
            side = parent[side]
        return side

    for pair in pairs:
        first, second = sorted(root(side) for side in _sides(pair))
        # The smallest side names the group, so the name does not depend on the order.
        parent[second] = first
    parts: dict[str, list[Pair]] = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        share = int(hashlib.sha256(root(_sides(pair)[0]).encode()).hexdigest(), 16) % SHARES
        is_test, is_dev = share < TEST_SHARE, share < TEST_SHARE + DEV_SHARE
        parts["test" if is_test else "dev" if is_dev else "train"].append(pair)
    return parts


def _hash(pair: Pair) -> str:
    return hashlib.sha256("\t".join(pair).encode()).hexdigest()


def _thinned(pairs: Sequence[Pair]) -> list[Pair]:
    """Keep one pair of those with the same English or Spanish side, by hash."""
    times: dict[str, int] = defaultdict(int)
    kept = []
    for pair in sorted(pairs, key=_hash):
        if all(times[side] < MOST_OF_GROUP for side in _sides(pair)):
            kept.append(pair)
            for side in _sides(pair):
                times[side] += 1
    return sorted(kept)


def _far(test: Sequence[Pair], train: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the test pairs whose English is not nearly a training sentence."""
    index: dict[str, set[int]] = defaultdict(set)
    bags = [frozenset(normal(english).split()) for english, _ in train]
    for number, bag in enumerate(bags):
        for word in bag:
            index[word].add(number)
    for pair in test:
        words = frozenset(normal(pair[0]).split())
        near: dict[int, int] = defaultdict(int)
        # A neighbour shares all but a few words, so it shares one of the rarer ones.
        rare = sorted(words, key=lambda word: len(index[word]))
        for word in rare[: 1 + len(words) // 3]:
            for number in index[word]:
                near[number] += 1
        if not any(len(words & bags[n]) >= NEAR * len(words | bags[n]) for n in near):
            yield pair
