"""Checks docs/engines.md against the code: engines, options, examples and its plugin."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import tomllib
from pathlib import Path

import pytest

from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, Stopped, Unwatched
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.plugins import BUILT_IN, GROUP, Spec
from lingua_speech.presets import EnginePlan, plan_of
from workspace import PACKAGES, ROOT

pytestmark = pytest.mark.unit

PAGE = (ROOT / "docs" / "engines.md").read_text("utf-8")
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(found["kind"], found["text"]) for found in BLOCK.finditer(PAGE)]
OPTION = re.compile(r"^\| `(?P<name>[^`]+)` \| (?:`(?P<default>[^`]*)`)? ?\|", re.MULTILINE)
SECTION = re.compile(r"^### (?P<names>[^\n]+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def options_on_the_page(name: str) -> dict[str, str]:
    """Return the options of an engine's section, with their defaults."""
    text = next(found["text"] for found in SECTION.finditer(PAGE) if name in _names(found))
    return {found["name"]: found["default"] or "" for found in OPTION.finditer(text)}


def _names(found: re.Match[str]) -> list[str]:
    return [name.strip() for name in found["names"].split(",")]


def known_options(name: str) -> dict[str, str]:
    module = importlib.import_module(BUILT_IN[name][0].partition(":")[0])
    if name.startswith("openai"):
        return {**module.TTS_OPTIONS, **module.TEXT_OPTIONS}
    return dict(module.KNOWN)


def toml_blocks(marker: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == "toml" and marker in text]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_page_has_every_engine_with_its_options_and_their_defaults(name):
    on_page = options_on_the_page(name)
    families = {option for option in on_page if "." in option}
    plain = {option: on_page[option] for option in on_page.keys() - families}
    assert plain == known_options(name)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| [{name}]("))
    assert row.split("|")[2].strip() == BUILT_IN[name][1]


@pytest.mark.parametrize(
    "name",
    [
        "pico",
        "espeak",
        "piper",
        "faster-whisper",
        "ctranslate2",
        "bergamot",
        "router",
        "small",
        "opus",
        "moonshine",
        "openai-asr",
        "langid",
    ],
)
def test_the_module_says_the_same_options_as_the_page(name):
    module = importlib.import_module(BUILT_IN[name][0].partition(":")[0])
    table = re.findall(r"^\| ([\w., -]+?) \| *([^|]*?) *\|", module.__doc__ or "", re.MULTILINE)
    said = {option.strip(): default for options, default in table for option in options.split(",")}
    said.pop("option")
    wanted = options_on_the_page(name)
    plain = {option: default for option, default in said.items() if "." not in option}
    assert plain == {option: wanted[option] for option in wanted if "." not in option}


def test_the_extras_that_the_page_names_are_those_of_the_package():
    project = tomllib.loads((PACKAGES["lingua_speech"] / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    named = set(re.findall(r"`\[([a-z0-9-]+)\]`", PAGE))
    assert named <= set(project["optional-dependencies"])
    assert {"engines", "pico", "piper", "ctranslate2", "faster-whisper"} <= named


def test_every_command_line_on_the_page_can_be_read(tmp_path):
    lines = [line for _, text in BLOCKS for line in text.splitlines() if "--engines" in line]
    lines += re.findall(r"`(lingua node --engines [^`]+)`", PAGE)
    words = [line.partition("#")[0].partition("--engines")[2].split() for line in lines]
    specs = [Spec.parse(word) for line in words for word in line if "=" in word]
    assert len(specs) >= 7
    for spec in specs:
        if spec.name in BUILT_IN:
            plugins.check(spec)
            assert spec.options.keys() <= known_options(spec.name).keys()


def plan_in(text: str, folder: Path) -> EnginePlan:
    file = folder / "engines.toml"
    file.write_text(text, "utf-8")
    return plan_of([str(file)])


def test_the_configurations_on_the_page_name_engines_and_options_that_exist(tmp_path):
    gpu, server = (plan_in(text, tmp_path) for text in toml_blocks("[[engine]]"))
    assert [spec.name for spec in gpu.specs].count("ctranslate2") == 2
    assert gpu.workers.workers == {"asr": 2, "nmt": 1, "tts": 2}
    for spec in (*gpu.specs, *server.specs):
        plain = {option for option in spec.options if "." not in option}
        assert plain <= known_options(spec.name).keys()
        families = {option.partition(".")[0] for option in spec.options.keys() - plain}
        shown = {option.partition(".")[0] for option in options_on_the_page(spec.name)}
        assert families <= shown


def test_the_configuration_of_a_server_makes_engines_that_declare_what_it_says(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SPEECH_KEY", "sk-test")
    plan = plan_in(toml_blocks("[[engine]]")[1], tmp_path)
    made = {spec.role: plugins.make(spec).about() for spec in plan.specs if spec.role != "lid"}
    assert made["asr"].languages == made["tts"].languages == ("en", "es", "fr")
    assert made["asr"].pairs == (("es", "en"), ("fr", "en"))
    assert len(made["mt"].pairs) == 6


@pytest.fixture(name="installed")
def package_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugin of the page by its pyproject.toml, here and for child processes."""
    source = next(text for kind, text in BLOCKS if kind == "python")
    project = tomllib.loads(toml_blocks("entry-points")[0])["project"]
    (tmp_path / "lingua_beeps.py").write_text(source, "utf-8")
    info = tmp_path / f"lingua_beeps-{project['version']}.dist-info"
    info.mkdir()
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    points = [f"{name} = {where}" for name, where in project["entry-points"][GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points]) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.usefixtures("installed")
def test_the_plugin_on_the_page_is_found_and_speaks():
    assert plugins.names()["beeps"] == "lingua_beeps:make"
    beeps = plugins.make(Spec.parse("tts=beeps:pitch_hz=880"))
    assert beeps.about().languages == ("en", "es")
    assert beeps.speak("one two three", "en", Unwatched()).duration_ms == 900
    with pytest.raises(Stopped):
        beeps.speak("one two three", "en", StopAfter(1))
    with pytest.raises(EngineError, match="no beeps in de"):
        beeps.speak("eins", "de", Unwatched())


@pytest.mark.usefixtures("installed")
def test_the_plugin_on_the_page_runs_in_a_worker_process():
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("tts=beeps")], WorkerPoolRules(workers=1))
        try:
            await pool.start()
            assert pool.abouts[0].engine == "beeps"
            sound = await pool.call(0, "one two", "es", timeout_s=20)
            assert sound.duration_ms == 600
        finally:
            await pool.close()

    asyncio.run(scenario())
