"""Find from which score on a network of ours is better than the other ways, and write it down.

    python scripts/tune_small.py DEV.tsv [--weights FOLDER]

DEV.tsv has `english<TAB>spanish`, sentences that were not trained on and are not those of the
benchmark. Each is translated by the network and by the router without it; of all bounds that are
worth nearly as much as the best one the strictest is taken, because what differs from these
sentences is where a small network invents.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from lingua_speech.engine import Unwatched
from lingua_speech.engines import ctranslate, router
from lingua_speech.engines.small import CARD, OWN, read_card
from lingua_speech.scores import chrf

BOUNDS = [-number / 20 for number in range(2, 31)]
# So much chrF may be given for caution.
NEARLY = 0.5
SENTENCES = 600


def main() -> int:
    """Tune every direction of the card."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dev", type=Path)
    parser.add_argument("--weights", type=Path, default=OWN)
    args = parser.parse_args()
    lines = args.dev.read_text(encoding="utf-8").splitlines()[:SENTENCES]
    rows = [(line.split("\t")[0], line.split("\t")[1]) for line in lines]
    others = router.make({"use": "bergamot+apertium"})
    try:
        for name in read_card(args.weights).folders:
            write(args.weights / CARD, name, best_bound(args.weights / name, name, rows, others))
    finally:
        others.close()
    return 0


def best_bound(
    folder: Path, name: str, rows: list[tuple[str, str]], others: router.Router
) -> float:
    """Return the bound for one direction, and say what it is worth."""
    source, target = name.split("-")
    engine = ctranslate.make({f"dir.{name}": str(folder)})
    sides = rows if source == "en" else [(other, one) for one, other in rows]
    wanted = [reference for _, reference in sides]
    watch = Unwatched()
    ours = [engine.translate_with_score(text, source, target, watch) for text, _ in sides]
    theirs = [others.translate(text, source, target, watch).text for text, _ in sides]
    worth = {
        bound: chrf(
            [guess.text if guess.score >= bound else other
             for guess, other in zip(ours, theirs, strict=True)],
            wanted,
        )
        for bound in BOUNDS
    }  # fmt: skip
    most = max(worth.values())
    bound = max(bound for bound in BOUNDS if worth[bound] >= most - NEARLY)
    alone = chrf([guess.text for guess in ours], wanted)
    share = sum(guess.score >= bound for guess in ours) / len(ours)
    print(f"{name}: alone {alone:.1f}, without it {chrf(theirs, wanted):.1f}, from {bound} on "
          f"{worth[bound]:.1f} ({share:.0%} of {len(ours)} by the network)")  # fmt: skip
    return bound


def write(card: Path, name: str, bound: float) -> None:
    """Put the bound into the card."""
    text = re.sub(rf"(\[folders\.{name}\]\n)(?:least_score = \S+\n)?",
                  rf"\g<1>least_score = {bound}\n", card.read_text("utf-8"))  # fmt: skip
    card.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
