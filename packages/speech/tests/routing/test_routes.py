"""The routes that translators form together, and their order."""

from __future__ import annotations

import pytest

from lingua_speech.routing.routes import (
    ROUTES_MAX,
    TranslationRoute,
    candidates,
    directions,
    plan,
    ranked,
)
from lingua_speech.routing.table import Score
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

NEURAL = {("en", "pt"), ("pt", "en")}
RULES = {("en", "es"), ("es", "en"), ("es", "pt"), ("pt", "es"), ("en", "pt"), ("pt", "en")}
ENGINES = {"neural": NEURAL, "rules": RULES}


def names(engines: dict[str, set[tuple[str, str]]], source: str, target: str) -> list[str]:
    return [str(route) for route in candidates(engines, (source, target))]


def score(route: str, chrf: float, of: str = "everyday") -> Score:
    source, target = TranslationRoute.parse(route).direction
    return Score(
        direction=f"{source}>{target}",
        route=route,
        set=of,
        sentences=500,
        chrf=chrf,
        bleu=30.0,
        p50_ms=10.0,
        p95_ms=20.0,
        date="2026-11-17",
    )


def best(engines: dict[str, set[tuple[str, str]]], scores: list[Score]) -> str:
    return str(ranked(candidates(engines, ("en", "es")), scores)[0].route)


def test_direct_ways_come_before_those_over_a_language() -> None:
    assert names(ENGINES, "en", "es") == ["rules:en>es", "neural:en>pt rules:pt>es"]
    assert names(ENGINES, "en", "pt") == ["neural:en>pt", "rules:en>pt"]


def test_two_steps_that_an_engine_does_as_one_are_no_way_of_their_own() -> None:
    assert "rules:en>pt rules:pt>es" not in names(ENGINES, "en", "es")


def test_two_languages_between_only_where_there_is_nothing_shorter() -> None:
    chain = {"a": {("en", "pt")}, "b": {("pt", "es")}, "c": {("es", "ca")}}
    assert names(chain, "en", "ca") == ["a:en>pt b:pt>es c:es>ca"]
    assert names({**chain, "d": {("en", "ca")}}, "en", "ca") == ["d:en>ca"]
    assert names(chain, "ca", "en") == []


def test_every_direction_is_found_and_none_into_itself() -> None:
    assert ("en", "ca") not in directions(ENGINES)
    assert set(directions({"a": {("en", "pt"), ("pt", "en"), ("pt", "pt-br")}})) == {
        ("en", "pt"),
        ("pt", "en"),
    }


def test_the_way_that_was_measured_best_is_taken() -> None:
    direct, over = "rules:en>es", "neural:en>pt rules:pt>es"
    assert best(ENGINES, []) == direct
    assert best(ENGINES, [score(direct, 54.6), score(over, 58.2)]) == over
    assert best(ENGINES, [score(direct, 54.6), score(over, 50.0)]) == direct


def test_what_nobody_measured_comes_behind_what_was() -> None:
    over = "neural:en>pt rules:pt>es"
    assert best(ENGINES, [score(over, 10.0)]) == over
    found = ranked(candidates(ENGINES, ("en", "es")), [score(over, 10.0)])
    assert [one.score is None for one in found] == [False, True]


def test_everyday_sentences_decide_where_a_direction_was_measured_on_them() -> None:
    direct, over = "rules:en>es", "neural:en>pt rules:pt>es"
    prompts = [score(direct, 60.0, "prompts"), score(over, 51.5, "prompts")]
    assert best(ENGINES, prompts) == direct
    assert best(ENGINES, [*prompts, score(direct, 54.6), score(over, 58.2)]) == over


def test_the_kind_of_a_sentence_decides_first() -> None:
    direct, over = "rules:en>es", "neural:en>pt rules:pt>es"
    scores = [
        score(direct, 60.0, "prompts"),
        score(over, 51.5, "prompts"),
        score(direct, 54.6),
        score(over, 58.2),
    ]
    assert str(plan(ENGINES, scores, "prompts")["en", "es"][0].route) == direct
    assert str(plan(ENGINES, scores)["en", "es"][0].route) == over


def test_scores_of_ways_that_are_not_installed_change_nothing() -> None:
    absent = score("gone:en>es", 99.0)
    assert best({"rules": RULES}, [absent]) == "rules:en>es"


def test_a_region_goes_the_ways_of_its_language_ending_in_the_region_where_that_is_known() -> None:
    engines = {
        "neural": {("en", "pt")},
        "rules": {("en", "pt"), ("en", "pt-br"), ("es", "pt"), ("es", "pt-br")},
    }
    scores = [score("neural:en>pt", 70.0), score("rules:en>pt", 50.0)]
    ways = [str(one.route) for one in plan(engines, scores)["en", "pt-br"]]
    assert ways == ["neural:en>pt", "rules:en>pt-br"]
    assert [str(one.route) for one in plan(engines, [])["es", "pt-br"]] == ["rules:es>pt-br"]


def test_not_more_ways_are_kept_than_anybody_would_try() -> None:
    many = {f"e{number}": {("en", "es")} for number in range(20)}
    assert len(ranked(candidates(many, ("en", "es")), [])) == ROUTES_MAX


@pytest.mark.parametrize("text", ["rules:en>es", "neural:en>pt rules:pt>es", "a-b.c:en>pt-br"])
def test_a_way_is_read_as_it_is_written(text: str) -> None:
    assert str(TranslationRoute.parse(text)) == text


@pytest.mark.parametrize("text", ["", "rules", "rules:en", "a:en>pt b:es>fr", "a:en>pt x"])
def test_what_is_no_way_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a route"):
        TranslationRoute.parse(text)
