"""The store with a model in pieces that is converted at install."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lingua_speech.models import (
    Model,
    ModelCorrupt,
    ModelStore,
    UnsafeCheckpoint,
)
from lingua_speech.models.catalogue import InnerZip
from models import torch_files
from models.depot import Depot, catalogue, model, running_depot, wheel

pytestmark = pytest.mark.unit


@pytest.fixture(name="depot")
def server() -> Iterator[Depot]:
    with running_depot() as depot:
        yield depot


def left_over(store: ModelStore) -> list[str]:
    """Return what remains in the store besides models and locks."""
    return [path.name for path in store.root.glob(".partial/*")]


WORDS = ["</s>", "<unk>", "▁one", "▁two", "<pad>"]


def marian_model(depot: Depot, tmp_path: Path, spoilt: bytes = b"", **facts: object) -> Model:
    """Return a Marian model in a zip file whose pieces are in two wheels."""
    raw = tmp_path / "upstream"
    torch_files.write_marian(raw, WORDS, torch_files.marian_arrays(len(WORDS)))
    content = {f"x/{path.name}": path.read_bytes() for path in sorted(raw.iterdir())}
    if spoilt:
        content["x/pytorch_model.bin"] = spoilt
    inner = wheel(content)
    halves = (inner[: len(inner) // 2], inner[len(inner) // 2 :])
    downloads = [
        depot.add(f"{at}.whl", wheel({f"p{at}/all.zip": piece})) for at, piece in enumerate(halves)
    ]
    known = hashlib.sha256(content["x/pytorch_model.bin"]).hexdigest()
    told: dict[str, object] = {
        "take": {name: f"raw/en-es/{name[2:]}" for name in content},
        "inner": InnerZip(pattern="p*/all.zip"),
        "prepare": "marian",
        "disk_mb": 2,
        "pinned_raw": {"raw/en-es/pytorch_model.bin": known},
    }
    return model("marian", *downloads, **{**told, **facts})


def test_a_model_in_pieces_is_put_together_converted_and_whole(
    depot: Depot, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "models", catalogue(depot.url, marian_model(depot, tmp_path)))
    store.install("marian")
    names = {path.name for path in store.path("marian").rglob("*") if path.is_file()}
    assert names == {"manifest.json", "model.bin", "config.json", "shared_vocabulary.json"}
    assert store.verify("marian") == []
    assert left_over(store) == []


def test_what_is_to_be_converted_must_be_what_upstream_published(
    depot: Depot, tmp_path: Path
) -> None:
    wrong = {"raw/en-es/pytorch_model.bin": "0" * 64}
    other = marian_model(depot, tmp_path, pinned_raw=wrong)
    with pytest.raises(ModelCorrupt, match="not the file that upstream published"):
        ModelStore(tmp_path / "models", catalogue(depot.url, other)).install("marian")


def test_of_a_preparation_that_fails_only_the_downloads_stay(depot: Depot, tmp_path: Path) -> None:
    evil = torch_files.whole(torch_files.called("os.system", torch_files.text("true")))
    spoilt = marian_model(depot, tmp_path, evil)
    store = ModelStore(tmp_path / "models", catalogue(depot.url, spoilt))
    for _ in range(2):
        with pytest.raises(UnsafeCheckpoint, match=r"it names os\.system"):
            store.install("marian")
        assert not store.has("marian")
        kept = {path.name for path in (store.root / ".partial" / "marian").iterdir()}
        assert kept == {download.sha256 for download in spoilt.downloads}
    # The second attempt requested nothing.
    assert [path for path, _ in depot.asked] == ["/0.whl", "/1.whl"]


def test_another_place_in_the_archives_is_another_model(depot: Depot, tmp_path: Path) -> None:
    before = marian_model(depot, tmp_path)
    moved = msgspec.structs.replace(before, inner=InnerZip(pattern="p*/all.zip", skip_bytes=5))
    assert before.fingerprint != moved.fingerprint
