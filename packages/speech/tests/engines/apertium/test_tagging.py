"""The readings given to the tagger, and the restriction of its choices."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import stream
from lingua_speech.engines.apertium.tagging import restrict_to_allowed, with_all_readings

pytestmark = pytest.mark.unit

HAVE = "^have/have<vbhaver><inf>/have<vbhaver><pres>/have<vblex><inf>/have<vblex><pres>$"
LEFT = "^have/have<vbhaver><inf>/have<vblex><inf>$"


def test_the_tagger_gets_one_reading_or_all_of_them() -> None:
    analysed = stream.read(f"^I/I<prn>/I<num>$ {HAVE} ^it/it<prn>$.")
    edited = stream.read(f"^I/I<prn>$ {LEFT} ^it/it<prn>$.")
    asked, allowed = with_all_readings(analysed, edited)
    assert stream.write(asked) == f"^I/I<prn>$ {HAVE} ^it/it<prn>$."
    assert allowed == {1: ("have<vbhaver><inf>", "have<vblex><inf>")}


def test_words_that_rules_made_stay_as_they_are() -> None:
    made = stream.read("^please/please<adv>/please<ij>$ ^")
    assert with_all_readings(stream.read(HAVE), made) == (made, {})


@pytest.mark.parametrize(
    ("chosen", "held"),
    [
        ("have<vbhaver><pres>", "have<vbhaver><inf>"),
        ("have<vblex><pres>", "have<vblex><inf>"),
        ("have<vblex><inf>", "have<vblex><inf>"),
    ],
)
def test_its_choice_is_held_to_what_was_left(chosen: str, held: str) -> None:
    allowed = {0: ("have<vbhaver><inf>", "have<vblex><inf>")}
    assert stream.write(restrict_to_allowed(stream.read(f"^{chosen}$ ^it<prn>$"), allowed)) == (
        f"^{held}$ ^it<prn>$"
    )
