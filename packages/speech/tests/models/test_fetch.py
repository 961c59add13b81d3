"""Downloads from a real server that breaks off, sends false content, or ignores ranges."""

from __future__ import annotations

import hashlib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_speech.models import ModelCorrupt, SourceUnreachable
from lingua_speech.models.fetch import (
    IDLE_TRIES,
    PATIENT_TRIES,
    PROGRESS_BYTES,
    PinnedFile,
    UnreachableHosts,
    fetch,
)
from models.depot import Depot, running_depot

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 400


@pytest.fixture(name="depot")
def one_file() -> Iterator[Depot]:
    with running_depot() as depot:
        depot.add("file.tgz", CONTENT)
        yield depot


def closed_port() -> str:
    """Return an address without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def item(*bases: str, content: bytes = CONTENT) -> PinnedFile:
    urls = tuple(f"{base}/file.tgz" for base in bases)
    digest = hashlib.sha256(content).hexdigest()
    return PinnedFile("m", "file.tgz", urls, len(content), digest, "LINGUA_TEST_URL")


def nothing(_: int) -> None:
    """Ignore progress."""


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


def test_a_server_that_gives_another_range_is_asked_for_the_whole(
    depot: Depot, tmp_path: Path
) -> None:
    depot.skew = 10
    (tmp_path / "f.part").write_bytes(CONTENT[:7000])
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [wanted for _, wanted in depot.asked] == ["bytes=7000-", ""]


def test_a_server_that_always_breaks_off_is_given_up(depot: Depot, tmp_path: Path) -> None:
    depot.cuts["/file.tgz"] = [0] * 100
    with pytest.raises(SourceUnreachable, match="broke off"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert len(depot.asked) == IDLE_TRIES


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
    assert "Installed models keep working" in text
    assert len(caught.value.tries) == 2


def test_a_folder_can_be_the_mirror(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "file.tgz").write_bytes(CONTENT)
    fetch(item((tmp_path / "mirror").as_uri()), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match="the scheme is not"):
        fetch(item("ftp://127.0.0.1"), tmp_path / "f", nothing)


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


def test_what_came_before_a_silence_is_kept(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.TIMEOUT_S", 0.3)
    depot.stalls["/file.tgz"] = [1000]
    fetch(item(depot.url), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [wanted for _, wanted in depot.asked] == ["", "bytes=1000-"]


def test_a_network_that_breaks_off_all_the_time_brings_the_file_in_the_end(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.PAUSE_S", 0.0)
    large = CONTENT * 30
    depot.add("file.tgz", large)
    depot.cuts["/file.tgz"] = [PROGRESS_BYTES] * 40
    fetch(item(depot.url, content=large), tmp_path / "f", nothing)
    assert (tmp_path / "f").read_bytes() == large
    assert len(depot.asked) == 41


def test_a_server_without_ranges_that_breaks_off_all_the_time_is_given_up(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.PAUSE_S", 0.0)
    depot.has_ranges = False
    # Alternating: every second answer is longer than the one before it.
    depot.cuts["/file.tgz"] = [90_000, 10] * 50
    with pytest.raises(SourceUnreachable, match="broke off"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert len(depot.asked) <= PATIENT_TRIES + 1


def test_a_file_that_is_another_after_a_break_is_fetched_once_more(
    depot: Depot, tmp_path: Path
) -> None:
    depot.files["/file.tgz"] = bytes(len(CONTENT))
    depot.cuts["/file.tgz"] = [1000]

    def mend(have: int) -> None:
        if have:
            depot.files["/file.tgz"] = CONTENT

    fetch(item(depot.url), tmp_path / "f", mend)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_server_that_gives_crumbs_is_left_for_the_next(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.PAUSE_S", 0.0)
    monkeypatch.setattr("lingua_speech.models.fetch.PACE_WINDOW_S", 0.2)
    with running_depot() as slow:
        slow.add("file.tgz", CONTENT)
        slow.crumbs["/file.tgz"] = 10
        url = fetch(item(slow.url, depot.url), tmp_path / "f", nothing)
    assert url.startswith(depot.url)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_log_in_page_is_told_from_a_file_and_not_kept(depot: Depot, tmp_path: Path) -> None:
    depot.files["/file.tgz"] = b"<html>please log in</html>"
    depot.pages.add("/file.tgz")
    with pytest.raises(SourceUnreachable, match="a web page"):
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_to_another_host_is_followed_also_by_what_goes_on(
    depot: Depot, tmp_path: Path
) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT[:7000])
    with running_depot() as first:
        first.add("file.tgz", b"")
        first.moved["/file.tgz"] = f"{depot.url}/file.tgz"
        fetch(item(first.url), tmp_path / "f", nothing)
    assert depot.asked == [("/file.tgz", "bytes=7000-")]


@pytest.mark.parametrize("scheme", ["ftp", "file"])
def test_a_redirect_to_another_kind_of_address_is_not_followed(
    depot: Depot, tmp_path: Path, scheme: str
) -> None:
    depot.moved["/file.tgz"] = f"{scheme}://127.0.0.1:9/file.tgz"
    with pytest.raises(SourceUnreachable, match=f"HTTP 302 .*{scheme}"):
        fetch(item(depot.url), tmp_path / "f", nothing)


def test_a_redirect_in_a_circle_ends_with_one_line(depot: Depot, tmp_path: Path) -> None:
    depot.moved["/file.tgz"] = "/file.tgz"
    with pytest.raises(SourceUnreachable) as caught:
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert "infinite loop" in caught.value.tries[0][1]
    assert caught.value.tries[0][1].isprintable()


def test_what_a_server_says_cannot_drive_the_terminal(depot: Depot, tmp_path: Path) -> None:
    depot.statuses["/file.tgz"] = 404
    depot.reason = "gone\x1b]0;owned\x07" + "!" * 1000
    with pytest.raises(SourceUnreachable, match="HTTP 404 gone") as caught:
        fetch(item(depot.url), tmp_path / "f", nothing)
    assert caught.value.tries[0][1].isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "base", ["http://[::1", "http://a..b", "http://127.0.0.1:1/\u00e9", "http://h:port", "mirror"]
)
def test_a_mirror_that_is_no_address_is_named(tmp_path: Path, base: str) -> None:
    with pytest.raises(SourceUnreachable, match="LINGUA_TEST_URL"):
        fetch(item(base), tmp_path / "f", nothing)


def test_progress_is_told_before_anybody_answers(tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT[:7000])
    heard: list[int] = []
    with pytest.raises(SourceUnreachable):
        fetch(item(closed_port()), tmp_path / "f", heard.append)
    assert heard == [7000]


def test_a_host_that_did_not_answer_is_not_waited_for_with_each_file(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.fetch.TIMEOUT_S", 0.2)
    unreachable = UnreachableHosts()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.settimeout(0)
        base = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        for name in ("f", "g", "h"):
            fetch(item(base, depot.url), tmp_path / name, nothing, unreachable=unreachable)
        for _ in range(IDLE_TRIES):
            deaf.accept()[0].close()
        with pytest.raises(BlockingIOError):
            deaf.accept()


def test_a_proxy_of_the_environment_is_asked_and_exceptions_from_it_are_not(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", depot.url)
    depot.files["http://mirror.invalid/file.tgz"] = CONTENT
    fetch(item("http://mirror.invalid"), tmp_path / "f", nothing)
    assert depot.asked == [("http://mirror.invalid/file.tgz", "")]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fetch(item(depot.url), tmp_path / "g", nothing)
    assert depot.asked[1:] == [("/file.tgz", "")]


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    gone = closed_port().removeprefix("http://")
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}me:hunter2@{gone}")
    with pytest.raises(SourceUnreachable) as caught:
        fetch(item("https://mirror.invalid"), tmp_path / "f", nothing)
    assert f"mirror.invalid by the proxy {gone}: " in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_file_is_told_with_what_to_set(depot: Depot, tmp_path: Path) -> None:
    depot.files["/file.tgz"] = bytes(len(CONTENT))
    with pytest.raises(ModelCorrupt, match="set LINGUA_TEST_URL to another mirror"):
        fetch(item(depot.url), tmp_path / "f", nothing)


@pytest.fixture(name="certificate")
def certificate_of_its_own(tmp_path: Path) -> Path:
    """Return a file with a key and a self-signed certificate for 127.0.0.1."""
    path = tmp_path / "tls" / "both.pem"
    path.parent.mkdir()
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    words += f" -subj /CN=depot -addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    subprocess.run(words.split(), check=True, capture_output=True, timeout=30)
    path.write_text(path.read_text() + path.with_name("both.pem.crt").read_text())
    return path


def test_https_needs_a_certificate_that_the_machine_trusts_and_does_not_lead_to_http(
    depot: Depot, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running_depot(context) as safe:
        safe.add("file.tgz", CONTENT)
        with pytest.raises(SourceUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(item(safe.url), tmp_path / "f", nothing)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        fetch(item(safe.url), tmp_path / "f", nothing)
        assert (tmp_path / "f").read_bytes() == CONTENT
        safe.moved["/file.tgz"] = f"{depot.url}/file.tgz"
        with pytest.raises(SourceUnreachable, match="leads from https to http"):
            fetch(item(safe.url), tmp_path / "g", nothing)
    assert depot.asked == []
