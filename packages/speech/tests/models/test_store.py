"""The store: installed completely or not at all, through kills, races and full disks."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lingua_speech.models import (
    InstallProgress,
    ModelCorrupt,
    ModelError,
    ModelNeeded,
    ModelNotInstalled,
    ModelStore,
    ModelUnknown,
    ModelUnsupported,
    NoSpace,
    PreparationMissing,
    SourceUnreachable,
    StoreUnwritable,
    default_root,
    prepare,
)
from lingua_speech.models.catalogue import Catalogue
from models.depot import VARIABLE, Depot, catalogue, deb, model, running_depot, tgz, wheel

pytestmark = pytest.mark.unit

BIG = bytes(range(256)) * 1500
ONE = {"package/big.bin": BIG, "package/sub/small.txt": b"small"}
# Installs a model in another process, from a catalogue in a file; it can stop at a stage.
INSTALLER = """
import sys, msgspec
from pathlib import Path
from lingua_speech.models import ModelStore
from lingua_speech.models.catalogue import Catalogue
def stop(stage):
    if stage.what == sys.argv[4]:
        print("stopped", flush=True)
        sys.stdin.read()
known = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Catalogue)
for done in ModelStore(Path(sys.argv[2]), known).install(sys.argv[3], stop):
    print(done.name, done.is_new)
"""


@pytest.fixture(name="depot")
def server() -> Iterator[Depot]:
    with running_depot() as depot:
        yield depot


@pytest.fixture(name="known")
def small_catalogue(depot: Depot) -> Catalogue:
    one = model("one", depot.add("one.tgz", tgz(ONE)))
    programs = model(
        "programs",
        depot.add("run_1_all.deb", deb({"usr/bin/run": b"run"}, {"usr/bin/go": "run"})),
        depot.add("lib_1_all.deb", deb({"usr/lib/lib.so": b"library"})),
        take={"usr/bin/": "root/bin/", "usr/lib/": "root/lib/"},
    )
    pair = model("pair", depot.add("pair.whl", wheel({"package/p": b"p"})), requires=("programs",))
    return catalogue(depot.url, one, programs, pair, groups={"all": ("one", "pair")})


@pytest.fixture(name="store")
def empty_store(tmp_path: Path, known: Catalogue) -> ModelStore:
    return ModelStore(tmp_path / "models", known)


def left_over(store: ModelStore) -> list[str]:
    """Return what remains in the store besides models and locks."""
    return [path.name for path in store.root.glob(".partial/*")]


def start_installer(store: ModelStore, name: str, stop_at: str = "") -> subprocess.Popen[str]:
    file = store.root.parent / "catalogue.json"
    file.write_bytes(msgspec.json.encode(store.catalogue))
    command = [sys.executable, "-c", INSTALLER, str(file), str(store.root), name, stop_at]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def test_an_installed_model_is_whole_and_its_folder_is_found(store: ModelStore) -> None:
    assert not store.has("one")
    (done,) = store.install("one")
    assert done.is_new
    assert done.path == store.path("one")
    assert (done.path / "big.bin").read_bytes() == BIG
    assert (done.path / "sub/small.txt").read_bytes() == b"small"
    assert store.verify("one") == []
    assert left_over(store) == []


def test_the_manifest_says_what_came_from_where(store: ModelStore, depot: Depot) -> None:
    store.install("one")
    manifest = json.loads((store.path("one") / "manifest.json").read_bytes())
    assert manifest["sources"] == {
        f"{depot.url}/one.tgz": store.catalogue.model("one").downloads[0].sha256
    }
    assert sorted(manifest["files"]) == ["big.bin", "sub/small.txt"]
    assert manifest["licence"] == "CC0-1.0"
    assert manifest["size_bytes"] == len(BIG) + 5


def test_what_a_model_requires_is_installed_first(store: ModelStore) -> None:
    assert [done.name for done in store.install("pair")] == ["programs", "pair"]
    assert (store.path("programs") / "root/bin/go").read_bytes() == b"run"
    assert (store.path("programs") / "root/lib/lib.so").read_bytes() == b"library"


def test_a_group_is_installed_with_what_it_requires(store: ModelStore) -> None:
    assert [done.name for done in store.install("all")] == ["one", "programs", "pair"]


def test_a_model_that_is_there_is_used_without_a_network(
    store: ModelStore, depot: Depot, known: Catalogue
) -> None:
    store.install("all")
    asked = len(depot.asked)
    again = ModelStore(store.root, known)
    assert [done.is_new for done in again.install("all")] == [False, False, False]
    assert again.path("one").is_dir()
    assert len(depot.asked) == asked


def test_progress_is_told_from_the_first_byte_to_the_end(store: ModelStore) -> None:
    stages: list[InstallProgress] = []
    store.install("programs", stages.append)
    assert [stage.what for stage in stages] == ["download"] * 4 + ["unpack", "place", "done"]
    assert [stages[0].done_bytes, stages[3].done_bytes] == [0, stages[3].total_bytes]
    assert stages[0].total_bytes == store.catalogue.model("programs").download_bytes()


def test_a_model_that_is_not_installed_says_what_to_type(store: ModelStore) -> None:
    with pytest.raises(ModelNotInstalled, match="lingua models install one"):
        store.path("one")
    with pytest.raises(ModelNotInstalled):
        store.verify("one")
    with pytest.raises(ModelNotInstalled):
        store.remove("one")


def test_an_unknown_name_is_answered_with_one_that_is_near(store: ModelStore) -> None:
    for ask in (store.path, store.has, store.install, store.remove, store.verify):
        with pytest.raises(ModelUnknown, match="did you mean programs"):
            ask("porgrams")


def test_a_removed_model_is_gone_and_can_come_back(store: ModelStore) -> None:
    store.install("one")
    store.remove("one")
    assert not store.has("one")
    assert not (store.root / "one").exists()
    assert left_over(store) == []
    assert store.install("one")[0].is_new


def test_verify_finds_a_changed_byte(store: ModelStore) -> None:
    store.install("one")
    with (store.path("one") / "big.bin").open("r+b") as file:
        file.seek(77)
        file.write(b"\xff")
    assert store.verify("one") == ["big.bin: changed"]


def test_verify_finds_missing_new_and_relinked_files(store: ModelStore) -> None:
    store.install("programs")
    root = store.path("programs") / "root"
    (root / "lib/lib.so").unlink()
    (root / "lib/more.so").write_bytes(b"")
    (root / "bin/go").unlink()
    (root / "bin/go").symlink_to("/bin/sh")
    assert store.verify("programs") == [
        "root/lib/lib.so: missing",
        "root/lib/more.so: not of this model",
        "symbolic links: changed",
    ]


def test_a_damaged_manifest_is_found_and_cured_by_installing(store: ModelStore) -> None:
    store.install("one")
    (store.path("one") / "manifest.json").write_bytes(b"{")
    assert "cannot be read" in store.verify("one")[0]
    assert store.install("one")[0].is_new
    assert store.verify("one") == []


def test_a_wrong_download_installs_nothing(store: ModelStore, depot: Depot) -> None:
    depot.files["/one.tgz"] = bytes(len(depot.files["/one.tgz"]))
    with pytest.raises(ModelCorrupt, match="SHA-256"):
        store.install("one")
    assert not store.has("one")


def test_a_file_that_is_not_what_upstream_published_installs_nothing(
    tmp_path: Path, depot: Depot
) -> None:
    one = model("one", depot.add("one.tgz", tgz(ONE)), pinned={"big.bin": "0" * 64})
    store = ModelStore(tmp_path / "models", catalogue(depot.url, one))
    with pytest.raises(ModelCorrupt, match="upstream"):
        store.install("one")
    assert not store.has("one")


def test_an_unreachable_source_leaves_what_is_installed(store: ModelStore, depot: Depot) -> None:
    store.install("programs")
    depot.statuses["/pair.whl"] = 404
    with pytest.raises(SourceUnreachable, match=VARIABLE):
        store.install("pair")
    assert store.verify("programs") == []


def test_a_mirror_of_the_environment_replaces_the_addresses(
    store: ModelStore, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_depot() as mirror:
        mirror.files = depot.files
        monkeypatch.setenv(VARIABLE, mirror.url + "/")
        store.install("one")
        assert mirror.asked == [("/one.tgz", "")]
    assert depot.asked == []


def test_a_new_catalogue_replaces_an_older_model(store: ModelStore, depot: Depot) -> None:
    store.install("one")
    newer = model("one", depot.add("one-2.tgz", tgz({"package/new": b"2"})))
    again = ModelStore(store.root, catalogue(depot.url, newer))
    assert again.has("one")
    assert not again.entries()[0].is_current
    assert again.install("one")[0].is_new
    assert again.entries()[0].is_current
    assert [path.name for path in sorted(again.path("one").iterdir())] == ["manifest.json", "new"]


def test_an_older_model_stays_when_the_new_one_cannot_come(store: ModelStore, depot: Depot) -> None:
    store.install("one")
    newer = model("one", depot.add("one-2.tgz", tgz({"package/new": b"2"})))
    depot.statuses["/one-2.tgz"] = 404
    with pytest.raises(SourceUnreachable):
        ModelStore(store.root, catalogue(depot.url, newer)).install("one")
    assert store.verify("one") == []


def test_two_processes_that_install_at_once_both_end_with_it_whole(
    store: ModelStore, depot: Depot
) -> None:
    held = depot.held["/one.tgz"] = threading.Event()
    first, second = start_installer(store, "one"), start_installer(store, "one")
    assert depot.reached.wait(30)
    held.set()
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in (first, second))
    assert answers == ["one False", "one True"]
    assert (first.returncode, second.returncode) == (0, 0)
    assert [path for path, _ in depot.asked] == ["/one.tgz"]
    assert store.verify("one") == []


def test_an_install_killed_in_mid_download_leaves_nothing_half_and_goes_on(
    store: ModelStore, depot: Depot
) -> None:
    depot.held["/one.tgz"] = threading.Event()
    process = start_installer(store, "one")
    assert depot.reached.wait(30)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not store.has("one")
    assert not (store.root / "one").exists()
    depot.held.pop("/one.tgz").set()
    assert store.install("one")[0].is_new
    assert store.verify("one") == []
    assert left_over(store) == []


@pytest.mark.parametrize("stage", ["download", "unpack", "place", "done"])
def test_an_install_killed_at_any_stage_leaves_it_whole_or_not_there(
    store: ModelStore, stage: str
) -> None:
    with start_installer(store, "programs", stage) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        process.kill()
    assert store.has("programs") == (stage == "done")
    assert (store.root / "programs").exists() == (stage == "done")
    assert store.install("programs")[0].is_new == (stage != "done")
    assert store.verify("programs") == []
    assert left_over(store) == []


def test_one_who_waits_for_a_killed_install_does_it_himself(store: ModelStore) -> None:
    with start_installer(store, "one", "unpack") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "stopped\n"
        with start_installer(store, "one", "wait") as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "stopped\n"
            first.kill()
            assert second.communicate("", timeout=60)[0] == "one True\n"
    assert store.verify("one") == []


def test_a_half_unpacked_tree_of_a_killed_install_is_thrown_away(store: ModelStore) -> None:
    tree = store.root / ".partial/one/tree"
    tree.mkdir(parents=True)
    (tree / "big.bin").write_bytes(b"half")
    (tree / "stray").write_bytes(b"stray")
    store.install("one")
    assert store.verify("one") == []
    assert not (store.path("one") / "stray").exists()


def test_what_an_interrupted_install_left_can_be_removed(
    store: ModelStore, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.PAUSE_S", 0.0)
    depot.cuts["/one.tgz"] = [100] + [0] * 50
    with pytest.raises(SourceUnreachable):
        store.install("one")
    assert left_over(store) == ["one"]
    store.remove("one")
    assert left_over(store) == []


def test_a_model_too_big_for_the_disk_is_refused_before_the_download(
    tmp_path: Path, depot: Depot
) -> None:
    huge = model("huge", depot.add("huge.tgz", tgz(ONE)), disk_mb=10**9)
    with pytest.raises(NoSpace, match="MB are free"):
        ModelStore(tmp_path / "models", catalogue(depot.url, huge)).install("huge")
    assert depot.asked == []


def test_a_disk_that_fills_up_in_between_is_reported_and_nothing_is_half(store: ModelStore) -> None:
    # A limit on the size of files, because a write then fails in the same way as on a full disk.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(BIG) // 2, hard))
    try:
        with pytest.raises(NoSpace):
            store.install("one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not store.has("one")
    assert store.install("one")[0].is_new


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, known: Catalogue) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ModelStore(tmp_path / "file" / "models", known)
    assert not store.has("one")
    with pytest.raises(StoreUnwritable, match="LINGUA_MODELS"):
        store.install("one")


def test_a_model_for_other_machines_is_refused_before_the_download(
    tmp_path: Path, depot: Depot
) -> None:
    download = msgspec.structs.replace(depot.add("a.tgz", tgz(ONE)), architecture="z80")
    store = ModelStore(tmp_path / "models", catalogue(depot.url, model("alien", download)))
    with pytest.raises(ModelUnsupported, match="z80"):
        store.install("alien")
    assert depot.asked == []


def test_a_model_for_a_newer_system_is_refused(tmp_path: Path, depot: Depot) -> None:
    newer = model("newer", depot.add("a.tgz", tgz(ONE)), glibc="99.0")
    with pytest.raises(ModelUnsupported, match=r"glibc 99\.0"):
        ModelStore(tmp_path / "models", catalogue(depot.url, newer)).install("newer")


def test_the_directory_is_chosen_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LINGUA_MODELS", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".local/share/lingua/models"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_root() == tmp_path / "data/lingua/models"
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path / "here"))
    assert default_root() == tmp_path / "here"


def test_nothing_outside_of_the_store_can_be_removed(store: ModelStore, tmp_path: Path) -> None:
    store.install("one")
    mine = tmp_path / "diary"
    mine.write_text("dear diary")
    for name in (str(mine), "../diary", "../../diary", ".", ""):
        with pytest.raises(ModelUnknown):
            store.remove(name)
    assert mine.read_text() == "dear diary"


def test_a_model_that_is_a_link_to_another_disk_is_removed_as_a_link(
    store: ModelStore, tmp_path: Path
) -> None:
    store.install("one")
    elsewhere = tmp_path / "elsewhere"
    (store.root / "one").rename(elsewhere)
    (store.root / "one").symlink_to(elsewhere)
    store.remove("one")
    assert not store.has("one")
    assert elsewhere.is_dir()
    assert left_over(store) == []


def test_a_home_that_nobody_knows_is_told_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINGUA_MODELS", "~nobody-of-that-name/models")
    with pytest.raises(ModelError, match="set LINGUA_MODELS"):
        default_root()


def test_a_damaged_manifest_does_not_hide_the_other_models(store: ModelStore) -> None:
    store.install("all")
    (store.path("one") / "manifest.json").write_bytes(b"{")
    found = {entry.model.name: entry for entry in store.entries()}
    assert found["one"].manifest is None
    assert "cannot be read" in found["one"].damage
    assert not found["one"].is_current
    assert found["pair"].is_current


@pytest.mark.parametrize("kind", ["part of a loop", "long"])
def test_a_directory_that_cannot_be_read_is_named(
    tmp_path: Path, known: Catalogue, kind: str
) -> None:
    root = tmp_path / "part of a loop"
    root.symlink_to(root)
    store = ModelStore(root if kind == "part of a loop" else tmp_path / ("x" * 300), known)
    for ask in (store.entries, lambda: store.install("one"), lambda: store.remove("one")):
        with pytest.raises(ModelError, match="LINGUA_MODELS"):
            ask()


def test_a_file_that_cannot_be_read_is_a_finding(known: Catalogue) -> None:
    # Not in pytest's folder, which only its owner can read.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        store = ModelStore(Path(folder), known)
        store.install("one")
        (store.path("one") / "big.bin").chmod(0)
        me = os.geteuid()
        if me == 0:
            os.seteuid(65534)  # root may read everything
        try:
            problems = store.verify("one")
        finally:
            os.seteuid(me)
    assert problems == ["big.bin: cannot be read: Permission denied"]


def test_a_manifest_cannot_vouch_for_what_upstream_did_not_publish(
    tmp_path: Path, depot: Depot
) -> None:
    right = hashlib.sha256(BIG).hexdigest()
    one = model("one", depot.add("one.tgz", tgz(ONE)), pinned={"big.bin": right})
    store = ModelStore(tmp_path / "models", catalogue(depot.url, one))
    store.install("one")
    manifest = store.path("one") / "manifest.json"
    (store.path("one") / "big.bin").write_bytes(b"mine")
    forged = manifest.read_text().replace(right, hashlib.sha256(b"mine").hexdigest())
    manifest.write_text(forged)
    assert store.verify("one") == ["big.bin: changed"]


def test_a_model_that_others_need_is_not_removed_before_them(store: ModelStore) -> None:
    store.install("pair")
    with pytest.raises(ModelNeeded, match="lingua models remove pair programs"):
        store.remove("programs")
    assert store.verify("programs") == []
    store.remove("pair")
    store.remove("programs")
    assert not store.has("programs")


@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_what_lies_where_a_model_belongs_is_replaced_or_removed(
    store: ModelStore, kind: str
) -> None:
    place = store.root / "one"
    for act in (store.install, store.remove):
        store.root.mkdir(exist_ok=True)
        if kind == "file":
            place.write_text("in the way")
        elif kind == "folder":
            place.mkdir()
        else:
            place.symlink_to("nowhere")
        act("one")
        assert store.has("one") == (act == store.install)
        if store.has("one"):
            store.remove("one")
        assert left_over(store) == []


def test_an_older_model_stays_when_the_new_one_cannot_be_put_in_its_place(
    store: ModelStore, depot: Depot
) -> None:
    store.install("one")
    newer = model("one", depot.add("one-2.tgz", tgz({"package/new": b"2"})))
    again = ModelStore(store.root, catalogue(depot.url, newer))

    def spoil(stage: InstallProgress) -> None:
        # The folder of the new tree is missing when it should be renamed.
        if stage.what == "place":
            shutil.rmtree(store.root / ".partial/one/tree")

    with pytest.raises(StoreUnwritable):
        again.install("one", spoil)
    assert store.verify("one") == []


def test_downloads_of_an_older_catalogue_do_not_stay(store: ModelStore, depot: Depot) -> None:
    stale = store.root / ".partial/one"
    stale.mkdir(parents=True)
    (stale / ("0" * 64)).write_bytes(b"old")
    (stale / f"{'1' * 64}.part").write_bytes(b"older")
    depot.cuts["/one.tgz"] = [0] * 50
    with pytest.raises(SourceUnreachable):
        store.install("one")
    assert [path.name for path in stale.iterdir() if path.stat().st_size] == []


def test_whoever_removes_is_told_that_he_waits(store: ModelStore) -> None:
    store.install("one")
    stages: list[InstallProgress] = []
    with (store.root / ".locks/one").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def free(stage: InstallProgress) -> None:
            stages.append(stage)
            fcntl.flock(file, fcntl.LOCK_UN)

        store.remove("one", free)
    assert [stage.what for stage in stages] == ["wait"]
    assert not store.has("one")


def test_a_group_is_not_a_model_and_says_so(store: ModelStore) -> None:
    with pytest.raises(ModelUnknown, match="all is not a model but a group: one pair"):
        store.path("all")


def test_a_preparation_that_cannot_be_loaded_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx.py").write_text("raise ImportError('numpy is too old')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "onnx", raising=False)
    with pytest.raises(PreparationMissing, match="numpy is too old"):
        prepare.run("m", "whisper", tmp_path)
