"""The rules from Spanish into English."""

from __future__ import annotations

import pytest

from engines.apertium.rule_results import corrected
from lingua_speech.engines.apertium import spanish_english, stream

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            "agreeing",
            "prpers<prn><subj><p2><mf><sp> have<vbhaver><pri><p3><sg>",
            "prpers<prn><subj><p2><mf><sp> have<vbhaver><pres>",
        ),
        (
            "to_you",
            "prpers<prn><subj><p3><nt><sg> can<vaux><pres>",
            "prpers<prn><subj><p2><mf><sp> can<vaux><pres>",
        ),
        ("compounds", "number<n><sg> of<pr> phone<n><sg>", "phone<n><sg> number<n><sg>"),
        ("compounds", "cup<n><sg> of<pr> coffee<n><sg>", "cup<n><sg> of<pr> coffee<n><sg>"),
    ],
)
def test_english_is_put_right(rule: str, wrong: str, right: str) -> None:
    assert corrected(spanish_english, rule, wrong) == right


def test_su_is_yours_unless_the_sentence_is_about_somebody_else() -> None:
    su = "^suyo<det><pos><mf><sg>/his<det><pos><mf><sg>$"
    yours = spanish_english.whose(stream.read(su))
    hers = spanish_english.whose(stream.read(f"^madre<n><f><sg>/mother<n><sg>$ {su}"))
    assert yours[0].parts[1] == "your<det><pos><mf><sg>"
    assert hers[1].parts[1] == "her<det><pos><mf><sg>"
