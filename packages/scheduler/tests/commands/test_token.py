import base64
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lingua_cli.main import _run, build_parser
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.secret import Secret

pytestmark = pytest.mark.unit

CLIENT_KEY = "client-key-" + "c" * 32
NODE_KEY = "node-key-" + "n" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)])


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run where neither a lingua.toml nor a variable of ours changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINGUA_AUTH__CLIENT_KEYS", json.dumps([CLIENT_KEY]))
    monkeypatch.setenv("LINGUA_AUTH__NODE_KEYS", json.dumps([NODE_KEY]))


def lingua_token(*words: str) -> int:
    return _run(build_parser(("token",)).parse_args(["token", *words]))


def made(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert lingua_token("create", *words) == 0
    (token,) = capsys.readouterr().out.splitlines()
    return token


def inspected(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code = lingua_token("inspect")
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("_keys")
def test_a_client_token_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert lingua_token("create", "--client") == 0
    output = capsys.readouterr()
    grant = KEYS.read_client(output.out.removesuffix("\n"))
    assert grant.scopes == {"speak", "listen"}
    assert (grant.tenant, grant.languages, grant.rooms) == ("", None, True)
    assert 3590 < grant.expires_at - time.time() <= 3600
    until, how_to_revoke = output.err.splitlines()
    assert until.startswith("client token, valid until 2")
    assert until.endswith("Z")
    assert how_to_revoke == f"to revoke it: lingua token revoke --id {grant.id}"


@pytest.mark.usefixtures("_keys")
def test_a_client_token_has_what_the_options_say(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--client --tenant acme --languages en,pt-BR --scopes listen,admin --no-rooms --ttl 2d"
    grant = KEYS.read_client(made(capsys, *words.split(), "--subject", "ann"))
    assert grant.subject == "ann"
    assert (grant.tenant, grant.languages, grant.rooms) == ("acme", ("en", "pt-br"), False)
    assert grant.scopes == {"listen", "admin"}
    assert 86400 < grant.expires_at - time.time() <= 2 * 86400


@pytest.mark.usefixtures("_keys")
def test_a_node_token_has_what_the_options_say(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--node", "node-1", "--tenant", "acme", "--max-jobs", "2", "--ttl", "90s")
    grant = KEYS.read_node(made(capsys, *words, "--label", "gpu", "--label", "eu"), "node-1")
    assert (grant.labels, grant.subject) == (("eu", "gpu"), "node-1")
    assert (grant.tenant, grant.max_jobs) == ("acme", 2)
    assert 80 < grant.expires_at - time.time() <= 90
    grant = KEYS.read_node(made(capsys, "--node", "node-1"), "node-1")
    assert (grant.tenant, grant.max_jobs, grant.labels) == ("", None, None)
    assert 86390 < grant.expires_at - time.time() <= 86400


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "one of the arguments --client --node is required"),
        ("--client --node n", "not allowed with"),
        ("--client --max-jobs 1", "--max-jobs is for nodes"),
        ("--node n --languages en", "--languages is for clients"),
        ("--node n --scopes speak", "--scopes is for clients"),
        ("--node n --no-rooms", "--no-rooms is for clients"),
        ("--node n --subject ann", "--subject is for clients"),
        ("--client --label eu", "--label is for nodes"),
        ("--client --ttl 1", "not a time"),
        ("--client --ttl -1h", "expected one argument"),
        ("--client --ttl 1w", "not a time"),
        ("--client --languages english!", "not a language code"),
        ("--client --scopes root", "not a scope: 'root'"),
        ("--node n --max-jobs many", "invalid int"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        lingua_token("create", *words.split())
    output = capsys.readouterr()
    assert (caught.value.code, output.out) == (2, "")
    assert problem in output.err


@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--client --ttl 0s", "must live from 1 s"),
        ("--client --ttl 31d", "must live from 1 s"),
        ("--client --tenant a/b", "tenant must be"),
        ("--node a/b", "node id must be"),
        ("--node n --max-jobs 0", "max_jobs must be"),
    ],
)
def test_an_impossible_grant_is_one_line_and_exit_code_1(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lingua_token("create", *words.split()) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert problem in output.err


@pytest.mark.parametrize(
    ("words", "setting"),
    [(("--client",), "client_keys"), (("--node", "n"), "node_keys")],
)
def test_without_a_key_the_error_says_how_to_make_one(
    words: tuple[str, ...], setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lingua_token("create", *words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"auth.{setting}" in output.err
    assert "`lingua token key`" in output.err
    assert f"LINGUA_AUTH__{setting.upper()}=" in output.err


def test_a_key_goes_from_the_command_into_the_settings_and_signs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lingua_token("key") == 0
    output = capsys.readouterr()
    (key,) = output.out.splitlines()
    assert key not in output.err
    monkeypatch.setenv("LINGUA_AUTH__CLIENT_KEYS", output.err.split("'")[1].replace("KEY", key))
    assert TokenKeys([Secret(key)], ()).read_client(made(capsys, "--client"))


@pytest.mark.usefixtures("_keys")
def test_inspect_shows_the_claims_and_that_a_token_is_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = made(capsys, "--client", "--tenant", "acme")
    code, shown = inspected(f"  {token}\n", monkeypatch, capsys)
    assert (code, shown["valid"]) == (0, True)
    assert shown["claims"]["tenant"] == "acme"
    assert shown["claims"]["exp"].endswith("Z")
    token = made(capsys, "--node", "node-1")
    code, shown = inspected(token, monkeypatch, capsys)
    assert (code, shown["valid"], shown["claims"]["sub"]) == (0, True, "node-1")


@pytest.mark.usefixtures("_keys")
def test_inspect_says_why_a_token_is_not_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = TokenKeys([Secret(CLIENT_KEY)], (), clock=lambda: 1000.0)
    token = long_ago.issue_client(ttl_s=60).reveal()
    code, shown = inspected(token, monkeypatch, capsys)
    assert (code, shown["valid"], shown["reason"]) == (1, False, "expired")
    assert shown["claims"]["exp"] == "1970-01-01T00:17:40Z"
    foreign = TokenKeys([Secret("x" * 32)], ()).issue_client().reveal()
    assert inspected(foreign, monkeypatch, capsys)[1]["reason"] == "unknown_key"
    header, _, signature = token.split(".")
    far = base64.urlsafe_b64encode(b'{"exp": 1e18}').decode().rstrip("=")
    code, shown = inspected(f"{header}.{far}.{signature}", monkeypatch, capsys)
    assert (code, shown["reason"]) == (1, "bad_signature")
    assert shown["claims"]["exp"] == "never"


@pytest.mark.parametrize("text", ["", "hello", "a.b.c", "x" * 100_000])
def test_inspect_refuses_what_is_no_token(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert lingua_token("inspect") == 1
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "lingua: token refused: malformed\n")
