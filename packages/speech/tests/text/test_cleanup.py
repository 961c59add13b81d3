"""Text between the stages: fillers, stutters, slices, and words for signs."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_speech.text import (
    cleaned,
    for_speech,
    for_translation,
    join_slice,
    sentences,
)
from lingua_speech.text.words import FILLERS

pytestmark = pytest.mark.unit

LANGUAGES = st.sampled_from(["en", "es", "fr", "it", "de", "pt-br", "ja", ""])
SPOKEN = st.lists(
    st.sampled_from(
        [
            "um,",
            "uh.",
            "eh",
            "euh",
            "I",
            "the",
            "very",
            "Very!",
            "no,",
            "five",
            "w-w-what",
            "Mr.",
            "9:30",
            "$5",
            "10%",
            "¿Qué?",
            "go",
            ",",
            ".",
            "1,000",
            "...",
            "-",
            "a",
            "b",
            "c",
        ]
    ),
    max_size=25,
).map(" ".join)
TEXTS = st.one_of(st.text(), SPOKEN)


@pytest.mark.parametrize(
    ("said", "language", "clean"),
    [
        ("Um, I I I want to, uh, go.", "en", "I want to go."),
        ("I want to I want to go to the the shop.", "en", "I want to go to the shop."),
        (
            "To to lock, to to mute it. I want to to go.",
            "en",
            "Two to lock, two to mute it. I want to go.",
        ),
        ("W-w-what is it?", "en", "What is it?"),
        ("Very very good. No, no.", "en", "Very very good. No, no."),
        ("Call five five five one one two.", "en", "Call five five five one one two."),
        ("Thank you. Thank you.", "en", "Thank you. Thank you."),
        ("Eh, quiero el el coche, em, rojo.", "es", "Quiero el coche rojo."),
        ("Euh je je ne sais pas euh.", "fr", "Je ne sais pas."),
        ("Er ist da.", "de", "Er ist da."),
        ("I will come, um.", "en", "I will come."),
        ("and so on and so on and so on and so on", "en", "and so on"),
        ("um uh", "en", ""),
        ("My name is A-N-N-A, M-A-T-T.", "en", "My name is A-N-N-A, M-A-T-T."),
        ("I cleaned it on the B B C.", "en", "I cleaned it on the B B C."),
        (
            "We flew to Bora Bora. The the plane was late.",
            "en",
            "We flew to Bora Bora. The plane was late.",
        ),
        (
            "Marque el once once doce doce, mil mil.",
            "es",
            "Marque el once once doce doce, mil mil.",
        ),
        ("Call eleven eleven eleven.", "en", "Call eleven eleven eleven."),
        ("Die Nummer ist elf elf.", "de", "Die Nummer ist elf elf."),
        ("um uh", "ja", "um uh"),
    ],
)
def test_fillers_stutters_and_loops_go_and_what_is_meant_stays(
    said: str, language: str, clean: str
) -> None:
    assert cleaned(said, language) == clean


@pytest.mark.parametrize(
    ("text", "language", "whole"),
    [
        ("Mr. Smith saw Mrs. Jones.", "en", "Mister Smith saw Missus Jones."),
        ("El Sr. Pérez, p. ej., y Ud.", "es", "El señor Pérez, por ejemplo, y usted"),
        ("Dr. No", "en", "Doctor No"),
        ("M. Dupont et Mme Durand", "fr", "Monsieur Dupont et Madame Durand"),
        ("A Sra. Silva e o Dr. Reis", "pt-br", "A senhora Silva e o doutor Reis"),
    ],
)
def test_abbreviations_are_whole_words_for_a_translator(
    text: str, language: str, whole: str
) -> None:
    assert for_translation(text, language) == whole


@pytest.mark.parametrize(
    ("text", "language", "said"),
    [
        ("At 9:30 it costs $5.50.", "en", "At nine thirty it costs five point five zero dollars."),
        ("10% of 1,000", "en", "ten percent of one thousand"),
        ("**Bold** and <b>this</b> [link](http://x.org)", "en", "Bold and this link"),
        ("Son las 9:00 & 21 €", "es", "Son las nueve y veintiuno euros"),
        ("Il a 80 ans à 14:05", "fr", "Il a quatre-vingts ans à quatorze heures cinq"),
        ("12.345,6", "de", "zwölftausenddreihundertfünfundvierzig Komma sechs"),
        (
            "Às 22:30 custa R$ 3,50.",
            "pt",
            "Às vinte e duas horas e trinta custa três vírgula cinco zero reais.",
        ),
        ("11:00, 1:15 e 12:02", "pt", "onze horas, uma hora e quinze e doze horas e dois"),
        (
            "12% de 1.234 no nº 7",
            "pt-br",
            "doze por cento de mil duzentos e trinta e quatro no número sete",
        ),
        ("alle 10:00", "it", "alle dieci"),
        ("call 0034 now", "en", "call zero zero three four now"),
        ("4 > 3", "ja", "4 > 3"),
    ],
)
def test_a_voice_gets_words_for_figures_signs_and_markup(
    text: str, language: str, said: str
) -> None:
    assert for_speech(text, language) == said


@pytest.mark.parametrize(
    ("before", "text", "continues", "joined"),
    [
        ("and then we went", "To the shop. And home.", False, "to the shop. And home."),
        ("We went home.", "Then we slept.", False, "Then we slept."),
        ("", "Then we slept.", False, "Then we slept."),
        ("so", "I was there.", True, "I was there"),
        ("he works at", "NASA.", False, "NASA."),
        ("he asked:", "«¿Dónde está?»", False, "«¿dónde está?»"),
        ("", "Wait...", True, "Wait..."),
        ("", "Really?", True, "Really?"),
    ],
)
def test_a_slice_in_mid_sentence_begins_small_and_ends_open(
    before: str, text: str, continues: bool, joined: str
) -> None:
    assert join_slice(before, text, continues) == joined


@given(TEXTS, LANGUAGES)
@settings(max_examples=300)
def test_cleaning_twice_changes_nothing_more(text: str, language: str) -> None:
    once = cleaned(text, language)
    assert cleaned(once, language) == once


@given(TEXTS, LANGUAGES)
def test_only_fillers_are_ever_emptied(text: str, language: str) -> None:
    fillers = FILLERS.get(language.partition("-")[0], frozenset())
    words = [word.strip(".,;:!?…¿¡\"'“”«»()-").lower() for word in text.split()]
    if any(word.isalnum() and word not in fillers for word in words):
        assert cleaned(text, language)
        assert for_translation(text, language)


@given(TEXTS, LANGUAGES, TEXTS, st.booleans())
def test_no_text_is_too_strange(text: str, language: str, before: str, continues: bool) -> None:
    said = for_speech(text, language)
    assert bool(said) or not any(sign.isalnum() for sign in text)
    assert for_speech(said, language) is not None
    assert isinstance(join_slice(before, text, continues), str)


@given(TEXTS, st.integers(10, 80))
def test_sentences_joined_are_the_text_and_none_is_too_long(text: str, most: int) -> None:
    cut = sentences(text, most)
    assert all(0 < len(piece) <= most for piece in cut)
    composed = unicodedata.normalize("NFC", text)
    readable = (sign for sign in composed if unicodedata.category(sign) not in {"Cc", "Cs"})
    assert "".join("".join(cut).split()) == "".join("".join(readable).split())
