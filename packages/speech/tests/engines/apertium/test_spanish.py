"""Regular forms of Spanish words."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import spanish

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("lemma", "tags", "form"),
    [
        ("presionar", "imp p3 sg", "presione"),
        ("marcar", "imp p3 sg", "marque"),
        ("pagar", "prs p1 pl", "paguemos"),
        ("ingresar", "pp f pl", "ingresadas"),
        ("oprimir", "fti p1 sg", "oprimiré"),
        ("correr", "ger", "corriendo"),
        ("cruzar", "ifi p3 sg", "cruzó"),
        ("escoger", "prs p3 sg", "escoja"),
        ("ingresar de nuevo", "imp p3 sg", "ingrese de nuevo"),
        ("silenciar", "inf", "silenciar"),
    ],
)
def test_regular_spanish_verbs_have_their_forms(lemma: str, tags: str, form: str) -> None:
    assert spanish.verb(lemma, tags.split()) == form


def test_spanish_nouns_adjectives_and_joined_pronouns() -> None:
    assert spanish.noun("extensión", "pl") == "extensiones"
    assert spanish.noun("correo de voz", "pl") == "correos de voz"
    assert spanish.noun("luz", "pl") == "luces"
    assert spanish.adjective("operador", "f", "pl") == "operadoras"
    assert spanish.adjective("disponible", "f", "pl") == "disponibles"
    assert spanish.with_enclitic("presione", "lo") == "presiónelo"
    assert spanish.with_enclitic("guiar", "le") == "guiarle"
    assert spanish.reflexive("unir", ["fti", "p3", "sg"]) == "se unirá"
    assert spanish.reflexive("unir", ["imp", "p3", "sg"]) == "únase"
    assert spanish.bare("añádír") == "añadir"
