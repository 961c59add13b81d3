"""Detects bad translations of any engine, and repairs some of them. Pure.

Small models repeat themselves, return nothing, omit numbers or invent text for unknown input. This
shows only in comparison with the source: a translation must not repeat more, must be about as long
and must contain the same figures. The router checks each sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

from lingua_speech.routing import protected
from lingua_speech.text.figures import LOW
from lingua_speech.text.words import NUMBER_WORDS
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EMPTY, LOOP, LONG, SHORT = "mt_empty", "mt_repetition", "mt_too_long", "mt_too_short"
SPANS, NUMBERS, COPIED = "mt_spans_lost", "mt_numbers_changed", "mt_untranslated"
# Reported by an engine about its own translation.
UNSURE = "mt_unsure"
NAMES = "mt_names_changed"
# The weight of each finding: of several bad translations the one with the least is used.
WEIGHTS: Final[Mapping[str, int]] = {
    EMPTY: 100,
    LOOP: 60,
    LONG: 30,
    SHORT: 30,
    SPANS: 20,
    NUMBERS: 8,
    UNSURE: 6,
    NAMES: 5,
    COPIED: 4,
}
# Remarks on a translation by another than the best route, and on a repaired one.
FALLBACK, REPAIRED = "mt_fallback", "mt_repaired"
REMARKS: Final = (FALLBACK, REPAIRED, *WEIGHTS)
# The limits of the length in relation to the source, with a tolerance in letters.
LONGEST, LONG_SPARE = 2.2, 30
SHORTEST, SHORT_SPARE = 0.4, 12
# Characters that count as several letters.
DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
DENSE_LETTERS: Final = 3
# The longest phrase that is checked for repetition, in words; `It's` is one word.
PHRASE_WORDS_MAX: Final = 16
SPOKEN = re.compile(r"\w+(?:['\u2019]\w+)*")
# Repeated letters within a word: `hahahaha`.
RUN = re.compile(r"(\S{1,12}?)\1{3,}")
COPIED_WORDS: Final = 4
FIGURE = re.compile(r"\d(?:[\d.,'\u2019\u00a0\u202f]*\d)?")
SEPARATORS = re.compile(r"\D")
AFTERNOON = re.compile(r"\b[ap]\.? ?m\b\.?", re.IGNORECASE)
# Chinese numerals; and figures before such a character: 3 ten thousands, or the third month.
CHINESE_NUMBER = re.compile("[零〇一二三四五六七八九十百千万亿两]")
CHINESE_FIGURE = re.compile(r"\d(?:[\d.,]*\d)?(?=[十百千万亿月])")
WORD = re.compile(r"\w+")
# A capitalised word in mid-sentence or after a title; stand-ins are excluded.
_TITLES = "|".join(rf"(?<=\b{title}\. )" for title in ("Mr", "Ms", "Mrs", "Dr", "Sr", "Sra", "Dra"))
NAME = re.compile(rf"(?:(?<=[\w,;:] )|{_TITLES})(?!XQ\d)([A-Z\u00c0-\u00dd][^\W\d_]{{2,}})")
SHORT_NAME_LETTERS: Final = 4
_NOT_NAMES = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june"
    " july august september october november december english spanish french german italian"
    " portuguese japanese chinese american european british russian christmas easter god mister"
    " doctor mrs"
)
NOT_NAMES: Final = frozenset(_NOT_NAMES.split())
_PT = "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze"
# Small numbers in words, by language, starting with zero.
NUMBER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {**LOW, "pt": tuple(_PT.split())}
_ALSO: Final[Mapping[str, str]] = {
    "1": "una un uma une primero first primeiro once ein eine a an",
    "2": "duas segundo second",
    "3": "third tercero",
    "14": "catorze quatorze",
}
# Other words for a number -> its figure.
ALSO: Final = {word: figure for figure, words in _ALSO.items() for word in words.split()}


def findings(source: str, output: str, direction: tuple[str, str]) -> tuple[str, ...]:
    """Return the findings on a translation, the worst first; empty if it is plausible."""
    if not _letters(source):
        return ()
    if not _letters(output):
        return (EMPTY,)
    checks = {
        LOOP: repetition(output) > repetition(source) or _run(output) > max(_run(source), 12),
        LONG: _letters(output) > LONGEST * _letters(source) + LONG_SPARE,
        SHORT: _letters(output) < SHORTEST * _letters(source) - SHORT_SPARE,
        SPANS: not protected.is_whole(source, output),
        NUMBERS: any(changed_numbers(source, output, direction)),
        NAMES: bool(changed_names(source, output)),
        COPIED: _is_copied(source, output),
    }
    return tuple(name for name, is_found in checks.items() if is_found)


def weight(found: Sequence[str]) -> int:
    """Return the total weight of findings."""
    return sum(WEIGHTS[name] for name in found)


def _letters(text: str) -> int:
    """Return the length in letters and digits; a Chinese character counts as several."""
    said = sum(sign.isalnum() for sign in text)
    return said + (DENSE_LETTERS - 1) * len(DENSE.findall(text))


def _is_copied(source: str, output: str) -> bool:
    words = [word.lower() for word in WORD.findall(source) if word.isalpha()]
    said = [word.lower() for word in WORD.findall(output) if word.isalpha()]
    return len(words) >= COPIED_WORDS and words == said


# Names


def changed_names(source: str, output: str) -> tuple[str, ...]:
    """Return the names in mid-sentence for which a translation has no similar word.

    `London` may become `Londres`, but not `Willoutt`. A name that differs between languages
    (`Germany`) is found, too; if all translators change it, the change is right.
    """
    words = WORD.findall(source)
    if 2 * sum(word[0].isupper() for word in words) > len(words) + 2:
        # A headline, or text in capitals.
        return ()
    names = (found[1] for found in NAME.finditer(source))
    # Only capitalised words: `primer` is not a translation of `Priestley`.
    said = [_bare(word) for word in WORD.findall(output) if word[0].isupper()]
    return tuple(
        name
        for name in names
        if _bare(name) not in NOT_NAMES and not any(word.startswith(_stem(name)) for word in said)
    )


def _stem(name: str) -> str:
    """Return the first letters, which a translated name keeps: `Anna` may become `Ana`."""
    return _bare(name)[: 2 if len(name) <= SHORT_NAME_LETTERS else 3]


def _bare(word: str) -> str:
    apart = unicodedata.normalize("NFKD", word.casefold())
    return "".join(sign for sign in apart if not unicodedata.combining(sign))


# Repetition


def repetition(text: str) -> int:
    """Return the highest number of immediate repetitions of a phrase.

    Not the number of words, which differs between languages for the same sentence.
    """
    words = [word.lower() for word in SPOKEN.findall(text)]
    return max((again // length for _, length, again in _loops(words)), default=0)


def _loops(words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the start of each loop, the length of its phrase, and the words of its repetitions."""
    for length in range(1, min(PHRASE_WORDS_MAX, len(words) // 2) + 1):
        at = 0
        while at + 2 * length <= len(words):
            again = 0
            while _is_same(words, at + again, length):
                again += length
            if again:
                yield at, length, again
            at += max(again, 1)


def _is_same(words: Sequence[str], at: int, length: int) -> bool:
    first, second = words[at : at + length], words[at + length : at + 2 * length]
    return len(second) == length and first == second


def _run(text: str) -> int:
    """Return the length of the longest run of one repeated piece."""
    return max((len(found.group()) for found in RUN.finditer(text)), default=0)


def without_loops(source: str, output: str) -> str:
    """Return a translation without the repetitions that its source does not have."""
    allowed = repetition(source)
    for _ in range(PHRASE_WORDS_MAX):
        spans = [found.span() for found in SPOKEN.finditer(output)]
        words = [output[start:end].lower() for start, end in spans]
        worst = max(_loops(words), key=lambda loop: loop[2] // loop[1], default=(0, 1, 0))
        at, length, again = worst
        if again // length <= allowed:
            break
        kept = allowed * length
        first, last = spans[at + length + kept - 1][1], spans[at + length + again - 1][1]
        output = output[:first] + output[last:]
    longest = max(_run(source), 12)
    return RUN.sub(lambda found: found.group()[:longest], output)


def joined(sources: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the translated pieces of a text as one text.

    A long sentence may be cut anywhere, so the last word of a piece may also begin the next one.
    """
    text = ""
    for at, output in enumerate(outputs):
        is_intended = at == 0 or _doubled(sources[at - 1], sources[at]) > 0
        rest = output if is_intended else output[_doubled(text, output) :].lstrip()
        text = f"{text} {rest}" if text and rest else text or rest
    return text


def _doubled(before: str, after: str) -> int:
    """Return the length of a word that ends one text, without punctuation, and begins another."""
    first, words = SPOKEN.match(after), before.split()
    is_same = first is not None and words and words[-1].lower() == first.group().lower()
    return first.end() if first is not None and is_same else 0


# Figures


def changed_numbers(
    source: str, output: str, direction: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the figures that a translation lacks, and those that its source lacks."""
    wanted, got = _figures(source), _figures(output)
    if "".join(wanted) == "".join(got):
        # Grouped differently: 2 000 and 2000.
        return (), ()
    lacking, added = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    if AFTERNOON.search(source) or AFTERNOON.search(output):
        lacking, added = _without_afternoons(lacking, added)
    otherwise = {SEPARATORS.sub("", one) for one in CHINESE_FIGURE.findall(source)}
    lost = tuple(
        figure
        for figure in lacking.elements()
        if figure not in otherwise and not _is_in_words(figure, output, direction[1])
    )
    numbers_said = bool(otherwise or CHINESE_NUMBER.search(source)) or any(
        word in NUMBER_WORDS for word in WORD.findall(source.lower())
    )
    return lost, () if numbers_said else tuple(added.elements())


def _figures(text: str) -> list[str]:
    """Return the figures of a text as digits only, without those of stand-ins."""
    bare = protected.STAND_IN.sub(" ", text)
    return [SEPARATORS.sub("", found.group()) for found in FIGURE.finditer(bare)]


def _without_afternoons(
    lacking: Counter[str], added: Counter[str]
) -> tuple[Counter[str], Counter[str]]:
    """Treat 3 p.m. and 15:00 as equal, and ignore the zeros that come with it."""
    hours = [one for one in lacking if len(one) <= 2 and str(int(one) + 12) in added]
    hours += [one for one in added if len(one) <= 2 and str(int(one) + 12) in lacking]
    same = {*hours, *(str(int(one) + 12) for one in hours), "00"}
    return (
        Counter({one: count for one, count in lacking.items() if one not in same}),
        Counter({one: count for one, count in added.items() if one not in same}),
    )


def _is_in_words(figure: str, output: str, language: str) -> bool:
    """Tell whether a small number is present as a word."""
    words = WORD.findall(output.lower())
    names = NUMBER_NAMES.get(base_of(language), ())
    if int(figure) < len(names) and names[int(figure)] in words:
        return True
    return any(ALSO.get(word) == figure for word in words)


def with_numbers(source: str, output: str, direction: tuple[str, str]) -> str:
    """Return a translation with its only wrong figure replaced by the one of the source."""
    lost, added = changed_numbers(source, output, direction)
    if len(lost) != 1 or len(added) != 1:
        return output
    [right] = [one for one in _written(source) if SEPARATORS.sub("", one) == lost[0]][:1]
    wrong = next(one for one in _written(output) if SEPARATORS.sub("", one) == added[0])
    return re.sub(rf"(?<!\d){re.escape(wrong)}(?!\d)", lambda _: right, output, count=1)


def _written(text: str) -> list[str]:
    return [found.group() for found in FIGURE.finditer(protected.STAND_IN.sub(" ", text))]
