"""`lingua models` as a person runs it, on small models from a server of the test."""

from __future__ import annotations

import json
import os
import pty
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lingua_scheduler.cli.main import build_parser
from lingua_scheduler.cli.models import progress_on
from lingua_scheduler.models import ModelNotInstalled, ModelUnknown, SourceUnreachable, Store
from models.depot import Depot, catalogue, model, running_depot, tgz

pytestmark = pytest.mark.unit


@pytest.fixture(name="depot")
def server() -> Iterator[Depot]:
    with running_depot() as depot:
        yield depot


@pytest.fixture(name="store")
def small_store(depot: Depot, tmp_path: Path) -> Store:
    one = model("one", depot.add("one.tgz", tgz({"package/a": b"a" * 5000})))
    two = model("two", depot.add("two.tgz", tgz({"package/b": b"b"})), requires=("one",))
    return Store(tmp_path / "models", catalogue(depot.url, one, two, groups={"both": ("two",)}))


def run(store: Store, *words: str) -> int:
    args = build_parser(("models",)).parse_args(["models", *words])
    return int(args.act(store, args))


def test_the_real_catalogue_is_listed_from_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path / "none"))
    args = build_parser(("models",)).parse_args(["models", "list"])
    assert args.run(args) == 0
    out = capsys.readouterr().out
    assert "whisper-base" in out
    assert "GPL-2.0-or-later" in out
    assert f"0 of 14 installed, 0.0 MB in {tmp_path / 'none'}" in out
    assert not (tmp_path / "none").exists()


def test_the_list_shows_what_is_installed_and_what_a_group_lacks(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run(store, "list")
    assert "group both (0.0 MB to fetch): one two" in capsys.readouterr().out
    store.install("both")
    run(store, "list")
    out = capsys.readouterr().out
    assert "group both (installed): one two" in out
    assert "2 of 2 installed" in out


def test_the_list_as_json_and_in_full_names_licences_and_sources(
    store: Store, depot: Depot, capsys: pytest.CaptureFixture[str]
) -> None:
    store.install("one")
    run(store, "list", "--json")
    one, two = json.loads(capsys.readouterr().out)
    assert one["installed"]
    assert one["path"] == str(store.path("one"))
    assert one["sources"] == [f"{depot.url}/one.tgz"]
    assert not two["installed"]
    assert (two["licence"], two["requires"], two["groups"]) == ("CC0-1.0", ["one"], ["both"])
    run(store, "list", "-v")
    out = capsys.readouterr().out
    assert "credit    the tests" in out
    assert f"from      {depot.url}/two.tgz" in out


def test_install_says_what_it_does_in_plain_lines_and_where_it_put_it(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "install", "both") == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "one: downloading 0.0 MB", "one: unpacking", "two: downloading 0.0 MB", "two: unpacking",
    ]  # fmt: skip
    lines = said.out.splitlines()
    assert lines[0].startswith("one: installed, 0.0 MB in ")
    assert lines[0].endswith(str(store.path("one")))
    assert lines[2].startswith(f"2 models in {store.root}: 0.0 MB fetched in ")
    assert run(store, "install", "one") == 0
    said = capsys.readouterr()
    assert said.out == f"one: there already, {store.path('one')}\n"
    assert said.err == ""


def test_verify_tells_whole_from_changed_and_what_to_do(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "verify") == 0
    assert capsys.readouterr().out == "no model is installed\n"
    store.install("both")
    assert run(store, "verify") == 0
    assert capsys.readouterr().out == "one: whole\ntwo: whole\n"
    (store.path("one") / "a").write_bytes(b"b" * 5000)
    assert run(store, "verify", "one") == 1
    out = capsys.readouterr().out
    assert "a: changed" in out
    assert "lingua models remove one && lingua models install one" in out
    assert run(store, "verify", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"one": ["a: changed"], "two": []}


def test_verify_of_a_model_that_is_not_there_fails(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "verify", "one") == 1
    assert "run: lingua models install one" in capsys.readouterr().out


def test_remove_and_path_name_one_model(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.install("both")
    assert run(store, "path", "two") == 0
    assert capsys.readouterr().out == f"{store.path('two')}\n"
    assert run(store, "remove", "two") == 0
    assert capsys.readouterr().out == "two: removed\n"
    with pytest.raises(ModelNotInstalled):
        run(store, "path", "two")
    with pytest.raises(ModelUnknown, match="did you mean two"):
        run(store, "remove", "twoo")


def on_a_terminal(store: Store, name: str) -> str:
    """Install with progress on a real terminal and return what it showed, also of a failure."""
    master, slave = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        while not shown or not shown[-1].endswith(b"END"):
            shown.append(os.read(master, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w") as stream:
        with suppress(SourceUnreachable), progress_on(stream) as show:
            store.install(name, show)
        stream.write("END")
        stream.flush()
        reader.join(30)
    os.close(master)
    return b"".join(shown).decode()


def test_a_terminal_gets_a_bar_that_is_gone_in_the_end(store: Store) -> None:
    text = on_a_terminal(store, "one")
    assert "one                      [########################] 100%  0.0 of 0.0 MB" in text
    assert "unpacking…" in text
    assert "\n" not in text
    assert text.endswith("\r\x1b[KEND")


def test_the_bar_is_gone_when_an_install_fails(store: Store, depot: Depot) -> None:
    depot.cuts["/one.tgz"] = [20] + [0] * 9
    text = on_a_terminal(store, "one")
    assert not store.has("one")
    assert "[---" in text or "[#" in text
    assert text.endswith("\r\x1b[KEND")
