"""`lingua languages`: directions, routes, scores, and what to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingua_process import run
from lingua_speech.commands.languages import InstalledTranslators, directions_of, page
from lingua_speech.models import default_store, load_catalogue
from lingua_speech.routing import table
from lingua_speech.routing.routes import TranslationRoute

pytestmark = pytest.mark.speech

DIRECT, OVER = "apertium:en>es", "bergamot:en>pt apertium:pt>es"
BOTH = (("en", "es"), ("es", "en"))


def score(route: str, chrf: float) -> table.Score:
    return table.Score(
        direction=">".join(TranslationRoute.parse(route).direction),
        route=route,
        set="everyday",
        sentences=500,
        chrf=chrf,
        bleu=30.0,
        p50_ms=12.0,
        p95_ms=40.0,
        date="2026-11-17",
    )


def rows(installed: InstalledTranslators) -> dict[str, dict[str, object]]:
    return {f"{row['from']}>{row['to']}": row for row in directions_of(installed)}


def test_a_direction_has_its_route_its_worth_and_what_would_be_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    installed = InstalledTranslators(
        {"apertium": BOTH}, (score(DIRECT, 54.6), score(OVER, 58.2)), {}
    )
    row = rows(installed)["en>es"]
    assert (row["route"], row["chrf"], row["set"], row["p50_ms"]) == (DIRECT, 54.6, "everyday", 12)
    models = ["bergamot-eng-por", "apertium-spa-por"]
    fetched = sum(model.download_bytes() for model in load_catalogue().expand(models))
    assert row["better"] == {
        "route": OVER,
        "chrf": 58.2,
        "install": models,
        "download_bytes": fetched,
    }
    shown = page(list(directions_of(installed)), {})
    assert f"bergamot-eng-por apertium-spa-por (58.2, {fetched / 1e6:.1f} MB)" in shown


def test_what_is_better_and_large_is_recommended_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the scores of the package: French without OPUS."""
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    installed = InstalledTranslators({"apertium": (("en", "fr"), ("fr", "en"))}, table.load(), {})
    for pair in ("en>fr", "fr>en"):
        better = rows(installed)[pair]["better"]
        assert isinstance(better, dict)
        assert (better["route"], better["install"]) == (f"opus:{pair}", ["opus-eng-fra"])
    assert "660.7 MB)" in page(list(directions_of(installed)), {})


def test_what_is_hardly_better_or_cannot_be_had_is_not_recommended() -> None:
    for other in (score(OVER, 54.9), score("nobody:en>es", 99.0)):
        installed = InstalledTranslators({"apertium": BOTH}, (score(DIRECT, 54.6), other), {})
        assert rows(installed)["en>es"]["better"] is None


def test_a_direction_that_is_not_served_has_what_would_serve_it() -> None:
    found = rows(InstalledTranslators({"apertium": BOTH}, (), {}))
    assert (found["en>pt"]["route"], found["en>pt"]["install"]) == (None, ["bergamot-eng-por"])
    assert found["en>it"]["install"] == ["apertium-spa-ita"]
    assert found["en>es"]["chrf"] is None


def test_nothing_at_all_is_shown_as_what_to_install() -> None:
    nothing = InstalledTranslators({}, (), {"bergamot": "no model"})
    shown = page(list(directions_of(nothing)), nothing.left_out)
    assert "lingua models install bergamot-eng-por: en>pt, pt>en" in shown
    assert "left out: bergamot: no model" in shown


def test_the_command_shows_what_the_default_node_does(tmp_path: Path) -> None:
    default_store().install("default")
    models = {"LINGUA_MODELS": str(default_store().root)}
    done = run(["languages"], tmp_path, **models)
    assert done.returncode == 0, done.stderr
    shown = {tuple(line.split()[:2]) for line in done.stdout.splitlines()}
    assert {("en", "es"), ("es", "en"), ("en", "pt"), ("fr", "en")} <= shown
    done = run(["languages", "--json", "--engines", "mt=router:use=bergamot"], tmp_path, **models)
    told = json.loads(done.stdout)
    served = {(row["from"], row["to"]) for row in told["directions"] if row["route"]}
    assert served == {("en", "pt"), ("pt", "en")}
    assert told["left_out"] == {}


def test_without_models_it_says_what_to_install(tmp_path: Path) -> None:
    words = ["languages", "--engines", "mt=router:use=bergamot"]
    done = run(words, tmp_path, LINGUA_MODELS=str(tmp_path))
    assert done.returncode == 0
    assert "lingua models install bergamot-eng-por" in done.stdout
    assert "left out: bergamot:" in done.stdout
