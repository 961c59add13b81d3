"""Negations that must survive a translation."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import negation

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("spanish", "english", "kept"),
    [
        ("Nadie sabe.", "Anybody knows.", "Nobody knows."),
        ("Ahora nadie es libre.", "Now anyone is free.", "Now nobody is free."),
        ("No hay nadie.", "There is not anybody.", "There is not anybody."),
        ("No he visto a nadie.", "I have not seen anybody.", "I have not seen anybody."),
        ("Ningún médico está libre.", "Any doctor is free.", "No doctor is free."),
        ("Nada es gratis.", "At all it is free.", "Nothing is free."),
        ("¿Sabe alguien?", "Does anybody know?", "Does anybody know?"),
        ("Sin nadie.", "Without anybody.", "Without anybody."),
        ("Nadie sabe nada.", "Anybody knows anything.", "Anybody knows anything."),
    ],
)
def test_a_spanish_no_stays_one_in_english(spanish: str, english: str, kept: str) -> None:
    assert negation.restore_english_negation(spanish, english) == kept


@pytest.mark.parametrize(
    ("english", "spanish", "kept"),
    [
        ("You must not smoke.", "No tiene que fumar.", "No debe fumar."),
        ("They mustn't go.", "Ellos no tienen que ir.", "Ellos no deben ir."),
        ("You do not have to go.", "No tiene que ir.", "No tiene que ir."),
        ("I cannot see anyone.", "No puedo ver cualquiera.", "No puedo ver a nadie."),
        ("Anyone can come.", "Cualquiera puede venir.", "Cualquiera puede venir."),
    ],
)
def test_an_english_no_stays_one_in_spanish(english: str, spanish: str, kept: str) -> None:
    assert negation.restore_spanish_negation(english, spanish) == kept
