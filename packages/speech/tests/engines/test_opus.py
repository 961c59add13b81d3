"""OPUS-MT from the model store, with a small Marian model that is converted as a real one is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engines import tiny_models
from lingua_speech import plugins
from lingua_speech.engine import EngineError, ModelMissing, Rendered, Unwatched
from lingua_speech.engines import ctranslate
from lingua_speech.engines.opus import MODELS, is_installed, make
from lingua_speech.engines.router import default_members, settings_of
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.models.marian import convert
from lingua_speech.models.store import MANIFEST
from lingua_speech.plugins import Spec
from lingua_speech.routing.offers import OFFERS
from lingua_wire.errors import ConfigError
from models import torch_files

pytestmark = pytest.mark.unit

TEXT = "good morning where is the station"


def placed(root: Path, model: str, *directions: str, ends: bool = True) -> None:
    """Install a small model in the store."""
    for seed, direction in enumerate(directions):
        raw, folder = root / model / "raw" / direction, root / model / direction
        folder.mkdir(parents=True)
        english = tiny_models.word_pieces(folder / "source.spm", tiny_models.CORPUS[:3])
        other = tiny_models.word_pieces(folder / "target.spm", tiny_models.CORPUS[3:])
        words = list(dict.fromkeys(["</s>", "<unk>", *english, *other, "<pad>"]))
        arrays = torch_files.marian_arrays(len(words), seed)
        arrays["final_logits_bias"][0, 0] += 0.0 if ends else -100.0
        torch_files.write_marian(raw, words, arrays)
    convert(model, root / model)
    (root / model / MANIFEST).write_text("{}")


@pytest.fixture(name="store", scope="module")
def with_french(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    placed(root, "opus-eng-fra", "en-fr", "fr-en")
    return root


@pytest.fixture(name="installed")
def in_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINGUA_MODELS", str(store))
    return store


@pytest.fixture(name="nothing")
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    return tmp_path


def test_it_is_ctranslate_with_what_is_installed(installed: Path) -> None:
    engine = make({})
    assert engine.about().engine == "opus"
    assert engine.about().pairs == (("en", "fr"), ("fr", "en"))
    for source, target in engine.about().pairs:
        folder = installed / "opus-eng-fra" / f"{source}-{target}"
        plain = ctranslate.make({f"dir.{source}-{target}": str(folder)})
        wanted = plain.translate(TEXT, source, target, Unwatched())
        assert wanted
        assert engine.translate(TEXT, source, target, Unwatched()) == wanted
    with pytest.raises(EngineError, match="no model from 'en' to 'es'"):
        engine.translate(TEXT, "en", "es", Unwatched())
    engine.close()


def test_one_that_never_ends_is_ended_within_the_places_that_it_has(nothing: Path) -> None:
    placed(nothing, "opus-eng-fra", "en-fr", ends=False)
    engine = make({})
    text = " ".join("abcdefghij" * 14)
    assert len(engine.translate(text, "en", "fr", Unwatched())) >= ctranslate.MOST_TOKENS
    engine.close()


def test_only_the_directions_that_are_wanted_are_loaded(installed: Path) -> None:
    assert make({"pairs": "en-fr"}).about().pairs == (("en", "fr"),)
    with pytest.raises(ModelMissing):
        make({"pairs": "en-es"})
    with pytest.raises(ConfigError, match="unknown option 'width'"):
        make({"width": "2"})


def test_both_models_serve_together(store: Path, nothing: Path) -> None:
    placed(nothing, "argos-zho-eng", "zh-en")
    assert make({}).about().pairs == (("zh", "en"),)
    (nothing / "opus-eng-fra").symlink_to(store / "opus-eng-fra")
    assert make({}).about().pairs == (("en", "fr"), ("fr", "en"), ("zh", "en"))


def test_nothing_installed_is_told_with_what_to_install(nothing: Path) -> None:
    assert not is_installed()
    with pytest.raises(ModelMissing, match="run: lingua models install french"):
        plugins.make(Spec.parse("mt=opus"))


def test_a_damaged_model_is_told(nothing: Path) -> None:
    placed(nothing, "opus-eng-fra", "en-fr")
    (nothing / "opus-eng-fra" / "en-fr" / "model.bin").write_bytes(b"odd")
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        make({})


def test_what_it_looks_for_is_what_is_offered() -> None:
    assert set(MODELS) == {model for model, (engine, _) in OFFERS.items() if engine == "opus"}


# The router


def test_the_router_has_it_only_where_it_is_installed(store: Path, nothing: Path) -> None:
    assert default_members() == ("bergamot", "small", "apertium")
    team = settings_of({"opus.beam": "4"})
    assert [spec.name for spec in team.members] == ["bergamot", "small", "apertium"]
    (nothing / "opus-eng-fra").symlink_to(store / "opus-eng-fra")
    assert default_members() == ("bergamot", "small", "opus", "apertium")
    team = settings_of({"opus.beam": "4"})
    assert Spec("mt", "opus", {"beam": "4"}) in team.members


def test_who_names_it_is_told_that_it_is_missing(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.make(Spec.parse("mt=router:use=opus+small")).close()
    assert "router: without opus: no OPUS model is installed" in capsys.readouterr().err
    plugins.make(Spec.parse("mt=router")).close()
    assert "opus" not in capsys.readouterr().err


def test_it_works_in_a_worker_process(installed: Path) -> None:
    async def scenario() -> Rendered:
        pool = WorkerPool([Spec.parse("mt=router:use=opus")], WorkerPoolRules())
        try:
            await pool.start()
            done: Rendered = await pool.call(0, TEXT, "en", "fr", timeout_s=20)
            return done
        finally:
            await pool.close()

    done = asyncio.run(scenario())
    assert done.route == "opus:en>fr"
    assert done.text
