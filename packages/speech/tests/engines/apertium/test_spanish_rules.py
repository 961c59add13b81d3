"""The corrections of Spanish output."""

from __future__ import annotations

import pytest

from engines.apertium.rule_results import corrected
from lingua_speech.engines.apertium import spanish_rules

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            "ser_or_estar",
            "ser<vbser><pri><p3><sg> aquí<adv>",
            "estar<vblex><pri><p3><sg> aquí<adv>",
        ),
        ("ser_or_estar", "ser<vbser><pri><p3><sg> alto<adj>", "ser<vbser><pri><p3><sg> alto<adj>"),
        (
            "polite",
            "tener<vblex><pri><p2><sg> vuestro<det><pos><m><sg>",
            "tener<vblex><pri><p3><sg> suyo<det><pos><mf><sg>",
        ),
        ("polite", "ti<prn><tn><p2><mf><sg>", "prpers<prn><tn><p3><mf><sg>"),
        ("plural_you", "tener<vblex><pri><p2><sg>", "tener<vblex><pri><p2><pl>"),
        (
            "subjunctive_after_when",
            "venir<vblex><fti><p3><sg> cuando<cnjadv> llegar<vblex><pri><p3><sg>",
            "venir<vblex><fti><p3><sg> cuando<cnjadv> llegar<vblex><prs><p3><sg>",
        ),
        (
            "personal_a",
            "llamar<vblex><inf> el<det> médico<n>",
            "llamar<vblex><inf> a<pr> el<det> médico<n>",
        ),
        ("plainer_words", "uno<det> otro<det>", "otro<det>"),
    ],
)
def test_spanish_is_put_right(rule: str, wrong: str, right: str) -> None:
    assert corrected(spanish_rules, rule, wrong) == right


def test_spanish_questions_are_opened() -> None:
    assert spanish_rules.with_opening_marks("Dónde está?") == "¿Dónde está?"
    assert spanish_rules.with_opening_marks("Hola, cómo está?") == "Hola, ¿cómo está?"
    assert spanish_rules.with_opening_marks("¿Ya?") == "¿Ya?"
