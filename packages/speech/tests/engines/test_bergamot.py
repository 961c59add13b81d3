"""Bergamot with Mozilla's own models: translations, refused folders, and a worker process."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from pathlib import Path

import pytest

from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, ModelMissing, Stopped, Unwatched
from lingua_speech.engines.bergamot import MODELS, Bergamot, make
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.speech

WATCH = Unwatched()


@pytest.fixture(name="folder", scope="module")
def installed() -> Path:
    [name] = MODELS
    default_store().install(name)
    return default_store().path(name)


@pytest.fixture(name="engine", scope="module")
def loaded(folder: Path) -> Bergamot:
    return make({})


@pytest.fixture(name="copy")
def own_copy(folder: Path, tmp_path: Path) -> Path:
    """A copy of one direction, to be damaged."""
    return Path(shutil.copytree(folder / "en-pt", tmp_path / "copy"))


def test_it_says_what_it_can_do(engine: Bergamot) -> None:
    about = engine.about()
    assert about.pairs == (("en", "pt"), ("pt", "en"))
    assert (about.engine, about.licence) == ("bergamot", "MPL-2.0")


@pytest.mark.parametrize(
    ("source", "target", "said", "translated"),
    [
        (
            "en",
            "pt",
            "The law was passed by a large majority.",
            "A lei foi aprovada por uma grande maioria.",
        ),
        ("en", "pt", "I was born in 1987.", "Eu nasci em 1987."),
        ("pt", "en", "Onde fica a farmácia mais próxima?", "Where is the nearest pharmacy?"),
        ("pt", "en", "Pressione 1 para vendas.", "Press 1 for sales."),
    ],
)
def test_both_directions_are_translated(
    engine: Bergamot, source: str, target: str, said: str, translated: str
) -> None:
    assert engine.translate(said, source, target, WATCH) == translated


def test_a_long_text_is_translated_sentence_by_sentence(engine: Bergamot) -> None:
    parts = ["Good morning.", "Where is the station?", "I am here!"]
    apart = [engine.translate(part, "en", "pt", WATCH) for part in parts]
    assert engine.translate("  ".join(parts * 4), "en", "pt", WATCH) == " ".join(apart * 4)
    with pytest.raises(Stopped):
        engine.translate("Good morning. " * 20, "en", "pt", StopAfter(3))


def test_nothing_gives_nothing_and_bare_signs_stay(engine: Bergamot) -> None:
    assert engine.translate("", "en", "pt", WATCH) == ""
    assert engine.translate(" \n\0 ", "en", "pt", WATCH) == ""
    assert engine.translate("...", "en", "pt", WATCH) == "..."


@pytest.mark.parametrize("text", ["a" * 2000, "word " * 400, "中文 😀 ñandú", "\ufeff\u200b<s>"])
def test_what_no_model_has_seen_ends_and_does_no_harm(engine: Bergamot, text: str) -> None:
    assert isinstance(engine.translate(text, "en", "pt", WATCH), str)


def test_a_region_is_served_by_its_language_and_others_are_refused(engine: Bergamot) -> None:
    assert engine.translate("Hello.", "en-us", "pt-br", WATCH) == "Olá."
    with pytest.raises(EngineError, match="bergamot has no en>de"):
        engine.translate("Hello.", "en", "de", WATCH)


def test_folders_and_directions_can_be_chosen(folder: Path) -> None:
    assert make({"pairs": "en-pt"}).about().pairs == (("en", "pt"),)
    assert make({"dir": str(folder), "pairs": "pt-en"}).about().pairs == (("pt", "en"),)
    one = make({"dir.en>pt-br": str(folder / "en-pt")})
    assert one.about().pairs == (("en", "pt-br"),)
    assert one.translate("Hello.", "en", "pt-br", WATCH) == "Olá."


def test_what_is_not_there_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"en>de; .*lingua models install bergamot-eng-por"):
        make({"pairs": "en-de"})
    with pytest.raises(ModelMissing, match="lingua models install bergamot-eng-por"):
        make({"dir": str(tmp_path)})
    with pytest.raises(ModelMissing, match="is not a folder"):
        make({"dir.en-de": str(tmp_path / "nothing")})
    with pytest.raises(ModelMissing, match=r"has no model\.\*\.bin"):
        make({"dir.en-de": str(tmp_path)})
    with pytest.raises(ConfigError, match="unknown option 'beam'"):
        make({"beam": "2"})


def test_an_empty_store_is_told_with_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    with pytest.raises(ModelMissing, match="run: lingua models install bergamot-eng-por"):
        make({})


def test_a_missing_library_is_told_with_the_command_that_helps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interpreter marks a module that cannot be imported in this way.
    monkeypatch.setitem(sys.modules, "fxtranslate", None)
    with pytest.raises(ModelMissing, match=r"fxtranslate cannot be loaded .*run: .*speech"):
        plugins.make(Spec.parse("mt=bergamot"))


@pytest.mark.parametrize(
    ("pattern", "left_bytes", "problem"),
    [
        ("model.*.bin", 1_000_000, "cannot be loaded"),
        ("model.*.bin", 0, "cannot be loaded"),
        ("vocab.*.spm", 10, "its vocabulary is damaged"),
        ("lex.*.bin", 1000, "is damaged"),
        ("lex.*.bin", 0, "is damaged"),
    ],
)
def test_a_damaged_file_is_an_error_with_its_name(
    copy: Path, pattern: str, left_bytes: int, problem: str
) -> None:
    [file] = copy.glob(pattern)
    file.write_bytes(file.read_bytes()[:left_bytes])
    with pytest.raises(ModelMissing, match=problem) as caught:
        make({"dir.en-pt": str(copy)})
    assert "copy" in caught.value.message


def test_a_model_without_a_shortlist_says_the_same_or_nearly(copy: Path) -> None:
    for file in copy.glob("lex.*.bin"):
        file.unlink()
    engine = make({"dir.en-pt": str(copy)})
    assert engine.translate("I was born in 1987.", "en", "pt", WATCH) == "Eu nasci em 1987."


def test_two_models_in_one_folder_are_refused(copy: Path) -> None:
    (copy / "model.other.bin").write_bytes(b"x")
    with pytest.raises(ConfigError, match="2 files"):
        make({"dir.en-pt": str(copy)})


def test_a_worker_process_loads_and_calls_it_in_one_thread() -> None:
    async def scenario() -> tuple[str, str]:
        pool = WorkerPool(
            [Spec.parse("mt=bergamot"), Spec.parse("mt=bergamot:pairs=en-de")], WorkerPoolRules()
        )
        try:
            await pool.start()
            said = await pool.call(0, "Good morning, my friend.", "en", "pt", timeout_s=20)
            return said, pool.failures[1].code
        finally:
            await pool.close()

    assert threading.current_thread() is threading.main_thread()
    assert asyncio.run(scenario()) == ("Bom dia, meu amigo.", "MODEL_NOT_AVAILABLE")
