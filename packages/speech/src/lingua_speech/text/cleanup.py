"""Text between the stages of speech translation: after recognition, before translation and speech.

Pure and independent of engines. Recognised text contains fillers, stutters and loops; a translator
needs whole words and sentences; a voice needs words for figures and signs. For an unknown language
only the general rules apply. No text raises an error.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from lingua_speech.engines.sentences import split
from lingua_speech.text.figures import in_words
from lingua_speech.text.words import (
    ABBREVIATIONS,
    FILLERS,
    LONE_LETTERS,
    MEANT_TWICE,
    NUMBER_WORDS,
    SIGNS,
)
from lingua_wire.languages import base_of

PASSES_MAX: Final = 8
# A longer phrase that is repeated was really said twice.
PHRASE_WORDS_MAX: Final = 3
SENTENCE_ENDS: Final = (".", "!", "?", "…", "。", "！", "？")  # noqa: RUF001
CLOSING: Final = "\"'”\u2019»)]"
# Not within spelled letters: A-N-N-A.
STUTTER = re.compile(r"(?<![\w-])([^\W\d_])-(?:\1-)*(?=\1(?!-))", re.IGNORECASE)
# "Two to lock" sounds like "to to lock"; no sentence begins with a doubled "to".
TWO_TO = re.compile(r"(?:^|(?<=[,;:.!?] ))(?:(To)|to) to(?= \w)")
MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,200}>|\*\*|__|`+|^#{1,6}\s+", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]{1,200})\]\((?:[^()\s]{1,500})\)")


def cleaned(text: str, language: str = "") -> str:
    """Return recognised text without fillers, stutters and loops; empty if nothing remains."""
    text = _plain(text)
    if base_of(language.lower()) == "en":
        text = TWO_TO.sub(lambda found: "Two to" if found[1] else "two to", text)
    for _ in range(PASSES_MAX):
        shorter = _clean_once(text, base_of(language.lower()))
        if shorter == text:
            break
        text = shorter
    return text


def for_translation(text: str, language: str) -> str:
    """Return recognised text for a translator, with abbreviations as whole words."""
    return _expanded(cleaned(text, language), base_of(language.lower()))


def for_speech(text: str, language: str) -> str:
    """Return text for a voice: no markup; words for figures, signs and abbreviations."""
    base = base_of(language.lower())
    bare = MARKUP.sub(" ", LINK.sub(r"\1", text))
    said = in_words(_expanded(_plain(bare), base), base)
    for sign, word in SIGNS.get(base, {}).items():
        said = said.replace(sign, f" {word} ")
    return _spaced(" ".join(said.split())) or _plain(text)


def join_slice(previous: str, text: str, continues: bool = False) -> str:
    """Return a slice of a longer turn so that it continues the slice before it.

    In mid-sentence it starts in lower case. If the turn continues, the full stop that recognisers
    put at the end of every slice is removed.
    """
    text = _plain(text)
    before = previous.rstrip().rstrip(CLOSING)
    if before and not before.endswith(SENTENCE_ENDS):
        text = _lower_start(text)
    if continues and text.endswith(".") and not text.endswith("..") and len(text) > 1:
        text = text[:-1].rstrip() or text
    return text


def sentences(text: str, characters_max: int = 300) -> list[str]:
    """Split a text into sentences up to a length; joined by spaces they are the text."""
    return split(_plain(text), characters_max)


def _plain(text: str) -> str:
    """Return a text in NFC, without control characters, with single spaces."""
    composed = unicodedata.normalize("NFC", text)
    return " ".join("".join(" " if _is_control(sign) else sign for sign in composed).split())


def _is_control(sign: str) -> bool:
    return unicodedata.category(sign) in {"Cc", "Cs"}


def _clean_once(text: str, language: str) -> str:
    starts_upper = text[:1].isupper()
    words = STUTTER.sub("", text).split()
    words = _without_fillers(words, language)
    for length in range(1, PHRASE_WORDS_MAX + 1):
        words = _without_repeats(words, length)
    cleaned = _spaced(" ".join(words))
    return cleaned[:1].upper() + cleaned[1:] if starts_upper else cleaned


def _without_fillers(words: list[str], language: str) -> list[str]:
    fillers = FILLERS.get(language, frozenset())
    kept: list[str] = []
    for word in words:
        if _bare(word) not in fillers or not _bare(word):
            kept.append(word)
        elif word.endswith(SENTENCE_ENDS) and kept and not kept[-1].endswith(SENTENCE_ENDS):
            # The punctuation of the filler ends the preceding sentence.
            kept[-1] = kept[-1].rstrip(",;:") + word[-1]
        elif word.endswith(",") and kept and kept[-1].endswith(","):
            # Both commas belong to the filler: "I want to, uh, go".
            kept[-1] = kept[-1].rstrip(",") or kept[-1]
    return kept


def _without_repeats(words: list[str], length: int) -> list[str]:
    """Remove immediate repetitions of this many words, unless they are intended."""
    kept: list[str] = []
    at = 0
    while at < len(words):
        phrase = [_bare(word) for word in words[at : at + length]]
        times = 1
        while _follows(words, at + times * length, phrase):
            times += 1
        if times > 1 and _is_unintended(phrase, times) and not _is_name(words, at, length):
            is_upper = words[at][:1].isupper()
            at += (times - 1) * length
            first, *others = words[at : at + length]
            kept += [first[:1].upper() + first[1:] if is_upper else first, *others]
            at += length
        else:
            kept.append(words[at])
            at += 1
    return kept


def _follows(words: list[str], at: int, phrase: list[str]) -> bool:
    """Tell whether the phrase follows again, within the same sentence."""
    again = [_bare(word) for word in words[at : at + len(phrase)]]
    return again == phrase and all(phrase) and not words[at - 1].endswith(SENTENCE_ENDS)


def _is_unintended(phrase: list[str], times: int) -> bool:
    if any(word in NUMBER_WORDS or any(sign.isdigit() for sign in word) for word in phrase):
        return False
    if len(phrase) == 1:
        if len(phrase[0]) == 1 and phrase[0] not in LONE_LETTERS:
            # Spelled letters: B B C.
            return False
        if phrase[0] in MEANT_TWICE:
            return times > 3
        return times > 2 or len(phrase[0]) <= 4
    if all(word in MEANT_TWICE for word in phrase):
        return times > 3
    return times > 2 or len(phrase) > 2 or not any(len(word) > 4 for word in phrase)


def _is_name(words: list[str], at: int, length: int) -> bool:
    """Tell whether a word and its repetition are capitalised in mid-sentence: Bora Bora."""
    if length > 1 or not at or words[at - 1].endswith(SENTENCE_ENDS):
        return False
    return all(word[:1].isupper() and len(_bare(word)) > 1 for word in words[at : at + 2])


def _bare(word: str) -> str:
    return word.strip(".,;:!?…¿¡\"'“”‘’«»()-").lower()  # noqa: RUF001


def _spaced(text: str) -> str:
    """Correct the spaces around punctuation."""
    text = re.sub(r"\s+([,;:!?](?=\s|$)|\.(?=\s|$))", r"\1", text)
    text = re.sub(r"([¿¡(])\s+", r"\1", text)
    return re.sub(r"(?<![,;:\s]),(?:\s*,)+", ",", text).strip()


def _lower_start(text: str) -> str:
    """Return a text with its first letter in lower case, unless the word is always capitalised."""
    first = text.split(" ", 1)[0]
    letters = first.strip(".,;:!?…¿¡\"'“”«»()")
    always = letters in {"I", "I'm", "I'll", "I've", "I'd"} or sum(map(str.isupper, letters)) > 1
    if always or not letters or not letters[0].isupper():
        return text
    at = text.index(letters[0])
    return text[:at] + text[at].lower() + text[at + 1 :]


def _expanded(text: str, language: str) -> str:
    for pattern, word in ABBREVIATIONS.get(language, ()):
        text = pattern.sub(word, text)
    return text
