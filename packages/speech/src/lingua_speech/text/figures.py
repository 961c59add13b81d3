"""Figures in words, in English, Spanish, French, Italian, German and Portuguese. Pure.

Whole numbers below a thousand million, decimals, times of day, sums of money. A longer number, or
one with a leading zero, is read digit by digit, like a telephone number. Text in other languages is
not changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _row(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MOST: Final = 999_999_999
FIGURE = re.compile(
    r"(?P<money>R\$ ?|[$€£])?(?P<figure>(?<![\w.,])\d{1,3}(?:[.,'\u202f]\d{3})+(?![\d])|\d+)"
    r"(?:(?P<colon>:)(?P<minutes>[0-5]\d)(?!\d)|(?P<point>[.,])(?P<decimals>\d+))?"
    r"(?P<after> ?[$€£])?"
)
# Suffixes of ordinals, which voices read correctly.
ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|[eè]me|e|[ºª])(?!\w)")
MONEY: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"$": "dollars", "€": "euros", "£": "pounds", "R$": "reais"},
    "es": {"$": "dólares", "€": "euros", "£": "libras", "R$": "reales"},
    "fr": {"$": "dollars", "€": "euros", "£": "livres", "R$": "réaux"},
    "it": {"$": "dollari", "€": "euro", "£": "sterline", "R$": "real"},
    "de": {"$": "Dollar", "€": "Euro", "£": "Pfund", "R$": "Real"},
    "pt": {"$": "dólares", "€": "euros", "£": "libras", "R$": "reais"},
}
LOW: Final[Mapping[str, tuple[str, ...]]] = {
    "en": _row(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
        " fifteen sixteen seventeen eighteen nineteen"
    ),
    "es": _row(
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince"
        " dieciséis diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés"
        " veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve"
    ),
    "fr": _row(
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze"
        " seize dix-sept dix-huit dix-neuf"
    ),
    "it": _row(
        "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici"
        " quattordici quindici sedici diciassette diciotto diciannove"
    ),
    "de": _row(
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn"
        " fünfzehn sechzehn siebzehn achtzehn neunzehn"
    ),
    "pt": _row(
        "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze"
        " dezesseis dezessete dezoito dezenove"
    ),
}
TENS: Final[Mapping[str, tuple[str, ...]]] = {
    "en": _row("twenty thirty forty fifty sixty seventy eighty ninety"),
    "es": _row("veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa"),
    "fr": _row("vingt trente quarante cinquante soixante"),
    "it": _row("venti trenta quaranta cinquanta sessanta settanta ottanta novanta"),
    "de": _row("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"),
    "pt": _row("vinte trinta quarenta cinquenta sessenta setenta oitenta noventa"),
}
HUNDREDS_ES: Final = _row(
    "ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos"
    " novecientos"
)
HUNDREDS_PT: Final = _row(
    "cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos"
)


class NumberGrammar(NamedTuple):
    """How a language forms numbers."""

    below_thousand: Callable[[int], str]
    thousands: Callable[[str, int], str]
    millions: Callable[[str, int], str]
    point: str
    time: str


def in_words(text: str, language: str) -> str:
    """Return a text with its figures in words, if the language is known."""
    if language not in GRAMMARS:
        return text
    return FIGURE.sub(lambda match: _spoken(match, language), text)


def cardinal(number: int, language: str) -> str:
    """Return a whole number from 0 to `MOST` in words."""
    grammar = GRAMMARS[language]
    millions, rest = divmod(number, 1_000_000)
    thousands, units = divmod(rest, 1000)
    parts = []
    if millions:
        parts.append(grammar.millions(grammar.below_thousand(millions), millions))
    if thousands:
        parts.append(grammar.thousands(grammar.below_thousand(thousands), thousands))
    if units or not parts:
        parts.append(grammar.below_thousand(units))
    if language == "pt" and len(parts) > 1 and _takes_and(units or thousands):
        parts[-1] = f"e {parts[-1]}"
    return ("" if language in {"it", "de"} and not millions else " ").join(parts)


def _spoken(match: re.Match[str], language: str) -> str:
    if ORDINAL.match(match.string, match.end()):
        return match.group()
    digits = re.sub(r"\D", "", match["figure"])
    words = _number(digits, language)
    if match["minutes"]:
        words = _time(int(digits), int(match["minutes"]), language, words)
    elif match["decimals"]:
        words += f" {GRAMMARS[language].point} {_digits(match['decimals'], language)}"
    sign = (match["money"] or match["after"] or "").strip()
    if sign:
        words += f" {MONEY[language][sign]}"
    return _separated(match, words)


def _separated(match: re.Match[str], words: str) -> str:
    """Separate words from letters beside the figure."""
    text = match.string
    before = " " if text[match.start() - 1 : match.start()].isalnum() and match.start() else ""
    after = " " if text[match.end() : match.end() + 1].isalnum() else ""
    return f"{before}{words}{after}"


def _number(digits: str, language: str) -> str:
    plain = "".join(str(int(digit)) for digit in digits)
    if (len(plain) > 1 and plain[0] == "0") or int(plain) > MOST:
        return _digits(plain, language)
    return cardinal(int(plain), language)


def _digits(digits: str, language: str) -> str:
    return " ".join(LOW[language][int(digit)] for digit in digits)


def _time(hour: int, minute: int, language: str, words: str) -> str:
    if hour > 24:
        return f"{words} {cardinal(minute, language)}"
    if language == "pt":
        return _portuguese_time(hour, minute)
    if language == "it" and not minute:
        return words
    hours = f"{words} {GRAMMARS[language].time}".strip()
    if language == "en" and not minute:
        return f"{hours} o'clock"
    return f"{hours} {cardinal(minute, language)}" if minute else hours


def _english(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    parts = [f"{LOW['en'][hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        parts.append(TENS["en"][tens - 2] + (f"-{LOW['en'][unit]}" if unit else ""))
    elif rest or not hundreds:
        parts.append(LOW["en"][rest])
    return " ".join(parts)


def _spanish(number: int) -> str:
    if number == 100:
        return "cien"
    hundreds, rest = divmod(number, 100)
    parts = [HUNDREDS_ES[hundreds - 1]] if hundreds else []
    if rest >= 30:
        tens, unit = divmod(rest, 10)
        parts.append(TENS["es"][tens - 2] + (f" y {LOW['es'][unit]}" if unit else ""))
    elif rest or not hundreds:
        parts.append(LOW["es"][rest])
    return " ".join(parts)


def _french(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    parts = []
    if hundreds:
        many = "s" if hundreds > 1 and not rest else ""
        parts.append("cent" if hundreds == 1 else f"{LOW['fr'][hundreds]} cent{many}")
    if rest or not hundreds:
        parts.append(_french_low(rest))
    return " ".join(parts)


def _french_low(number: int) -> str:
    if number < 20:
        return LOW["fr"][number]
    tens, unit = divmod(number, 10)
    if tens in {7, 9}:
        base = "soixante" if tens == 7 else "quatre-vingt"
        link = " et " if number == 71 else "-"
        return f"{base}{link}{LOW['fr'][10 + unit]}"
    if tens == 8:
        return f"quatre-vingt-{LOW['fr'][unit]}" if unit else "quatre-vingts"
    word = TENS["fr"][tens - 2]
    if unit == 1:
        return f"{word} et un"
    return f"{word}-{LOW['fr'][unit]}" if unit else word


def _italian(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    word = ("" if hundreds < 2 else LOW["it"][hundreds]) + ("cento" if hundreds else "")
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        ten = TENS["it"][tens - 2]
        word += ten[:-1] if unit in {1, 8} else ten
        word += ("tré" if unit == 3 else LOW["it"][unit]) if unit else ""
    elif rest or not hundreds:
        word += LOW["it"][rest]
    return word


def _german(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    word = ("ein" if hundreds == 1 else LOW["de"][hundreds]) + "hundert" if hundreds else ""
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        one = "ein" if unit == 1 else LOW["de"][unit]
        word += (f"{one}und" if unit else "") + TENS["de"][tens - 2]
    elif rest or not hundreds:
        word += LOW["de"][rest]
    return word


def _portuguese(number: int) -> str:
    if number == 100:
        return "cem"
    hundreds, rest = divmod(number, 100)
    parts = [HUNDREDS_PT[hundreds - 1]] if hundreds else []
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        parts += [TENS["pt"][tens - 2], *([LOW["pt"][unit]] if unit else [])]
    elif rest or not hundreds:
        parts.append(LOW["pt"][rest])
    return " e ".join(parts)


def _takes_and(group: int) -> bool:
    """Tell whether Portuguese puts an `e` before the last thousands or units: mil e cem."""
    return group < 100 or group % 100 == 0


def _portuguese_time(hour: int, minute: int) -> str:
    said = cardinal(hour, "pt")
    if hour % 10 in {1, 2} and hour not in {11, 12}:
        # Hours are feminine.
        said = said.removesuffix("um").removesuffix("dois") + ("uma" if hour % 10 == 1 else "duas")
    hours = f"{said} {'hora' if hour == 1 else 'horas'}"
    return f"{hours} e {cardinal(minute, 'pt')}" if minute else hours


def _short_one(word: str, ending: str, short: str) -> str:
    """Return a number in the short form that precedes a noun: `un` for `uno`, `ein` for `eins`."""
    return word[: -len(ending)] + short if word.endswith(ending) else word


def _short_es(word: str) -> str:
    return _short_one(_short_one(word, "veintiuno", "veintiún"), "uno", "un")


GRAMMARS: Final[Mapping[str, NumberGrammar]] = {
    "en": NumberGrammar(
        _english, lambda w, _: f"{w} thousand", lambda w, _: f"{w} million", "point", ""
    ),
    "es": NumberGrammar(
        _spanish,
        lambda w, n: "mil" if n == 1 else f"{_short_es(w)} mil",
        lambda w, n: "un millón" if n == 1 else f"{_short_es(w)} millones",
        "coma",
        "",
    ),
    "fr": NumberGrammar(
        _french,
        lambda w, n: (
            "mille" if n == 1 else f"{w.removesuffix('s') if n % 100 in {0, 80} else w} mille"
        ),
        lambda w, n: "un million" if n == 1 else f"{w} millions",
        "virgule",
        "heures",
    ),
    "it": NumberGrammar(
        _italian,
        lambda w, n: "mille" if n == 1 else f"{w}mila",
        lambda w, n: "un milione" if n == 1 else f"{w} milioni",
        "virgola",
        "e",
    ),
    "de": NumberGrammar(
        _german,
        lambda w, _: f"{_short_one(w, 'eins', 'ein')}tausend",
        lambda w, n: "eine Million" if n == 1 else f"{w} Millionen",
        "Komma",
        "Uhr",
    ),
    "pt": NumberGrammar(
        _portuguese,
        lambda w, n: "mil" if n == 1 else f"{w} mil",
        lambda w, n: "um milhão" if n == 1 else f"{w} milhões",
        "vírgula",
        "horas",
    ),
}
