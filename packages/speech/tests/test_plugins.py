"""Engines by name: specs, built-in names and entry points of other packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.worker_pools import ENGINES, install_plugins
from lingua_speech.engine import ROLES, ModelMissing, Sound, Unwatched
from lingua_speech.plugins import BUILT_IN, Spec, check, make, names, take
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

# Values that a spec can express: no commas, no spaces at the ends.
plain = st.text(st.characters(codec="utf-8", exclude_characters=","), max_size=12)
keys = plain.filter(lambda key: key.strip() == key != "" and "=" not in key)
values = plain.filter(lambda value: value.strip() == value)
specs = st.builds(
    Spec,
    role=st.sampled_from(ROLES),
    name=st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True),
    options=st.dictionaries(keys, values, max_size=4),
)


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugins(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(str(ENGINES))


@given(specs)
def test_a_spec_written_as_a_line_reads_as_itself(spec: Spec) -> None:
    assert Spec.parse(str(spec)) == spec


def test_a_line_is_read_into_role_name_and_options() -> None:
    spec = Spec.parse(" asr=whisper:model=base, threads = 2,url=http://a:1/?b=c ")
    options = {"model": "base", "threads": "2", "url": "http://a:1/?b=c"}
    assert spec == Spec("asr", "whisper", options)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "whisper",
        "asr=",
        "asr=whis per",
        "asr=whisper:model",
        "asr=whisper:=x",
        "ear=whisper",
        "file=files",
        "asr=whisper:a=1,a=2",
        "asr=whisper: =x",
    ],
)
def test_a_line_that_is_no_spec_is_a_config_error(line: str) -> None:
    with pytest.raises(ConfigError):
        Spec.parse(line)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_engine_fits_its_role_and_no_other(name: str) -> None:
    fit = BUILT_IN[name][1]
    check(Spec(fit, name))
    for role in set(ROLES) - {fit}:
        with pytest.raises(ConfigError, match=f"{name} is for {fit}, not for {role}"):
            check(Spec(role, name))


def test_an_unknown_engine_is_a_config_error_that_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no engine 'wisper'; the engines are .*whisper"):
        check(Spec("asr", "wisper"))


@pytest.mark.usefixtures("third_party")
def test_an_engine_of_another_package_is_found_by_its_entry_point() -> None:
    assert names()["allround"] == "plugin_engines:make_allround"
    engine: Any = make(Spec("vad", "allround"))
    assert engine.spans(Sound(bytes(3200), 16000), Unwatched()) == ((0, 100),)


@pytest.mark.usefixtures("third_party")
def test_an_engine_in_a_role_it_has_no_method_for_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"allround has no translate\(\), which mt requires"):
        make(Spec("mt", "allround"))


@pytest.mark.usefixtures("third_party")
def test_an_engine_whose_library_is_not_there_misses_its_model() -> None:
    with pytest.raises(ModelMissing, match="no_such_module_at_all"):
        make(Spec("mt", "absent"))


def test_a_built_in_name_cannot_be_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "thief-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thief\nVersion: 1.0\n")
    entry = "[lingua_speech.engines]\nwhisper = thief:make\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names()["whisper"] == BUILT_IN["whisper"][0]


def test_a_name_that_two_packages_claim_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("one", "other"):
        info = tmp_path / package / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        entry = f"[lingua_speech.engines]\ncontested = {package}:make\n"
        (info / "entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(str(info.parent))
    with pytest.raises(ConfigError, match="claimed by"):
        check(Spec("asr", "contested"))


def test_options_have_defaults_and_unknown_ones_are_refused() -> None:
    assert take({"a": "1"}, {"a": "0", "b": "2"}) == {"a": "1", "b": "2"}
    with pytest.raises(ConfigError, match="unknown option 'c'; the options are a, b"):
        take({"c": "1"}, {"a": "0", "b": "2"})


def test_neither_the_host_nor_the_plugins_import_what_engines_need() -> None:
    program = (
        "import sys, lingua_speech.host, lingua_speech.plugins as p\n"
        "p.check(p.Spec.parse('asr=whisper:model=base'))\n"
        "p.names()\n"
        "print(sorted({'numpy', 'onnxruntime', 'ctranslate2'} & set(sys.modules)),\n"
        "      [name for name in sys.modules if '.speech.engines.' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[] []"
