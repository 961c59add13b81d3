"""The results of the benchmark of translation, and the numbers to quote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_speech.routing.routes import SETS
from lingua_translate import quantile

if TYPE_CHECKING:
    from lingua_bench.translation.sets import Direction
    from lingua_speech.routing.table import Score

# The directions of the numbers to quote.
QUOTED: Final[tuple[Direction, ...]] = (("en", "es"), ("es", "en"), ("en", "pt"), ("pt", "en"))
# The name of the node's own choice among the routes.
NODE: Final = "router"


@dataclass(slots=True)
class TranslationReport:
    """The results of one run."""

    # Each route alone, as the router could take it.
    routes: list[Score] = field(default_factory=list)
    # The results of the default node, sentence by sentence.
    node: list[Score] = field(default_factory=list)
    # Of the node, over all sentences.
    took_ms: list[float] = field(default_factory=list)
    # What the router remarked, and how often.
    remarks: dict[str, int] = field(default_factory=dict)

    def summary(self) -> dict[str, float]:
        """Return the numbers to quote, each on the set that decides in its direction."""
        found: dict[str, float] = {}
        for source, target in QUOTED:
            score = self.deciding(f"{source}>{target}")
            found[f"chrf_{source}_{target}"] = round(score.chrf, 2) if score else 0.0
        found["p50_ms"] = round(quantile(self.took_ms, 0.5), 1)
        found["p95_ms"] = round(quantile(self.took_ms, 0.95), 1)
        return found

    def deciding(self, direction: str) -> Score | None:
        """Return the score of the node in a direction, on the set that decides."""
        by_set = {score.set: score for score in self.node if score.direction == direction}
        return next((by_set[name] for name in SETS if name in by_set), None)

    def objects(self) -> list[dict[str, object]]:
        """Return everything measured, one object each, the summary last."""
        rows = [{"kind": "route", **msgspec.to_builtins(score)} for score in self.routes]
        rows += [{"kind": "node", **msgspec.to_builtins(score)} for score in self.node]
        return [*rows, {"kind": "remarks", **self.remarks}, dict(self.summary())]
