"""Words for the cleanup, by language: fillers, abbreviations, signs. Data only.

A filler stands alone and has no meaning; words that may have one (`like`, `bueno`) are not listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS: Final[Mapping[str, frozenset[str]]] = {
    "en": _set("um uhm umm uh uhh er err erm hm hmm mm mmm"),
    "es": _set("eh ehm em emm mm mmm hmm"),
    "fr": _set("euh heu euhm hum hmm mm mmm"),
    "it": _set("eh ehm mm mmm hmm uhm"),
    "de": _set("äh ähm öh öhm hm hmm mm mmm"),
    "pt": _set("hum hmm hã mm mmm"),
    "ca": _set("eh ehm mm mmm"),
}
# Words that are sometimes repeated on purpose.
MEANT_TWICE: Final = _set(
    "very really no yes so bye ha had that many much long far more never please now wait go look"
    " muy no sí ya bien mucho más poco nunca así casi oye mira vale luego"
    " très non oui si bien tout vite petit nous vous"
    " molto sì piano via ciao quasi poco"
    " sehr ja nein doch sie die das der"
)
# Letters that are words; any other single letter is spelled.
LONE_LETTERS: Final = _set("a e i o u y à è é ó")
# Number words: a repetition is part of the number.
NUMBER_WORDS: Final = _set(
    "zero oh one two three four five six seven eight nine ten double eleven twelve thirteen"
    " fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy"
    " eighty ninety hundred thousand million"
    " cero uno una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince"
    " dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta"
    " ochenta noventa cien ciento mil"
    " zéro un une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze"
    " seize vingt trente quarante cinquante soixante cent mille"
    " due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici"
    " sedici diciassette diciotto diciannove venti trenta quaranta cinquanta sessanta settanta"
    " ottanta novanta cento"
    " null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn"
    " fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig"
    " achtzig neunzig hundert tausend"
    " um uma dois duas três quatro sete oito nove dez onze doze treze catorze quinze dezesseis"
    " dezessete dezoito dezenove vinte trinta quarenta cinquenta sessenta setenta oitenta noventa"
    " cem cento"
)


def _table(words: Mapping[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rf"(?<!\w){pattern}"), word) for pattern, word in words.items())


# Patterns of abbreviations, with their full stop, and the word for each.
ABBREVIATIONS: Final[Mapping[str, tuple[tuple[re.Pattern[str], str], ...]]] = {
    "en": _table(
        {
            r"Mr\.?(?= )": "Mister",
            r"Mrs\.?(?= )": "Missus",
            r"Ms\.(?= )": "Miss",
            r"Dr\.?(?= [A-Z])": "Doctor",
            r"Prof\.(?= )": "Professor",
            r"St\.(?= [A-Z])": "Saint",
            r"e\.g\.": "for example",
            r"i\.e\.": "that is",
            r"etc\.?(?!\w)": "et cetera",
            r"vs\.?(?= )": "versus",
            r"approx\.": "approximately",
        }
    ),
    "es": _table(
        {
            r"Sr\.?(?= )": "señor",
            r"Sra\.?(?= )": "señora",
            r"Srta\.?(?= )": "señorita",
            r"Dr\.?(?= )": "doctor",
            r"Dra\.?(?= )": "doctora",
            r"Ud\.?(?!\w)": "usted",
            r"Uds\.?(?!\w)": "ustedes",
            r"p\. ?ej\.": "por ejemplo",
            r"etc\.?(?!\w)": "etcétera",
            r"núm\.(?= )": "número",
            r"EE\. ?UU\.": "Estados Unidos",
        }
    ),
    "fr": _table(
        {
            r"M\.(?= [A-Z])": "Monsieur",
            r"Mme\.?(?= )": "Madame",
            r"Mlle\.?(?= )": "Mademoiselle",
            r"Dr\.?(?= )": "Docteur",
            r"p\. ?ex\.": "par exemple",
            r"etc\.?(?!\w)": "et cetera",
        }
    ),
    "it": _table(
        {
            r"Sig\.ra(?= )": "Signora",
            r"Sig\.(?= )": "Signor",
            r"Dott\.(?= )": "Dottor",
            r"ecc\.?(?!\w)": "eccetera",
            r"p\. ?es\.": "per esempio",
        }
    ),
    "de": _table(
        {
            r"Hr\.(?= )": "Herr",
            r"Fr\.(?= [A-Z])": "Frau",
            r"Dr\.?(?= )": "Doktor",
            r"z\. ?B\.": "zum Beispiel",
            r"d\. ?h\.": "das heißt",
            r"usw\.": "und so weiter",
            r"bzw\.": "beziehungsweise",
            r"ca\.(?= )": "circa",
            r"Nr\.(?= )": "Nummer",
        }
    ),
    "pt": _table(
        {
            r"Sr\.?(?= )": "senhor",
            r"Sra\.?(?= )": "senhora",
            r"Srta\.?(?= )": "senhorita",
            r"Dr\.?(?= )": "doutor",
            r"Dra\.?(?= )": "doutora",
            r"Prof\.(?= )": "professor",
            r"Profa\.(?= )": "professora",
            r"p\. ?ex\.": "por exemplo",
            r"etc\.?(?!\w)": "et cetera",
            r"[Nn]º(?= ?\d)": "número",
        }
    ),
}
_SIGNS: Final = ["&", "%", "+", "=", "@", "€", "$", "£", "°", "#"]
_SIGN_WORDS: Final[Mapping[str, str]] = {
    "en": "and, percent, plus, equals, at, euros, dollars, pounds, degrees, number",
    "es": "y, por ciento, más, igual a, arroba, euros, dólares, libras, grados, número",
    "fr": "et, pour cent, plus, égale, arobase, euros, dollars, livres, degrés, numéro",
    "it": "e, per cento, più, uguale, chiocciola, euro, dollari, sterline, gradi, numero",
    "de": "und, Prozent, plus, gleich, ät, Euro, Dollar, Pfund, Grad, Nummer",
    "pt": "e, por cento, mais, igual a, arroba, euros, dólares, libras, graus, número",
}
# Signs and their words, by language.
SIGNS: Final[Mapping[str, Mapping[str, str]]] = {
    language: dict(zip(_SIGNS, words.split(", "), strict=True))
    for language, words in _SIGN_WORDS.items()
}
