"""Step 4: let Bergamot say the English side in Portuguese.

It is used twice: to find which Portuguese pieces a Spanish piece corresponds to (start.py), and to
score the way over Portuguese that the trained models are compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from training.translation import bergamot
from training.translation.split import read_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARTS: Final = ("test", "dev", "train")
FLUSH_EVERY: Final = 200
# Enough to align the pieces with; all would take half as long again.
MOST: Final = 80_000


def synthesise(raw: Path, data: Path, out: Path) -> None:
    """Write English and Portuguese, one sentence on a line; goes on where it was stopped."""
    english = [pair[0] for part in PARTS for pair in read_pairs(data / f"{part}.tsv")]
    texts = list(dict.fromkeys(english))[:MOST]
    done = len(out.read_text("utf-8").splitlines()) if out.is_file() else 0
    if done < len(texts):
        _translate(texts[done:], raw, out)


def portuguese_spanish(data: Path, synthetic: Path) -> list[tuple[str, str]]:
    """Return the training pairs with Portuguese for English."""
    portuguese = dict(read_pairs(synthetic))
    pairs = read_pairs(data / "train.tsv")
    return [(portuguese[one], other) for one, other in pairs if portuguese.get(one)]


def _translate(texts: Sequence[str], raw: Path, out: Path) -> None:
    translator = bergamot.translator(raw / "enpt")
    with out.open("a", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(f"{text}\t{' '.join(translator.translate(text).split())}\n")
            if number % FLUSH_EVERY == 0:
                file.flush()
