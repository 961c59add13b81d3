"""`lingua models` as a process, on small models from a server of the test."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from lingua_cli.main import build_parser
from lingua_speech.commands.models import progress_on
from lingua_speech.models import (
    ModelNeeded,
    ModelNotInstalled,
    ModelStore,
    ModelUnknown,
    SourceUnreachable,
    load_catalogue,
)
from models.depot import Depot, catalogue, model, running_depot, tgz

pytestmark = pytest.mark.unit

# The command, with a catalogue from a file.
OWN_CATALOGUE = """
import sys, msgspec
from pathlib import Path
from lingua_cli.main import main
from lingua_speech.models import store
from lingua_speech.models.catalogue import Catalogue
known = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Catalogue)
store.load_catalogue = lambda: known
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(name="depot")
def server() -> Iterator[Depot]:
    with running_depot() as depot:
        yield depot


@pytest.fixture(name="store")
def small_store(depot: Depot, tmp_path: Path) -> ModelStore:
    one = model("one", depot.add("one.tgz", tgz({"package/a": b"a" * 5000})))
    two = model("two", depot.add("two.tgz", tgz({"package/b": b"b"})), requires=("one",))
    return ModelStore(
        tmp_path / "models", catalogue(depot.url, one, two, groups={"both": ("two",)})
    )


def run(store: ModelStore, *words: str) -> int:
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
    count = len(load_catalogue().models)
    assert f"0 of {count} installed, 0.0 MB in {tmp_path / 'none'}" in out
    assert "group french (660.7 MB to fetch, 160.0 MB on disk): opus-eng-fra" in out
    assert not (tmp_path / "none").exists()


def test_the_list_shows_what_is_installed_and_what_a_group_lacks(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    run(store, "list")
    assert "group both (0.0 MB to fetch, 2.0 MB on disk): one two" in capsys.readouterr().out
    store.install("both")
    run(store, "list")
    out = capsys.readouterr().out
    assert "group both (installed): one two" in out
    assert "2 of 2 installed" in out


def test_the_list_as_json_and_in_full_names_licences_and_sources(
    store: ModelStore, depot: Depot, capsys: pytest.CaptureFixture[str]
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
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "install", "both") == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "2 models: 0.0 MB to fetch; up to 2.0 MB of disk meanwhile, about 2.0 MB after",
        "one: downloading 0.0 MB",
        "one: unpacking",
        "two: downloading 0.0 MB",
        "two: unpacking",
    ]
    lines = said.out.splitlines()
    assert lines[0].startswith("one: installed, 0.0 MB in ")
    assert lines[0].endswith(str(store.path("one")))
    assert lines[2].startswith(f"2 models in {store.root}: 0.0 MB fetched in ")
    assert run(store, "install", "one") == 0
    said = capsys.readouterr()
    assert said.out == f"one: already installed, {store.path('one')}\n"
    assert said.err == ""


def test_verify_tells_whole_from_changed_and_what_to_do(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
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
    assert run(store, "verify", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"one": ["a: changed"], "two": []}


def test_verify_of_a_model_that_is_not_there_fails(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "verify", "one") == 1
    assert "run: lingua models install one" in capsys.readouterr().out


def test_remove_and_path_name_one_model(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.install("both")
    assert run(store, "path", "two") == 0
    assert capsys.readouterr().out == f"{store.path('two')}\n"
    assert run(store, "remove", "two") == 0
    assert capsys.readouterr().out == "two: removed\n"
    with pytest.raises(ModelNotInstalled):
        run(store, "path", "two")
    with pytest.raises(ModelUnknown, match="did you mean two"):
        run(store, "remove", "twoo")


def terminal(columns: int) -> tuple[int, int]:
    """Open a terminal of this width."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    return master, slave


def on_a_pty(words: list[str], columns: int, **environment: str) -> str:
    """Run a program with its output on a terminal and return the output."""
    master, slave = terminal(columns)
    with subprocess.Popen(words, stdout=slave, env=os.environ | environment):
        os.close(slave)
        shown = b""
        with suppress(OSError):  # the error of Linux after the last writer has closed
            while some := os.read(master, 65536):
                shown += some
    os.close(master)
    return shown.decode()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, up to a limit."""
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def on_a_terminal(store: ModelStore, name: str, columns: int = 80) -> str:
    """Install with progress on a real terminal and return the output, also after a failure."""
    master, slave = terminal(columns)
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


def test_a_terminal_gets_a_bar_that_is_gone_in_the_end(store: ModelStore) -> None:
    text = on_a_terminal(store, "one")
    assert "one                      [########################] 100%  0.0 of 0.0 MB" in text
    assert "one                      unpacking" in text
    assert "\n" not in text
    assert text.endswith("\r\x1b[KEND")


def test_the_bar_is_gone_when_an_install_fails(
    store: ModelStore, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.PAUSE_S", 0.0)
    depot.cuts["/one.tgz"] = [20] + [0] * 9
    text = on_a_terminal(store, "one")
    assert not store.has("one")
    assert "[---" in text or "[#" in text
    assert text.endswith("\r\x1b[KEND")


def lingua(
    store: ModelStore, *words: str, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the actions in a process, on the catalogue of this store."""
    return subprocess.run(
        command(store, *words),
        env=os.environ | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


def command(store: ModelStore, *words: str) -> list[str]:
    file = store.root.parent / "catalogue.json"
    file.write_bytes(msgspec.json.encode(store.catalogue))
    return [sys.executable, "-c", OWN_CATALOGUE, str(file), "models", *words]


def test_one_damaged_model_hides_no_other(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.install("both")
    (store.path("one") / "manifest.json").write_bytes(b"{")
    assert run(store, "list") == 0
    out = capsys.readouterr().out
    assert "damaged" in out
    assert "1 of 2 installed" in out
    run(store, "list", "--json")
    one, two = json.loads(capsys.readouterr().out)
    assert "cannot be read" in one["damage"]
    assert two["damage"] is None
    assert run(store, "verify") == 1
    out = capsys.readouterr().out
    assert "one: NOT as installed" in out
    assert "two: whole" in out


def test_the_advice_of_verify_mends_the_model(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.install("both")
    (store.path("one") / "a").write_bytes(b"b" * 5000)
    assert run(store, "verify", "one") == 1
    advice = capsys.readouterr().out.splitlines()[-1].strip()
    assert advice == "run: lingua models install --again one"
    assert run(store, *advice.removeprefix("run: lingua models ").split()) == 0
    assert store.verify("one") == []
    assert "one: installed" in capsys.readouterr().out


def test_a_group_is_removed_users_first_and_nothing_when_others_need_a_part(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.install("both")
    with pytest.raises(ModelNeeded, match="needed by two"):
        run(store, "remove", "one")
    assert run(store, "remove", "one", "two") == 0
    assert capsys.readouterr().out == "two: removed\none: removed\n"
    store.install("both")
    with pytest.raises(ModelUnknown):
        run(store, "remove", "two", "three")
    assert store.has("two")
    assert run(store, "remove", "both") == 0
    assert capsys.readouterr().out == "two: removed\n"
    with pytest.raises(ModelNotInstalled):
        run(store, "remove", "both")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_list_fits_the_terminal(columns: int) -> None:
    words = [sys.executable, "-m", "lingua_cli", "models", "list"]
    shown = on_a_pty(words, columns, LINGUA_MODELS="/m")
    lines = shown.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].split()[0] == "name"
    assert lines[0].split()[-1] == "installed"
    assert any(line.startswith("recordings-librivox-en") for line in lines)
    assert ("licence" in lines[0]) == (columns == 200)


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_bar_fits_the_terminal_it_is_on_and_tells_how_far_it_is(
    store: ModelStore, columns: int
) -> None:
    text = on_a_terminal(store, "one", columns)
    lines = [line.removesuffix("END") for line in text.split("\r\x1b[K")]
    assert max(map(len, lines)) < columns
    assert any("100%" in line for line in lines)
    assert all(("#" * 8 in line) == (columns >= 80) for line in lines if "100%" in line)


def test_a_terminal_that_knows_no_escapes_gets_lines(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = on_a_terminal(store, "one")
    assert "\x1b" not in text
    assert "one: unpacking" in text


@pytest.mark.parametrize("act", [["list"], ["list", "-v"], ["list", "--json"], ["path", "one"]])
def test_a_directory_whose_name_is_no_text_here_is_shown_all_the_same(
    depot: Depot, tmp_path: Path, act: list[str]
) -> None:
    one = model("one", depot.add("one.tgz", tgz({"package/a": b"a"})))
    for name, encoding in ((b"mod\xe8les", "utf-8"), ("modèles".encode(), "ascii")):
        root = tmp_path / os.fsdecode(name)
        store = ModelStore(root, catalogue(depot.url, one))
        store.install("one")
        done = lingua(store, *act, LINGUA_MODELS=str(root), PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        if act[0] == "path":
            assert done.stdout == os.fsencode(root / "one") + b"\n"


def test_an_interrupted_install_says_so_and_the_next_goes_on(
    store: ModelStore, depot: Depot
) -> None:
    big = os.urandom(400_000)
    one = model("one", depot.add("one.tgz", tgz({"package/a": big})))
    store = ModelStore(store.root, catalogue(depot.url, one))
    depot.held["/one.tgz"] = threading.Event()
    environment = os.environ | {"LINGUA_MODELS": str(store.root)}
    with subprocess.Popen(
        command(store, "install", "one"), env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        part = store.root / ".partial/one" / f"{one.downloads[0].sha256}.part"
        wait_until(lambda: part.exists() and part.stat().st_size > 100_000)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted")
    depot.held.clear()
    assert store.install("one")[0].is_new
    assert depot.asked[-1][1].startswith("bytes=")


def test_offline_with_a_part_missing_names_the_model_the_host_and_the_ways_out(
    store: ModelStore, depot: Depot
) -> None:
    store.install("one")
    depot.statuses["/two.tgz"] = 503
    done = lingua(store, "install", "both", LINGUA_MODELS=str(store.root))
    assert done.returncode == 1
    assert done.stdout.decode() == f"one: already installed, {store.path('one')}\n"
    said, ways = done.stderr.decode().splitlines()[-2:]
    host = depot.url.removeprefix("http://")
    assert said.startswith(f"lingua: cannot fetch two.tgz of model two from {host}: HTTP 503")
    for way in ("LINGUA_TEST_URL", "https_proxy", "copy the models"):
        assert way in ways
