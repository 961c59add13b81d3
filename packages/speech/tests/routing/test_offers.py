"""What to install for a direction: the fewest models that provide it, all in the catalogue."""

from __future__ import annotations

import pytest

from lingua_speech.models import load_catalogue
from lingua_speech.plugins import BUILT_IN
from lingua_speech.routing.offers import OFFERS, pairs_with, to_install

pytestmark = pytest.mark.unit


def test_every_offer_is_a_model_of_the_catalogue_for_a_translator() -> None:
    known = load_catalogue().models
    for model, (engine, pairs) in OFFERS.items():
        assert model in known
        assert BUILT_IN[engine][1] == "mt"
        assert pairs


def test_every_translation_of_the_catalogue_is_an_offer() -> None:
    models = load_catalogue().models.values()
    pairs = {model.name for model in models if model.purpose.startswith("translation")}
    assert pairs - {"apertium"} == set(OFFERS)


@pytest.mark.parametrize(
    ("direction", "installed", "models"),
    [
        (("en", "pt"), (), ("bergamot-eng-por",)),
        (("en", "es"), (), ("apertium-eng-spa",)),
        (("en", "it"), (), ("apertium-eng-spa", "apertium-spa-ita")),
        (("en", "it"), (("en", "es"),), ("apertium-spa-ita",)),
        (("fr", "ca"), (), ("apertium-eng-spa", "apertium-fra-spa", "apertium-eng-cat")),
        (("zh", "en"), (), ("argos-zho-eng",)),
        (("en", "zh"), (), ()),
        (("en", "fr"), (), ("apertium-eng-spa", "apertium-fra-spa")),
    ],
)
def test_the_fewest_models_are_named(
    direction: tuple[str, str], installed: tuple[tuple[str, str], ...], models: tuple[str, ...]
) -> None:
    assert to_install(direction, installed) == models


def test_models_add_to_what_an_engine_has() -> None:
    found = pairs_with({"apertium": [("en", "es")]}, ["apertium-spa-por", "bergamot-eng-por"])
    assert found["apertium"] == {("en", "es"), ("es", "pt"), ("pt", "es")}
    assert found["bergamot"] == {("en", "pt"), ("pt", "en")}
