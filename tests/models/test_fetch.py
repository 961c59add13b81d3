"""Downloads against a real server that breaks off, lies, is gone or ignores ranges."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.models import ModelCorrupt, SourceUnreachable
from lingua_scheduler.models.fetch import TRIES_MAX, Item, fetch
from models.depot import Depot, running_depot

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 400


@pytest.fixture(name="depot")
def one_file() -> Iterator[Depot]:
    with running_depot() as depot:
        depot.add("file.tgz", CONTENT)
        yield depot


def closed_port() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def item(*bases: str, content: bytes = CONTENT) -> Item:
    urls = tuple(f"{base}/file.tgz" for base in bases)
    digest = hashlib.sha256(content).hexdigest()
    return Item("m", "file.tgz", urls, len(content), digest, "LINGUA_TEST_URL")


def nothing(_: int) -> None:
    """Hear of progress."""


def test_a_file_arrives_whole_and_says_how_far_it_is(depot: Depot, tmp_path: Path) -> None:
    heard: list[int] = []
    url = fetch(item(depot.url), tmp_path / "f", heard.append)
    assert url == f"{depot.url}/file.tgz"
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert heard[-1] == len(CONTENT)
    assert heard == sorted(heard)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_file_that_is_there_is_not_asked_for(depot: Depot, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert depot.asked == []


def test_a_download_that_breaks_off_goes_on_where_it_stopped(depot: Depot, tmp_path: Path) -> None:
    depot.cuts["/file.tgz"] = [1000, 500]
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [wanted for _, wanted in depot.asked] == ["", "bytes=1000-", "bytes=1500-"]


def test_what_an_earlier_run_left_is_gone_on_with(depot: Depot, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT[:7000])
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert depot.asked == [("/file.tgz", "bytes=7000-")]


def test_a_server_without_ranges_begins_anew(depot: Depot, tmp_path: Path) -> None:
    depot.has_ranges = False
    depot.cuts["/file.tgz"] = [1000]
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_server_that_always_breaks_off_is_given_up(depot: Depot, tmp_path: Path) -> None:
    depot.cuts["/file.tgz"] = [0] * 100
    with pytest.raises(SourceUnreachable, match="broke off"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert len(depot.asked) < TRIES_MAX


def test_a_wrong_hash_is_refused_and_nothing_is_kept(depot: Depot, tmp_path: Path) -> None:
    depot.files["/file.tgz"] = bytes(len(CONTENT))
    with pytest.raises(ModelCorrupt, match="SHA-256"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_beginning_of_an_earlier_run_is_thrown_away(depot: Depot, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"x" * 7000)
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_beginning_longer_than_the_file_is_thrown_away(depot: Depot, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(b"x" * (len(CONTENT) + 1))
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_an_answer_of_another_size_is_not_read(depot: Depot, tmp_path: Path) -> None:
    depot.files["/file.tgz"] = b"<html>please log in</html>"
    with pytest.raises(SourceUnreachable, match="answers with 26 bytes"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert list(tmp_path.iterdir()) == []


def test_a_shorter_file_on_the_server_does_not_block_the_next_address(
    depot: Depot, tmp_path: Path
) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT[:7000])
    with running_depot() as other:
        other.add("file.tgz", b"short")
        fetch(item(other.url, depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 403, 500])
def test_the_next_address_is_asked_when_one_has_it_not(
    depot: Depot, tmp_path: Path, status: int
) -> None:
    with running_depot() as other:
        other.statuses["/file.tgz"] = status
        url = fetch(item(other.url, depot.url), tmp_path / "f", nothing)
        assert other.asked
    assert url.startswith(depot.url)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_the_next_address_is_asked_when_one_gives_something_else(
    depot: Depot, tmp_path: Path
) -> None:
    with running_depot() as other:
        other.add("file.tgz", bytes(len(CONTENT)))
        fetch(item(other.url, depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_an_unreachable_source_is_named_with_what_to_set(depot: Depot, tmp_path: Path) -> None:
    gone = closed_port()
    depot.statuses["/file.tgz"] = 404
    with pytest.raises(SourceUnreachable) as caught:
        fetch(item(gone, depot.url), tmp_path / "f", nothing)
    text = str(caught.value)
    assert gone.removeprefix("http://") in text
    assert "HTTP 404" in text
    assert "LINGUA_TEST_URL" in text
    assert "installed keep working" in text
    assert len(caught.value.tries) == 2


def test_a_folder_can_be_the_mirror(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "file.tgz").write_bytes(CONTENT)
    fetch(item((tmp_path / "mirror").as_uri()), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match="not an address"):
        fetch(item("ftp://127.0.0.1"), tmp_path / "f", nothing)


def fake_apt(folder: Path, given: bytes) -> None:
    """Put a program `apt-get` there that gives this file for any package and notes its words."""
    folder.mkdir()
    (folder / "given").write_bytes(given)
    script = f'#!/bin/sh\necho "$@" > {folder}/words\ncp {folder}/given got_1_all.deb\n'
    (folder / "apt-get").write_text(script)
    (folder / "apt-get").chmod(0o755)


def package(base: str) -> Item:
    return item(base)._replace(file="name_1.0-1+b2_amd64.deb", apt=True)


def test_the_machines_own_apt_is_asked_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(tmp_path / "bin", CONTENT)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert fetch(package(closed_port()), tmp_path / "f", nothing) == "apt:name_1.0-1+b2_amd64.deb"
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert (tmp_path / "bin/words").read_text() == "download name:amd64=1.0-1+b2\n"


def test_what_apt_gives_must_be_what_was_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(tmp_path / "bin", b"another package")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(SourceUnreachable):
        fetch(package(closed_port()), tmp_path / "f", nothing)
    assert not (tmp_path / "f").exists()


def test_a_file_of_an_earlier_run_that_is_no_longer_right_is_fetched_again(
    depot: Depot, tmp_path: Path
) -> None:
    target = tmp_path / "file"
    target.write_bytes(bytes(len(CONTENT)))
    fetch(item(depot.url), target, nothing)
    assert target.read_bytes() == CONTENT


def test_a_password_in_a_mirrors_address_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable) as failed:
        fetch(item("http://me:hunter2@127.0.0.1:1"), tmp_path / "file", nothing)
    assert "hunter2" not in str(failed.value)
    assert "127.0.0.1:1" in str(failed.value)
