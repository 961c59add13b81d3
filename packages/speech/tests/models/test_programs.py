"""The paths of Apertium's programs: those of the store first, then the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_speech.models import ModelNotInstalled, ModelStore, apertium_environment
from models.depot import catalogue, deb, model, running_depot

pytestmark = pytest.mark.unit


def test_the_programs_of_the_store_come_before_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin::/bin")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    content = {"usr/bin/lt-proc": b"", "usr/lib/x86_64-linux-gnu/liba.so": b""}
    with running_depot() as depot:
        download = depot.add("a_1_all.deb", deb(content))
        known = catalogue(depot.url, model("apertium", download, take={"usr/": "root/usr/"}))
        store = ModelStore(tmp_path, known)
        with pytest.raises(ModelNotInstalled):
            apertium_environment(store)
        store.install("apertium")
    usr = tmp_path / "apertium/root/usr"
    assert apertium_environment(store) == {
        "PATH": f"{usr}/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": f"{usr}/lib/x86_64-linux-gnu",
    }
