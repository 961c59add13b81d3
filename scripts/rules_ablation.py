"""What each rule for Apertium is worth to the node: chrF of the routed output without it.

One rule after the other is switched off, and the router is measured on the sets of `lingua bench
translation` (prompts and everyday, English and Spanish). What no rule changes is asked once.
`python scripts/rules_ablation.py en`: all rules from English, one by one;
`python scripts/rules_ablation.py en polite negation`: these together.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from lingua_bench.translation.sets import Sentences, all_sets
from lingua_speech.engine import About, Rendered, Translator, Unwatched, Watch
from lingua_speech.engines.apertium import english_spanish, sentence_rules, spanish_english
from lingua_speech.engines.router import Router, make
from lingua_speech.models import default_store
from lingua_speech.scores import chrf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What the rules from a language are measured on: wherever the node uses them.
SETS: Final = {
    "en": (("prompts", "en", "es"), ("everyday", "en", "es"), ("interface", "pt", "es"),
           ("everyday", "en", "fr")),
    "es": (("prompts", "es", "en"), ("everyday", "es", "en"), ("interface", "es", "pt"),
           ("everyday", "fr", "en")),
}  # fmt: skip
# A rule, as what is put where, so that it changes nothing.
Rule = tuple[Any, str, Any]


class Remembered:
    """A translator that is asked once for what no rule changes, and tells what one may change."""

    def __init__(self, engine: Translator, touched: list[bool]) -> None:
        self._engine = engine
        self._touched = touched
        self._is_ruled = engine.about().engine == "apertium"
        self._said: dict[tuple[str, str, str], str | Rendered] = {}

    def about(self) -> About:
        """Tell what it can."""
        return self._engine.about()

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str | Rendered:
        """Ask, or remember."""
        key = (text, source, target)
        if self._is_ruled and "en" in (source, target):
            self._touched[0] = True
            return self._engine.translate(*key, watch)
        if key not in self._said:
            self._said[key] = self._engine.translate(*key, watch)
        return self._said[key]

    def close(self) -> None:
        """Close it."""
        self._engine.close()


class NoLexicon:
    """A lexicon without words."""

    @staticmethod
    def recognise(units: Any) -> Any:
        """Find none."""
        return units

    generate_all = recognise

    @staticmethod
    def translate(unit: Any, only_known: bool = False) -> Any:  # noqa: ARG004 as the real one
        """Know none."""
        return unit


def _same(units: Any, *_: Any) -> Any:
    return units


def rules(source: str) -> dict[str, Rule]:
    """Return every rule from a language, by name."""
    module: Any = english_spanish if source == "en" else spanish_english
    pair = "en-es" if source == "en" else "es-en"
    real = sentence_rules.table_rows
    found: dict[str, Rule] = {
        name: (
            sentence_rules,
            "table_rows",
            lambda asked, name=name: () if asked == name else real(asked),
        )
        for name in (f"{kind}-{pair}.tsv" for kind in ("phrases", "before", "after"))
    }
    found["lexicon"] = (module, "lexicon", lambda _: NoLexicon)
    found |= {name: (module, name, _same) for name in _of_units(module)}
    if source == "en":
        found["commands"] = (module, "commands", lambda units: (units, False))
        found["negation"] = (module, "restore_spanish_negation", lambda _, text: text)
        found["CONTRACTIONS"] = (module, "CONTRACTIONS", ())
    else:
        found["negation"] = (module, "restore_english_negation", lambda _, text: text)
    return found


def _of_units(module: Any) -> list[str]:
    """Return the names of the rules from units (or text) to the same."""
    into_spanish = (
        "plain_words verbs_after_helpers participles plainer_words spanish_commands ser_or_estar"
        " subjunctive_after_when personal_a polite with_opening_marks"
    )
    into_english = "commands whose chosen_verbs to_you agreeing compounds"
    return (into_spanish if module is english_spanish else into_english).split()


@contextmanager
def without(chosen: Sequence[Rule]) -> Iterator[None]:
    """Let rules change nothing for a while."""
    with ExitStack() as stack:
        for module, name, value in chosen:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


class Measure:
    """The node on the sets of one direction."""

    def __init__(self, router: Router, sets: Sequence[Sentences], touched: list[bool]) -> None:
        self._router = router
        self._sets = sets
        self._touched = touched
        self._said = [[self._first(text, one) for text in one.texts] for one in sets]
        self.whole = self._scores([[text for text, _ in said] for said in self._said])

    def _first(self, text: str, one: Sentences) -> tuple[str, bool]:
        self._touched[0] = False
        return self._ask(text, one), self._touched[0]

    def _ask(self, text: str, one: Sentences) -> str:
        return self._router.translate(text, *one.direction, Unwatched()).text

    def _scores(self, said: list[list[str]]) -> list[float]:
        return [chrf(got, one.references) for got, one in zip(said, self._sets, strict=True)]

    def changes(self, chosen: Sequence[Rule]) -> list[float]:
        """Return what chrF changes by without these rules, on each set."""
        with without(chosen):
            sentence_rules.phrases.cache_clear()
            sentence_rules.patterns.cache_clear()
            said = [
                [self._ask(text, one) if is_touched else before
                 for text, (before, is_touched) in zip(one.texts, known, strict=True)]
                for one, known in zip(self._sets, self._said, strict=True)
            ]  # fmt: skip
        sentence_rules.phrases.cache_clear()
        sentence_rules.patterns.cache_clear()
        pairs = zip(self._scores(said), self.whole, strict=True)
        return [got - before for got, before in pairs]


def measure(source: str, names: Sequence[str]) -> None:
    """Print what the node has, and what it has less without each rule from a language."""
    known = {(one.name, *one.direction): one for one in all_sets(default_store())}
    touched, router = [False], make({})
    engines: Any = router._engines  # noqa: SLF001 only here it is looked into
    engines.update({name: Remembered(engine, touched) for name, engine in engines.items()})
    table = rules(source)
    whole = Measure(router, [known[name] for name in SETS[source]], touched)
    print(f"from {source}", *("{} {}>{}".format(*name) for name in SETS[source]), sep="\t")
    print("all rules", *(f"{score:.2f}" for score in whole.whole), sep="\t", flush=True)
    for group in [[name] for name in table] if not names else [names]:
        changes = whole.changes([table[name] for name in group])
        print(" ".join(group), *(f"{change:+.2f}" for change in changes), sep="\t", flush=True)
    router.close()


def main() -> None:
    """Measure what the command line says."""
    measure(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
