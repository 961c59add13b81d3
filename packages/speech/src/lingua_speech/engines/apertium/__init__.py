"""Translation by Apertium: rules and dictionaries, small and fast, weaker than a neural model.

Apertium is free software under the GNU GPL. It remains a set of separate programs here, started as
processes and connected by pipes; nothing of it is linked or copied into this package. Our own part
is the rules before, between and after its programs (see `directions`). A direction that Apertium
lacks is translated through a pivot language, mostly Spanish.
Options: `pairs` (`en-es+es-en`; default: all that are found), `dir` (a tree with `usr/bin` and
`usr/share/apertium`, instead of the model store and the system), `timeout_s`, `rules` (`no`: plain
Apertium, to measure the effect of the rules).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_speech.engine import About, EngineError, ModelMissing, Watch
from lingua_speech.engines.apertium import modes
from lingua_speech.engines.apertium.direct import DirectTranslator
from lingua_speech.engines.apertium.directions import rules_for
from lingua_speech.engines.apertium.modes import SYSTEM, ApertiumTree, Direction, Mode
from lingua_speech.engines.apertium.pivots import routes
from lingua_speech.engines.apertium.sentence_rules import SentenceRules
from lingua_speech.engines.language_pairs import matching_pairs
from lingua_speech.engines.sentences import split
from lingua_speech.models import default_store
from lingua_speech.plugins import take
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final[Mapping[str, str]] = {"pairs": "", "dir": "", "timeout_s": "3", "rules": "yes"}
MODELS: Final = (
    "apertium",
    "apertium-eng-spa",
    "apertium-fra-spa",
    "apertium-spa-ita",
    "apertium-spa-por",
    "apertium-eng-cat",
)
MISSING: Final = "no Apertium pair was found; lingua models install apertium-eng-spa"
PROBES: Final[Mapping[str, str]] = {
    "en": "The house is big.",
    "es": "La casa es grande.",
    "fr": "La maison est grande.",
    "it": "La casa è grande.",
    "pt": "A casa é grande.",
    "ca": "La casa és gran.",
}
SENTENCE_CHARACTERS_MAX: Final = 600
# Directions kept running; one more ends the direction that was idle longest.
LIVE_MAX: Final = 6


def make(options: Mapping[str, str]) -> Apertium:
    """Find Apertium and its pairs and test them; raises `ModelMissing` if there are none."""
    chosen = take(options, KNOWN)
    found = modes.find_modes(_trees(chosen["dir"]))
    if not found:
        raise ModelMissing(MISSING)
    with_rules = chosen["rules"] != "no"
    return Apertium(found, chosen["pairs"], _timeout_s(chosen["timeout_s"]), with_rules)


def _timeout_s(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 600:
        raise ConfigError("engines", f"timeout_s must be above 0 and at most 600, not {text!r}")
    return value


def _trees(directory: str) -> tuple[ApertiumTree, ...]:
    if directory:
        given = Path(directory)
        return tuple(
            ApertiumTree(root) for root in (given / "root", given) if (root / "usr").is_dir()
        )
    store = default_store()
    installed = [store.path(name) / "root" for name in MODELS if store.has(name)]
    return (*map(ApertiumTree, installed), ApertiumTree(SYSTEM))


class Apertium:
    """The engine; the programs of a direction are started at its first use."""

    def __init__(
        self, found: Mapping[Direction, Mode], pairs: str, timeout_s: float, with_rules: bool
    ) -> None:
        requested = modes.requested_directions(pairs, found)
        # Direct directions that passed their test.
        self._translators = {
            direction: translator
            for direction, translator in (
                (key, DirectTranslator(mode, timeout_s)) for key, mode in found.items()
            )
            if _is_needed(direction, requested, pairs) and _answers(translator, direction)
        }
        # Whether our rules are used; without them this is plain Apertium.
        self._with_rules = with_rules
        # Direction -> the direct directions that it consists of.
        self._routes = routes(set(self._translators))
        if pairs:
            self._routes = {key: way for key, way in self._routes.items() if key in requested}
        missing = [">".join(pair) for pair in requested if pairs and pair not in self._routes]
        if missing or not self._routes:
            raise ModelMissing(f"Apertium cannot do {', '.join(missing)}" if missing else MISSING)
        # The running directions, the most recently used last.
        self._live: list[Direction] = []
        self._stop_idle()

    def about(self) -> About:
        """Return the directions that passed their test."""
        return About(
            engine="apertium",
            model="+".join(sorted({">".join(pair) for pair in self._translators})),
            licence="GPL-2.0-or-later (separate programs)",
            pairs=tuple(sorted(self._routes)),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Translate a text line by line."""
        route = self._route(source, target)
        lines = []
        for line in text.replace("\0", " ").splitlines():
            pieces = []
            for sentence in split(" ".join(line.split()), SENTENCE_CHARACTERS_MAX):
                watch.check()
                pieces.append(self._translate_along(route, sentence))
            lines.append(" ".join(filter(None, pieces)))
        return "\n".join(lines).strip()

    def _route(self, source: str, target: str) -> tuple[Direction, ...]:
        for pair in matching_pairs(source, target):
            if pair in self._routes:
                return self._routes[pair]
        raise EngineError("UNSUPPORTED_FEATURE", f"apertium has no {source}>{target}")

    def _translate_along(self, route: tuple[Direction, ...], sentence: str) -> str:
        for direction in route:
            self._live = [*(pair for pair in self._live if pair != direction), direction]
            sentence = self._translators[direction].translate(
                sentence,
                rules_for(direction, route[-1][1]) if self._with_rules else SentenceRules(),
            )
        self._stop_idle()
        return sentence

    def _stop_idle(self) -> None:
        running = [pair for pair, one in self._translators.items() if one.pids]
        idle = [pair for pair in running if pair not in self._live] + self._live
        for pair in idle[: max(0, len(idle) - LIVE_MAX)]:
            self._translators[pair].close()
        self._live = self._live[-LIVE_MAX:]

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the running processes, for measurements."""
        return tuple(pid for one in self._translators.values() for pid in one.pids)

    def close(self) -> None:
        """End all programs."""
        for translator in self._translators.values():
            translator.close()


def _is_needed(direction: Direction, requested: tuple[Direction, ...], pairs: str) -> bool:
    """Tell whether a direct direction may be part of a requested one."""
    return not pairs or any(
        direction == pair or direction[0] == pair[0] or direction[1] == pair[1]
        for pair in requested
    )


def _answers(translator: DirectTranslator, direction: Direction) -> bool:
    """Test a direction; its programs end afterwards, so testing many costs no memory."""
    probe = PROBES.get(direction[0])
    try:
        return probe is not None and translator.translate(probe, SentenceRules()) not in {"", probe}
    except EngineError:
        return False
    finally:
        translator.close()
