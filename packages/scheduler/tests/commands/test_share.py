"""`lingua serve --share`: TLS and tokens by themselves, and a code to open the page with."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lingua_cli.qr_code import half_blocks, qr_code
from lingua_process import run, running
from lingua_scheduler.auth.tokens import unverified_claims
from lingua_scheduler.commands.share import fingerprint, network_address
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.store

SHARE = ["serve", "--share", "127.0.0.1", "--port", "0"]


def shown_page(lines: list[str]) -> str:
    """The address with its token, among the printed lines."""
    return next(line.strip() for line in lines if "/#token=" in line)


def test_it_serves_with_tls_and_tokens_and_prints_a_code(tmp_path: Path) -> None:
    with running(SHARE, tmp_path) as shared:
        url = shared.url()
        assert url.startswith("https://127.0.0.1:")
        shared.until(r"--url wss://\S+/ws/node")
        text = shared.printed
        page = shown_page(text.splitlines())
        assert page.startswith(f"{url}/#token=")
        assert half_blocks(qr_code(page)) in text
        token = page.partition("#token=")[2]
        claims = unverified_claims(token)
        assert (claims["scopes"], claims["rooms"]) == (["listen", "speak"], True)
        certificate = tmp_path / "data" / "share" / "certificate.pem"
        assert fingerprint(certificate) in text
        trusting = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"{url}/livez", context=trusting) as answer:
            assert json.load(answer)["alive"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/api/v1/nodes", context=trusting)
        refused.value.close()
        assert refused.value.code == 401
    # The same certificate and keys the next time: the warning was accepted once.
    before, tokens = certificate.read_text(), certificate.parent / "node.token"
    tokens.write_text("one that has expired")
    with running(SHARE, tmp_path) as again:
        again.url()
        assert certificate.read_text() == before
        assert unverified_claims(tokens.read_text().strip())["sub"] == "node-1"


def test_settings_with_keys_are_not_shared_in_another_way(tmp_path: Path) -> None:
    keys = {"LINGUA_AUTH__CLIENT_KEYS": json.dumps(["k" * 40])}
    done = run(SHARE, tmp_path, **keys)
    assert done.returncode != 0
    assert "`lingua serve` without --share" in done.stderr


def test_without_a_network_it_asks_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    # A port that no socket can be connected to.
    monkeypatch.setattr("lingua_scheduler.commands.share.ANYWHERE", ("255.255.255.255", 9))
    with pytest.raises(ConfigError, match="--share ADDRESS"):
        network_address()
