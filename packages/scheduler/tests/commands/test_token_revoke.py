"""`lingua token revoke | restore | revoked` against a real store."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from lingua_cli.main import main
from servers import Server, free_port, start_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.store


@pytest.fixture
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    server: Server
    with start_server(tmp_path, port=free_port()) as server:
        monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
        monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://{server.tcp_address}/0")
        yield


def run(*words: str) -> int:
    return main(["token", *words])


@pytest.mark.usefixtures("_store")
def test_what_is_revoked_is_listed_until_it_is_restored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("revoked") == 0
    assert capsys.readouterr().out == "nothing is revoked\n"
    assert run("revoke", "--id", "abc", "--until", "2h") == 0
    assert capsys.readouterr().out.startswith("the token abc is refused until 2")
    assert run("revoke", "--subject", "ann", "--tenant", "acme") == 0
    assert capsys.readouterr().out.startswith("every token of ann of acme is refused until 2")
    assert run("revoked", "--json") == 0
    by_id, by_subject = json.loads(capsys.readouterr().out)
    assert (by_id["kind"], by_id["name"], by_id["tenant"]) == ("id", "abc", "")
    assert 7000 < by_id["until_ms"] / 1000 - time.time() <= 7200
    assert (by_subject["name"], by_subject["tenant"]) == ("ann", "acme")
    assert 29 < (by_subject["until_ms"] / 1000 - time.time()) / 86400 < 31
    assert run("revoked") == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["what", "name", "tenant"], ["id", "abc", "any"], ["subject", "ann", "acme"],
    ]  # fmt: skip
    assert run("restore", "--subject", "ann") == 1
    assert run("restore", "--subject", "ann", "--tenant", "acme") == 0
    assert run("restore", "--id", "abc") == 0
    capsys.readouterr()
    assert run("revoked", "--json") == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.usefixtures("_store")
@pytest.mark.parametrize(
    "words",
    [
        "--id a --until 2020-01-01T00:00Z",
        "--id a --until 400d",
        "--id a --tenant a|b",
        "--subject " + "x" * 129,
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("revoke", *words.split()) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("words", ["", "--id a --subject b", "--id a --until soon"])
def test_wrong_usage_is_exit_code_2(words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        run("revoke", *words.split())
    assert caught.value.code == 2
