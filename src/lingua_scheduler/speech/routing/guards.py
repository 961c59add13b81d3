"""What a bad translation looks like, whoever made it, and what can be put right in it. Pure.

Small models go in circles, say nothing, leave out numbers or invent text for what they never saw.
None of this can be told by the text alone, but by comparing it with its source: no more repetition
than there, about as long, the same figures. Used by the router, sentence by sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

from lingua_scheduler.languages import base_of
from lingua_scheduler.speech.routing import protected
from lingua_scheduler.speech.text.figures import LOW
from lingua_scheduler.speech.text.words import NUMBER_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EMPTY, LOOP, LONG, SHORT = "mt_empty", "mt_repetition", "mt_too_long", "mt_too_short"
SPANS, NUMBERS, COPIED = "mt_spans_lost", "mt_numbers_changed", "mt_untranslated"
# Said by an engine of its own translation.
UNSURE = "mt_unsure"
NAMES = "mt_names_changed"
# How bad each is: of several bad translations the least bad one is taken.
WEIGHTS: Final[Mapping[str, int]] = {
    EMPTY: 100, LOOP: 60, LONG: 30, SHORT: 30, SPANS: 20, NUMBERS: 8, UNSURE: 6, NAMES: 5,
    COPIED: 4,
}  # fmt: skip
# Said of a translation that did not go the best way, and of one in which something was put right.
FALLBACK, REPAIRED = "mt_fallback", "mt_repaired"
REMARKS: Final = (FALLBACK, REPAIRED, *WEIGHTS)
# As long as its source: so many times at most and at least, with some letters to spare.
LONGEST, LONG_SPARE = 2.2, 30
SHORTEST, SHORT_SPARE = 0.4, 12
# One sign of these is about so many letters.
DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
DENSE_LETTERS: Final = 3
# Phrases of up to so many words are looked at for circles; `It's` is one word.
PHRASE_WORDS_MAX: Final = 16
SPOKEN = re.compile(r"\w+(?:['\u2019]\w+)*")
# The same letters over and over within a word: `hahahaha`.
RUN = re.compile(r"(\S{1,12}?)\1{3,}")
COPIED_WORDS: Final = 4
FIGURE = re.compile(r"\d(?:[\d.,'\u2019\u00a0\u202f]*\d)?")
SEPARATORS = re.compile(r"\D")
AFTERNOON = re.compile(r"\b[ap]\.? ?m\b\.?", re.IGNORECASE)
# Numbers in Chinese signs; and figures before such a sign: 3 of ten thousands, or of months.
CHINESE_NUMBER = re.compile("[零〇一二三四五六七八九十百千万亿两]")
CHINESE_FIGURE = re.compile(r"\d(?:[\d.,]*\d)?(?=[十百千万亿月])")
WORD = re.compile(r"\w+")
# A word with a capital that does not begin a sentence, or comes after a title; stand-ins are none.
_TITLES = "|".join(rf"(?<=\b{title}\. )" for title in ("Mr", "Ms", "Mrs", "Dr", "Sr", "Sra", "Dra"))
NAME = re.compile(rf"(?:(?<=[\w,;:] )|{_TITLES})(?!XQ\d)([A-Z\u00c0-\u00dd][^\W\d_]{{2,}})")
SHORT_NAME_LETTERS: Final = 4
_NO_NAMES = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june"
    " july august september october november december english spanish french german italian"
    " portuguese japanese chinese american european british russian christmas easter god mister"
    " doctor mrs"
)
NO_NAMES: Final = frozenset(_NO_NAMES.split())
_PT = "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze"
# How a small number may be written instead of a figure, by language, from nought on.
SPELT: Final[Mapping[str, tuple[str, ...]]] = {**LOW, "pt": tuple(_PT.split())}
ALSO: Final[Mapping[str, str]] = {
    "una": "1", "un": "1", "uma": "1", "une": "1", "duas": "2", "primero": "1", "first": "1",
    "segundo": "2", "second": "2", "third": "3", "tercero": "3", "primeiro": "1", "once": "1",
    "catorze": "14", "quatorze": "14", "ein": "1", "eine": "1", "a": "1", "an": "1",
}  # fmt: skip


def findings(source: str, output: str, direction: tuple[str, str]) -> tuple[str, ...]:
    """Return what is wrong with a translation, the worst first; nothing: it is plausible."""
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
    """Return how bad findings are together."""
    return sum(WEIGHTS[name] for name in found)


def _letters(text: str) -> int:
    """Return how much is said: letters and digits, a Chinese sign for several."""
    said = sum(sign.isalnum() for sign in text)
    return said + (DENSE_LETTERS - 1) * len(DENSE.findall(text))


def _is_copied(source: str, output: str) -> bool:
    words = [word.lower() for word in WORD.findall(source) if word.isalpha()]
    said = [word.lower() for word in WORD.findall(output) if word.isalpha()]
    return len(words) >= COPIED_WORDS and words == said


# Names


def changed_names(source: str, output: str) -> tuple[str, ...]:
    """Return the names within a sentence of which a translation has nothing like them.

    `London` may become `Londres`, but not `Willoutt`. What has another name in another language
    (`Germany`) is found, too: that all translators change it says that it is right.
    """
    words = WORD.findall(source)
    if 2 * sum(word[0].isupper() for word in words) > len(words) + 2:
        # A headline, or somebody shouts.
        return ()
    names = (found[1] for found in NAME.finditer(source))
    # With a capital, too: `primer` is not what became of `Priestley`.
    said = [_bare(word) for word in WORD.findall(output) if word[0].isupper()]
    return tuple(
        name for name in names
        if _bare(name) not in NO_NAMES and not any(word.startswith(_stem(name)) for word in said)
    )  # fmt: skip


def _stem(name: str) -> str:
    """Return the letters that a name keeps, if it stays at all: `Anna` may become `Ana`."""
    return _bare(name)[: 2 if len(name) <= SHORT_NAME_LETTERS else 3]


def _bare(word: str) -> str:
    apart = unicodedata.normalize("NFKD", word.casefold())
    return "".join(sign for sign in apart if not unicodedata.combining(sign))


# Circles


def repetition(text: str) -> int:
    """Return how often, at most, a phrase is said again right after it was said.

    Not how many words that are: the same sentence is longer in one language than in another.
    """
    words = [word.lower() for word in SPOKEN.findall(text)]
    return max((again // length for _, length, again in _circles(words)), default=0)


def _circles(words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Give where each circle begins, how long its phrase is, how many words say it again."""
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
    """Return the length of the longest piece that is one short piece over and over."""
    return max((len(found.group()) for found in RUN.finditer(text)), default=0)


def uncircled(source: str, output: str) -> str:
    """Return a translation without the rounds that its source does not go."""
    allowed = repetition(source)
    for _ in range(PHRASE_WORDS_MAX):
        spans = [found.span() for found in SPOKEN.finditer(output)]
        words = [output[start:end].lower() for start, end in spans]
        worst = max(_circles(words), key=lambda circle: circle[2] // circle[1], default=(0, 1, 0))
        at, length, again = worst
        if again // length <= allowed:
            break
        kept = allowed * length
        first, last = spans[at + length + kept - 1][1], spans[at + length + again - 1][1]
        output = output[:first] + output[last:]
    longest = max(_run(source), 12)
    return RUN.sub(lambda found: found.group()[:longest], output)


def joined(sources: Sequence[str], outputs: Sequence[str]) -> str:
    """Return what the pieces of a text became as one text.

    A sentence that was too long was cut anywhere: what ended one piece may begin the next.
    """
    text = ""
    for at, output in enumerate(outputs):
        is_meant = at == 0 or _doubled(sources[at - 1], sources[at]) > 0
        rest = output if is_meant else output[_doubled(text, output) :].lstrip()
        text = f"{text} {rest}" if text and rest else text or rest
    return text


def _doubled(before: str, after: str) -> int:
    """Return the length of the word that ends a text, no mark behind it, and begins another."""
    first, words = SPOKEN.match(after), before.split()
    is_same = first is not None and words and words[-1].lower() == first.group().lower()
    return first.end() if first is not None and is_same else 0


# Figures


def changed_numbers(
    source: str, output: str, direction: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the figures that a translation lacks, and those that its source has not."""
    wanted, got = _figures(source), _figures(output)
    if "".join(wanted) == "".join(got):
        # Cut apart otherwise: 2 000 and 2000.
        return (), ()
    lacking, added = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    if AFTERNOON.search(source) or AFTERNOON.search(output):
        lacking, added = _without_afternoons(lacking, added)
    otherwise = {SEPARATORS.sub("", one) for one in CHINESE_FIGURE.findall(source)}
    lost = tuple(one for one in lacking.elements()
                 if one not in otherwise and not _is_spelt(one, output, direction[1]))  # fmt: skip
    numbers_said = bool(otherwise or CHINESE_NUMBER.search(source)) or any(
        word in NUMBER_WORDS for word in WORD.findall(source.lower())
    )
    return lost, () if numbers_said else tuple(added.elements())


def _figures(text: str) -> list[str]:
    """Return the figures of a text as digits alone; those of stand-ins are none."""
    bare = protected.STAND_IN.sub(" ", text)
    return [SEPARATORS.sub("", found.group()) for found in FIGURE.finditer(bare)]


def _without_afternoons(
    lacking: Counter[str], added: Counter[str]
) -> tuple[Counter[str], Counter[str]]:
    """Take 3 p.m. and 15:00 for the same, and the noughts that come with it."""
    hours = [one for one in lacking if len(one) <= 2 and str(int(one) + 12) in added]
    hours += [one for one in added if len(one) <= 2 and str(int(one) + 12) in lacking]
    same = {*hours, *(str(int(one) + 12) for one in hours), "00"}
    return (
        Counter({one: count for one, count in lacking.items() if one not in same}),
        Counter({one: count for one, count in added.items() if one not in same}),
    )


def _is_spelt(figure: str, output: str, language: str) -> bool:
    """Tell whether a small number is there as a word."""
    words = WORD.findall(output.lower())
    spelt = SPELT.get(base_of(language), ())
    if int(figure) < len(spelt) and spelt[int(figure)] in words:
        return True
    return any(ALSO.get(word) == figure for word in words)


def with_numbers(source: str, output: str, direction: tuple[str, str]) -> str:
    """Return a translation with the one figure that it has wrong as it is in the source."""
    lost, added = changed_numbers(source, output, direction)
    if len(lost) != 1 or len(added) != 1:
        return output
    [right] = [one for one in _written(source) if SEPARATORS.sub("", one) == lost[0]][:1]
    wrong = next(one for one in _written(output) if SEPARATORS.sub("", one) == added[0])
    return re.sub(rf"(?<!\d){re.escape(wrong)}(?!\d)", lambda _: right, output, count=1)


def _written(text: str) -> list[str]:
    return [found.group() for found in FIGURE.finditer(protected.STAND_IN.sub(" ", text))]
