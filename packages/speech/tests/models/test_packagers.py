"""The machine's own apt-get, npm and pip, used when no address provides a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_speech.models import SourceUnreachable
from lingua_speech.models.fetch import PinnedFile, fetch
from models.depot import Depot, running_depot, wheel

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 400
GONE = "http://127.0.0.1:1"
REGISTRY = "https://npm.example.org/mirror/"
WHEEL = wheel(
    {
        "small.py": b"",
        "small-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        "small-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "small-1.0.dist-info/RECORD": b"",
    }
)


@pytest.fixture(name="depot")
def server() -> Iterator[Depot]:
    with running_depot() as depot:
        yield depot


def item(file: str, packager: str, content: bytes = CONTENT, base: str = GONE) -> PinnedFile:
    digest = hashlib.sha256(content).hexdigest()
    return PinnedFile(
        "m", file, (f"{base}/{file}",), len(content), digest, "LINGUA_TEST_URL", packager
    )


def nothing(_: int) -> None:
    """Ignore progress."""


def program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program first on the PATH that records its arguments and then runs this script."""
    folder.mkdir(exist_ok=True)
    (folder / "given").write_bytes(CONTENT)
    (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {folder}/words\n{script}\n')
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("file", "word"),
    [
        ("name_1.0-1+b2_amd64.deb", "name:amd64=1.0-1+b2"),
        ("name_1.0-1_all.deb", "name=1.0-1"),
    ],
)
def test_apt_is_asked_for_exactly_the_pinned_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, word: str
) -> None:
    folder = tmp_path / "bin"
    program(folder, "apt-get", f"cp {folder}/given got_1_all.deb", monkeypatch)
    asked: list[str] = []
    url = fetch(item(file, "apt-get"), tmp_path / "f", nothing, asked.append)
    assert url == f"apt-get:{file}"
    assert asked == ["apt-get"]
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert (folder / "words").read_text() == f"download {word}\n"


def test_what_a_packager_gives_must_be_what_was_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "apt-get", "echo another > a_1_all.deb", monkeypatch)
    with pytest.raises(SourceUnreachable, match="apt-get: provided another file"):
        fetch(item("a_1_all.deb", "apt-get"), tmp_path / "f", nothing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo one >&2; echo E: no such package >&2; exit 100", "apt-get: E: no such package"),
        (
            "echo npm error code E1 >&2; echo npm error log >&2; exit 1",
            "apt-get: npm error code E1",
        ),
        ("echo just words >&2; exit 1", "apt-get: just words"),
        ("exit 3", "apt-get: ended with 3"),
    ],
)
def test_why_a_packager_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    program(tmp_path / "bin", "apt-get", script, monkeypatch)
    with pytest.raises(SourceUnreachable, match=why):
        fetch(item("a_1_all.deb", "apt-get"), tmp_path / "f", nothing)


@pytest.mark.parametrize(("packager", "file"), [("apt-get", "a_1_all.deb"), ("npm", "a-1.tgz")])
def test_a_packager_that_is_not_here_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packager: str, file: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceUnreachable, match=f"{packager}: is not installed"):
        fetch(item(file, packager), tmp_path / "f", nothing)


def test_npm_is_asked_when_it_has_a_registry_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    script = f"[ $1 = config ] && echo {REGISTRY} || cp {folder}/given two-words-1.0.0.tgz"
    program(folder, "npm", script, monkeypatch)
    url = fetch(item("two-words-1.0.0.tgz", "npm"), tmp_path / "f", nothing)
    assert url == "npm:two-words-1.0.0.tgz"
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert (folder / "words").read_text().splitlines()[1:] == [
        "pack --loglevel=error --ignore-scripts --fetch-retries=1 two-words@1.0.0"
    ]


def test_npm_is_not_asked_when_its_registry_has_just_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "npm", f"echo {GONE}/", monkeypatch)
    with pytest.raises(SourceUnreachable, match="npm: has no other registry"):
        fetch(item("a-1.0.0.tgz", "npm"), tmp_path / "f", nothing)
    assert (tmp_path / "bin/words").read_text() == "config get registry\n"


def test_pip_is_not_asked_for_sources_which_it_would_run(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match="pip: is used for wheels only, not for sources"):
        fetch(item("small-1.0.tar.gz", "pip"), tmp_path / "f", nothing)


def test_pip_finds_the_file_by_its_own_index(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "small-1.0-py3-none-any.whl"
    depot.add(f"deep/{file}", WHEEL)
    depot.files["/simple/small/"] = f'<a href="../../deep/{file}">{file}</a>'.encode()
    depot.pages.add("/simple/small/")
    for name, value in {"CONFIG_FILE": "/dev/null", "FIND_LINKS": "", "NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_INDEX_URL", f"{depot.url}/simple")
    url = fetch(item(file, "pip", WHEEL), tmp_path / "f", nothing)
    assert url == f"pip:{file}"
    assert (tmp_path / "f").read_bytes() == WHEEL
