"""English into Spanish: hints for Apertium and corrections of its output. Pure.

Before the programs: contractions are written out. Between them: commands, words that may be nouns
or verbs, the supplementary lexicon. After them: polite forms (usted; vosotros on the way to French,
where it becomes vous), ser and estar, the subjunctive after `cuando`, the `a` before persons,
question marks. Each rule is one function, in the order of use.
"""

from __future__ import annotations

import re
from typing import Final

from lingua_speech.engines.apertium import sentence_rules
from lingua_speech.engines.apertium.lexicon import lexicon
from lingua_speech.engines.apertium.negation import restore_spanish_negation
from lingua_speech.engines.apertium.sentence_rules import SentenceRules
from lingua_speech.engines.apertium.spanish_rules import (
    personal_a,
    plainer_words,
    plural_you,
    polite,
    ser_or_estar,
    small_first,
    spanish_commands,
    subjunctive_after_when,
    with_opening_marks,
)
from lingua_speech.engines.apertium.stream import LexicalUnit, Units
from lingua_speech.engines.apertium.units import (
    CLAUSE_ENDS,
    at,
    can_be,
    drop_tags,
    has,
    keep_tags,
    must_be,
    reading,
    word,
    word_set,
    written,
)

PRONOUN: Final = r"(?:I|you|he|she|it|we|they)"
# Words that begin a command even where they could be nouns.
COMMANDS: Final = word_set(
    "press dial enter hold call check record use stay start stop turn wait visit help listen say"
    " tell give bring send show try open close take keep let come go sit look watch put leave"
    " return answer talk write read sign follow move change repeat remember choose select select"
    " remain push pull drive walk run eat drink ask speak be make get stand switch save delete"
    " contact consult continue complete confirm hang pay order add remove click type lock"
    " unlock mute unmute re-enter pick cancel review erase replace set log"
)
MODALS: Final = word_set("will would can could shall should may might must not to")
# Verbs whose "to" is a direction: a noun is more likely to follow than a verb.
GOING_TO: Final = word_set("switch return listen go connect reply respond talk speak back")
CONTRACTIONS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), plain)
    for pattern, plain in (
        (r"\bcan(?:'t|not)\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"\bshan't\b", "shall not"),
        (r"\bain't\b", "is not"),
        (r"(?<=\w)n't\b", " not"),
        (r"\blet's\b", "let us"),
        (r"\b(I)'m\b", r"\1 am"),
        (r"(?<=\w)'re\b", " are"),
        (r"(?<=\w)'ve\b", " have"),
        (r"(?<=\w)'ll\b", " will"),
        (r"\b(it|he|she|that|there|who|what)'s(?= (?:been|got|had)\b)", r"\1 has"),
        (
            r"\b(it|he|she|that|there|here|what|where|who|how|when|everything|everyone)'s\b",
            r"\1 is",
        ),
        (rf"\b({PRONOUN})'d(?= (?:better|been)\b)", r"\1 had"),
        (rf"\b({PRONOUN})'d\b", r"\1 would"),
        (r"\b(?:gonna)\b", "going to"),
        (r"\b(?:wanna)\b", "want to"),
        (r"\b(?:gotta)\b", "have to"),
    )
)


class EnglishSpanishRules(SentenceRules):
    """The rules, for one sentence."""

    table = "en-es"

    def __init__(self, address: str = "usted", is_intermediate: bool = False) -> None:
        super().__init__()
        # Whether Spanish is the pivot language of a longer route.
        self._is_intermediate = is_intermediate
        # The form of "you": usted, or vosotros where another direction follows.
        self._address = address
        # Whether the sentence has a negated command.
        self._forbids = False
        # Whether the sentence begins with a capital letter, and whether it is a statement about
        # "you".
        self._starts_large = True
        self._says_you = False
        self._source = ""

    def before(self, text: str) -> str:
        """Rewrite the English text as the analyser expects it."""
        self._source = text
        self._starts_large = not text[:1].islower()
        text = text.replace("’", "'")  # noqa: RUF001
        text = re.sub(r"\bi\b(?!\.)", "I", text)
        for pattern, plain in CONTRACTIONS:
            text = pattern.sub(plain, text)
        for pattern, plain in sentence_rules.patterns("before-en-es.tsv"):
            text = pattern.sub(plain, text)
        return self.extract_phrases(text)

    def analysed(self, units: Units) -> Units:
        """Choose readings."""
        units = lexicon("es").recognise(sentence_rules.analyse_placeholders(units))
        units = plain_words(units)
        units = verbs_after_helpers(units)
        units, self._forbids = commands(units)
        return participles(units)

    def tagged(self, units: Units) -> Units:
        """Note whether the sentence is a statement about "you"."""
        is_question = any(reading(unit).startswith("?") for unit in units)
        self._says_you = has(units[0], "prn", "subj", "p2") and not is_question
        return units

    def bilingual(self, units: Units) -> Units:
        """Choose translations."""
        units = sentence_rules.copy_placeholders(units)
        return [
            unit
            if _leaves_something(units, index)
            else lexicon("es").translate(unit, only_known=self._is_intermediate)
            for index, unit in enumerate(units)
        ]

    def target(self, units: Units) -> Units:
        """Correct the Spanish words."""
        units = plainer_words(units)
        units = spanish_commands(units, self._forbids)
        units = ser_or_estar(units)
        units = subjunctive_after_when(units)
        units = personal_a(units)
        if self._address == "usted":
            units = polite(units)
            if self._says_you:
                units = [LexicalUnit("", ("Prpers<prn><tn><p3><mf><sg>",)), *small_first(units)]
        else:
            units = plural_you(units)
        return lexicon("es").generate_all(sentence_rules.write_placeholders(units))

    def after(self, text: str) -> str:
        """Correct punctuation and capitals."""
        text = sentence_rules.tidy(self.insert_phrases(text))
        for pattern, replacement in _after():
            text = pattern.sub(replacement, text)
        text = with_opening_marks(restore_spanish_negation(self._source, text))
        return sentence_rules.capitalised(text) if self._starts_large else text


def _leaves_something(units: Units, index: int) -> bool:
    """Tell whether "leave" has an object (a message) rather than meaning to go away."""
    return word(units[index]) == "leave" and has(at(units, index + 1), "det")


def plain_words(units: Units) -> Units:
    """Drop readings that are very rare in spoken English."""
    found = []
    is_question = any(unit.parts and unit.parts[0] == "?" for unit in units)
    for index, seen in enumerate(units):
        unit = seen
        name = written(unit)
        if name in {"i", "will", "must", "can", "may", "might"}:
            unit = drop_tags(drop_tags(unit, "num"), "n")
        elif name in {"open", "closed", "free", "clean"} and can_be(at(units, index - 1), "vbser"):
            unit = keep_tags(unit, "adj")
        elif name == "please":
            unit = keep_tags(unit, "adv")
        elif name == "when" and not (is_question and index == 0):
            unit = keep_tags(unit, "cnjadv")
        elif name == "only" and can_be(at(units, index + 1), "n", "pl"):
            unit = keep_tags(unit, "adv")
        elif name == "you" and _is_verb(at(units, index + 1)):
            unit = keep_tags(unit, "subj")
        elif name == "you" and must_be(at(units, index - 1), "pr"):
            unit = keep_tags(unit, "obj")
        elif name in {"who", "which"} and can_be(at(units, index - 1), "n"):
            unit = keep_tags(unit, "rel")
        found.append(unit)
    return found


def _is_verb(unit: LexicalUnit) -> bool:
    if any(can_be(unit, tag) for tag in ("vaux", "vbser", "vbhaver", "vbdo")):
        return True
    return must_be(unit, "vblex") and (can_be(unit, "pres") or can_be(unit, "past"))


def verbs_after_helpers(units: Units) -> Units:
    """Read a verb after `to`, `will`, `can not` and the like as an infinitive."""
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        back = index - 1
        while back >= 0 and must_be(units[back], "adv") and written(units[back]) != "not":
            back -= 1
        helper = at(units, back)
        if written(helper) in MODALS and can_be(unit, "inf") and not can_be(unit, "vaux"):
            direction = written(helper) == "to" and written(at(units, back - 1)) in GOING_TO
            follows_thing = can_be(at(units, index + 1), "det") or not can_be(unit, "n")
            if not direction or follows_thing:
                unit = keep_tags(unit, "inf")
        found.append(unit)
    return found


def commands(units: Units) -> tuple[Units, bool]:
    """Find commands, bare verbs that begin a clause, and tell whether one is negated."""
    found: Units = []
    commanding = forbids = False
    for index, seen in enumerate(units):
        unit = seen
        before = at(units, index - 1)
        begins = _begins_clause(units, index) or (
            commanding and written(before) in {"and", "or", "then"}
        )
        if written(unit) == "do" and begins and written(at(units, index + 1)) == "not":
            unit = keep_tags(unit, "vbdo")
            forbids = True
        elif begins and _is_command(unit, at(units, index + 1)):
            unit = keep_tags(unit, "inf")
            commanding = True
        found.append(unit)
    return found, forbids


def _begins_clause(units: Units, index: int) -> bool:
    before = at(units, index - 1)
    if not before.parts:
        return True
    if any(can_be(before, tag) for tag in CLAUSE_ENDS) or before.parts[0] in {":", ";"}:
        return True
    return written(before) in {"please", "just", "now"}


def _is_command(unit: LexicalUnit, after: LexicalUnit) -> bool:
    if not can_be(unit, "inf") or can_be(unit, "vaux") or can_be(after, "vbser"):
        return False
    if can_be(unit, "vbdo") and can_be(after, "prn", "subj"):
        return False
    if written(unit) in COMMANDS:
        return not can_be(after, "vaux")
    if can_be(unit, "adj") or can_be(unit, "adv") or can_be(unit, "vbhaver"):
        return False
    follows_thing = can_be(after, "det") or can_be(after, "prn")
    return follows_thing or not can_be(unit, "n")


def participles(units: Units) -> Units:
    """Read a form in -ed after `be` and `have`, or before `by`, as a participle."""
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        if can_be(unit, "past") and can_be(unit, "pp"):
            back = index - 1
            while back >= 0 and (must_be(units[back], "adv") or written(units[back]) == "not"):
                back -= 1
            helper = at(units, back)
            if (
                can_be(helper, "vbser")
                or can_be(helper, "vbhaver")
                or written(at(units, index + 1)) == "by"
                or (can_be(at(units, index - 1), "n") and _is_object(units, index - 1))
            ):
                unit = keep_tags(unit, "pp")
        found.append(unit)
    return found


def _is_object(units: Units, index: int) -> bool:
    """Tell whether a noun follows an infinitive, with or without an article."""
    before = at(units, index - 1)
    return must_be(before, "inf") or (
        can_be(before, "det") and must_be(at(units, index - 2), "inf")
    )


def _after() -> tuple[tuple[re.Pattern[str], str], ...]:
    return sentence_rules.patterns("after-en-es.tsv")
