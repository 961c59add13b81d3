"""The catalogue of the package is consistent, and a bad one is refused when it is read."""

from __future__ import annotations

import re

import msgspec
import pytest

from lingua_speech.models import ModelUnknown, load_catalogue
from lingua_speech.models.archives import kind_of
from lingua_speech.models.prepare import STEPS

pytestmark = pytest.mark.unit

KNOWN = load_catalogue()
SMALL = """
[sources.s]
urls = ["http://127.0.0.1:9"]
variable = "V"
[groups]
g = ["m"]
[models.m]
purpose = "p"
licence = "l"
credit = "c"
disk_mb = 1
take = {"a" = "b"}
[[models.m.downloads]]
source = "s"
path = "a.tgz"
size = 1
sha256 = "SHA"
""".replace("SHA", "0" * 64)


@pytest.mark.parametrize("name", KNOWN.models)
def test_every_model_is_pinned_and_can_be_unpacked(name: str) -> None:
    model = KNOWN.model(name)
    assert all(kind_of(download.file) for download in model.downloads)
    assert all(re.fullmatch("[0-9a-f]{64}", download.sha256) for download in model.downloads)
    assert all(download.size > 0 for download in model.downloads)
    assert model.prepare in {"", *STEPS}
    assert all(from_.endswith("/") == to.endswith("/") for from_, to in model.take.items())


@pytest.mark.parametrize("name", KNOWN.models)
def test_every_model_is_for_all_machines_or_for_both_kinds(name: str) -> None:
    packages: dict[str, set[str]] = {}
    for download in KNOWN.model(name).downloads:
        packages.setdefault(download.architecture, set()).add(download.file.split("_")[0])
    assert set(packages) in ({""}, {"amd64", "arm64"})
    assert packages.get("amd64") == packages.get("arm64")


@pytest.mark.parametrize("name", KNOWN.models)
def test_what_is_pinned_is_taken_and_what_is_used_up_is_prepared(name: str) -> None:
    model = KNOWN.model(name)
    assert {*model.pinned, *model.pinned_raw} <= set(model.take.values())
    assert model.prepare or not model.pinned_raw
    assert 0 < model.kept_bytes <= model.disk_mb * 1_000_000


def test_a_zip_file_in_pieces_is_read_up_to_the_last_file_that_is_taken() -> None:
    """Later pieces are not downloaded, so a rule for a folder would never be complete."""
    french = KNOWN.model("opus-eng-fra")
    assert french.inner is not None
    assert not any(rule.endswith("/") for rule in french.take)
    assert french.download_bytes() < 700_000_000


def test_each_group_has_what_the_one_before_has() -> None:
    default, demo, bench = (KNOWN.groups[name] for name in ("default", "demo", "bench"))
    assert set(default) < set(demo) < set(bench)


def test_names_and_groups_are_expanded_with_what_they_require_each_once() -> None:
    names = [model.name for model in KNOWN.expand(["apertium-spa-ita", "default"])]
    assert names[:2] == ["apertium", "apertium-spa-ita"]
    assert len(names) == len(set(names)) == 8


def test_an_unknown_name_is_answered_with_what_is_near() -> None:
    with pytest.raises(ModelUnknown) as caught:
        KNOWN.expand(["whisper-bas"])
    assert caught.value.near[0] == "whisper-base"
    with pytest.raises(ModelUnknown, match="lingua models list"):
        KNOWN.model("zzz")


def test_the_environment_may_name_several_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    npm = KNOWN.sources["npm"]
    monkeypatch.delenv("LINGUA_NPM_URL", raising=False)
    assert npm.addresses() == ("https://registry.npmjs.org",)
    monkeypatch.setenv("LINGUA_NPM_URL", "http://one http://two")
    assert npm.addresses() == ("http://one", "http://two")


def test_a_small_catalogue_is_read() -> None:
    assert load_catalogue(SMALL.encode()).model("m").name == "m"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('g = ["m"]', 'g = ["n"]'),
        ('g = ["m"]', 'm = ["m"]'),
        ('source = "s"', 'source = "t"'),
        ("0" * 64, "0" * 63),
        ("disk_mb = 1", 'disk_mb = 1\nrequires = ["n"]'),
        ("disk_mb = 1", "disk_mb = 1\nsurprise = 1"),
        ("disk_mb = 1", ""),
        ('take = {"a" = "b"}', "take = {}"),
    ],
)
def test_a_catalogue_that_is_wrong_in_itself_is_refused(old: str, new: str) -> None:
    assert old in SMALL
    with pytest.raises((ValueError, msgspec.ValidationError)):
        load_catalogue(SMALL.replace(old, new).encode())


def test_what_is_installed_is_another_when_the_catalogue_pins_another_file() -> None:
    before = load_catalogue(SMALL.encode()).model("m").fingerprint
    assert load_catalogue(SMALL.encode()).model("m").fingerprint == before
    assert (
        load_catalogue(SMALL.replace("0" * 64, "1" * 64).encode()).model("m").fingerprint != before
    )
    said = SMALL.replace('purpose = "p"', 'purpose = "other words"')
    assert load_catalogue(said.encode()).model("m").fingerprint == before
