"""Translation by Apertium: rules and dictionaries, small and quick, weaker than a neural model.

Apertium is free software under the GNU GPL. It stays a set of separate programs here, started as
processes and spoken to through pipes; nothing of it is linked or copied into this package. What is
ours are the rules before, between and after its programs (see `editing`). Directions that Apertium
does not have are done over a language in the middle, mostly Spanish.
Options: `pairs` (`en-es+es-en`; all that are found), `dir` (a tree with `usr/bin` and
`usr/share/apertium`, instead of the model store and the system), `timeout_s`, `rules` (`no`: plain
Apertium, to measure what the rules are worth).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.languages import base_of
from lingua_scheduler.models import default_store
from lingua_scheduler.speech.engine import About, EngineError, ModelMissing, Watch
from lingua_scheduler.speech.engines.apertium import modes
from lingua_scheduler.speech.engines.apertium.editing import edits_for
from lingua_scheduler.speech.engines.apertium.edits import Edits
from lingua_scheduler.speech.engines.apertium.line import Line
from lingua_scheduler.speech.engines.apertium.modes import SYSTEM, Direction, Mode, Place
from lingua_scheduler.speech.engines.sentences import split
from lingua_scheduler.speech.plugins import take

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final[Mapping[str, str]] = {"pairs": "", "dir": "", "timeout_s": "3", "rules": "yes"}
MODELS: Final = (
    "apertium", "apertium-eng-spa", "apertium-fra-spa", "apertium-spa-ita", "apertium-spa-por",
    "apertium-eng-cat",
)  # fmt: skip
MISSING: Final = "no Apertium pair was found; lingua models install apertium-eng-spa"
# Languages in the middle, the best first.
PIVOTS: Final = ("es", "en", "fr", "ca", "pt", "it")
PROBES: Final[Mapping[str, str]] = {
    "en": "The house is big.", "es": "La casa es grande.", "fr": "La maison est grande.",
    "it": "La casa è grande.", "pt": "A casa é grande.", "ca": "La casa és gran.",
}  # fmt: skip
SENTENCE_CHARACTERS_MAX: Final = 600
# Directions kept running; a further one ends the one that was idle longest.
LIVE_MAX: Final = 6


def make(options: Mapping[str, str]) -> Apertium:
    """Find Apertium and its pairs and try them; raises `ModelMissing` if there are none."""
    chosen = take(options, KNOWN)
    found = modes.find_modes(_places(chosen["dir"]))
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


def _places(directory: str) -> tuple[Place, ...]:
    if directory:
        given = Path(directory)
        return tuple(Place(root) for root in (given / "root", given) if (root / "usr").is_dir())
    store = default_store()
    installed = [store.path(name) / "root" for name in MODELS if store.has(name)]
    return (*map(Place, installed), Place(SYSTEM))


class Apertium:
    """The engine; a direction's programs are started when it is first asked for."""

    def __init__(
        self, found: Mapping[Direction, Mode], pairs: str, timeout_s: float, with_rules: bool
    ) -> None:
        asked = modes.wanted(pairs, found)
        # Direct directions that answered when they were tried.
        self._lines = {
            direction: line
            for direction, line in ((key, Line(mode, timeout_s)) for key, mode in found.items())
            if _needed(direction, asked, pairs) and _answers(line, direction)
        }
        # Whether our rules are used; without them it is plain Apertium.
        self._with_rules = with_rules
        # Direction -> the direct ones that it is made of.
        self._routes = routes(set(self._lines))
        if pairs:
            self._routes = {key: way for key, way in self._routes.items() if key in asked}
        missing = [f"{source}>{target}" for source, target in asked if pairs
                   and (source, target) not in self._routes]  # fmt: skip
        if missing or not self._routes:
            raise ModelMissing(f"Apertium cannot do {', '.join(missing)}" if missing else MISSING)
        # The directions that run, the one asked last at the end.
        self._live: list[Direction] = []
        self._trim()

    def about(self) -> About:
        """Tell the directions that answered."""
        return About(
            engine="apertium",
            model="+".join(sorted({">".join(pair) for pair in self._lines})),
            licence="GPL-2.0-or-later (separate programs)",
            pairs=tuple(sorted(self._routes)),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Say it in another language; lines stay lines."""
        route = self._route(source, target)
        said = []
        for line in text.replace("\0", " ").splitlines():
            pieces = []
            for sentence in split(" ".join(line.split()), SENTENCE_CHARACTERS_MAX):
                watch.check()
                pieces.append(self._along(route, sentence))
            said.append(" ".join(filter(None, pieces)))
        return "\n".join(said).strip()

    def _route(self, source: str, target: str) -> tuple[Direction, ...]:
        for key in (
            (source, target), (base_of(source), target), (source, base_of(target)),
            (base_of(source), base_of(target)),
        ):  # fmt: skip
            if key in self._routes:
                return self._routes[key]
        raise EngineError("UNSUPPORTED_FEATURE", f"apertium has no {source}>{target}")

    def _along(self, route: tuple[Direction, ...], sentence: str) -> str:
        for direction in route:
            self._live = [*(pair for pair in self._live if pair != direction), direction]
            sentence = self._lines[direction].translate(
                sentence, edits_for(direction, route[-1][1]) if self._with_rules else Edits()
            )
        self._trim()
        return sentence

    def _trim(self) -> None:
        running = [pair for pair, line in self._lines.items() if line.pids]
        idle = [pair for pair in running if pair not in self._live] + self._live
        for pair in idle[: max(0, len(idle) - LIVE_MAX)]:
            self._lines[pair].close()
        self._live = self._live[-LIVE_MAX:]

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the processes that run now, for whoever measures them."""
        return tuple(pid for line in self._lines.values() for pid in line.pids)

    def close(self) -> None:
        """End all programs."""
        for line in self._lines.values():
            line.close()


def routes(direct: set[Direction]) -> dict[Direction, tuple[Direction, ...]]:
    """Return every direction that one or two direct ones make."""
    found: dict[Direction, tuple[Direction, ...]] = {pair: (pair,) for pair in sorted(direct)}
    for middle in PIVOTS:
        for into in (pair for pair in sorted(direct) if pair[1] == middle):
            for out in (pair for pair in sorted(direct) if pair[0] == middle):
                if base_of(out[1]) != into[0]:
                    found.setdefault((into[0], out[1]), (into, out))
    return found


def _needed(direction: Direction, asked: tuple[Direction, ...], pairs: str) -> bool:
    """Tell whether a direct direction may be part of one that was asked for."""
    return not pairs or any(
        direction == pair or direction[0] == pair[0] or direction[1] == pair[1] for pair in asked
    )


def _answers(line: Line, direction: Direction) -> bool:
    """Try a direction; its programs end again, so that trying many costs no memory."""
    probe = PROBES.get(direction[0])
    try:
        return probe is not None and line.translate(probe, Edits()) not in {"", probe}
    except EngineError:
        return False
    finally:
        line.close()
