"""The certificates that a command trusts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_cli.certificates import tls_of
from lingua_scheduler.commands.init_files import InitOptions, make_files
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINGUA_CA", raising=False)


def test_without_a_certificate_the_system_decides() -> None:
    assert tls_of(None) is None


def test_an_unusable_certificate_is_reported_before_anything_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^--ca: cannot use .*nothing.pem: No such file"):
        tls_of(tmp_path / "nothing.pem")
    (tmp_path / "text.pem").write_text("no certificate")
    monkeypatch.setenv("LINGUA_CA", str(tmp_path / "text.pem"))
    with pytest.raises(ConfigError, match=r"^LINGUA_CA: cannot use .*text.pem: "):
        tls_of(None)


def test_a_named_certificate_is_trusted_in_addition_to_those_of_the_system(tmp_path: Path) -> None:
    names = ("service.example",)
    wish = InitOptions(folder=tmp_path, names=names, listen="127.0.0.1", port=5010, node_id="n1")
    make_files(wish, force=False)
    context = tls_of(tmp_path / "certificate.pem")
    assert context is not None
    assert context.check_hostname
    trusted = [dict(part[0] for part in cert["subject"]) for cert in context.get_ca_certs()]
    assert {"commonName": "service.example"} in trusted
