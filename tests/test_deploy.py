"""The files of deploy/: as far as they can be held against the code without Docker or systemd.

`read_block_yaml` reads the part of YAML that compose.yaml uses: there is no YAML library among our
dependencies, and none is worth having for one file.
"""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lingua_cli.main import build_parser, main
from lingua_node import Node
from lingua_node.node import LAST_ACKS_S
from lingua_scheduler.config import Settings, check_settings, load_settings
from lingua_scheduler.state.acl import acl_rules
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from servers import start_server
from workspace import ROOT

pytestmark = pytest.mark.store

DEPLOY = ROOT / "deploy"
GIVEN = {
    "LINGUA_STORE_PASSWORD": "a-password-for-tests",
    "LINGUA_CLIENT_KEY": "c" * 32,
    "LINGUA_NODE_KEY": "n" * 32,
}
DRAIN_S = Settings().server.drain_ms / 1000


# The compose file.


@pytest.fixture(name="compose", scope="module")
def compose_file() -> dict[str, Any]:
    return read_block_yaml((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_services_are_a_store_three_schedulers_and_nodes(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"store", "scheduler", "node"}
    assert services["scheduler"]["deploy"]["replicas"] == 3
    assert services["scheduler"]["depends_on"]["store"]["condition"] == "service_healthy"
    assert services["node"]["depends_on"]["scheduler"]["condition"] == "service_healthy"
    for service in services.values():
        assert service["restart"] == "unless-stopped"
        for use in service.get("configs", []):
            assert use["source"] in compose["configs"]


def test_a_container_lives_by_livez_so_that_an_outage_of_the_store_restarts_nothing(
    compose: dict[str, Any],
) -> None:
    asked = " ".join(compose["services"]["scheduler"]["healthcheck"]["test"])
    assert "http://127.0.0.1:5010/livez" in asked
    assert "readyz" not in asked


def test_a_stopped_container_has_time_to_drain(compose: dict[str, Any]) -> None:
    assert int(compose["services"]["scheduler"]["stop_grace_period"].rstrip("s")) > DRAIN_S


def test_nothing_is_published_beyond_this_machine(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_environment_of_a_scheduler_makes_settings_that_can_be_used(
    compose: dict[str, Any],
) -> None:
    environ = {
        name: interpolated(value)
        for name, value in compose["services"]["scheduler"]["environment"].items()
    }
    settings = load_settings(None, environ)
    check_settings(settings)
    assert settings.deployment_mode == "cross_instance"
    assert settings.redis.url.reveal() == "redis://lingua:a-password-for-tests@store:6379/0"
    assert settings.server.port == 5010
    assert [key.reveal() for key in settings.auth.node_keys] == [GIVEN["LINGUA_NODE_KEY"]]


def test_the_command_lines_are_ones_that_lingua_takes(
    compose: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = compose["services"]["node"]["command"][0].replace("$$", "$")
    token = re.search(r'--token "\$\(lingua (.+)\)"', shell)
    assert token is not None
    monkeypatch.setenv("LINGUA_AUTH__NODE_KEYS", json.dumps([GIVEN["LINGUA_NODE_KEY"]]))
    assert main(shlex.split(token[1].replace("$HOSTNAME", "host-1"))) == 0
    assert capsys.readouterr().out.count(".") == 2, "not a token"
    node = shlex.split(shell.replace(f"$(lingua {token[1]})", "TOKEN"))
    for words in (node[2:], compose["services"]["scheduler"]["command"]):
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        options = {word for word in words if word.startswith("--")}
        assert options <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_the_store_of_the_compose_file_starts_and_lets_the_scheduler_in(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    contents = {name: part["content"] for name, part in compose["configs"].items()}
    (tmp_path / "users.acl").write_text(interpolated(contents["store_acl"]))
    settings = [line.split() for line in contents["store_conf"].splitlines()]
    paths = {"/data": str(tmp_path), "/etc/valkey/users.acl": str(tmp_path / "users.acl")}
    extra = [w for name, *rest in settings if name != "bind" for w in (f"--{name}", *rest)]
    password = GIVEN["LINGUA_STORE_PASSWORD"]

    async def scenario(address: Any) -> None:
        options = LinkOptions(username="lingua", password=password)
        connection = await SingleConnection.open(address, options)
        assert await connection.command(0, "HSET", "lingua:v1:{c0}:due", "f", "v") == 1
        await connection.close()
        probe = await SingleConnection.open(address, LinkOptions(username="health", password="x"))
        assert await probe.command(0, "PING") == b"PONG"
        await probe.close()

    # `ask` of the fixture, which waits until the server answers, is the health check's user.
    with start_server(tmp_path, extra=[paths.get(w, w) for w in extra], user="health") as server:
        asyncio.run(scenario(server.address))


def test_the_store_of_the_compose_file_has_the_user_of_the_code(compose: dict[str, Any]) -> None:
    _, _, user = compose["configs"]["store_acl"]["content"].splitlines()
    reset, on, *rest = acl_rules("lingua")
    words = ("user lingua", reset, on, ">${LINGUA_STORE_PASSWORD:?}", *rest)
    assert user == " ".join(words), f"deploy/compose.yaml must have:\n{' '.join(words)}"


def test_the_image_is_built_from_what_is_there() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    assert copies
    assert all((ROOT / name).exists() for names in copies for name in names)
    assert [line for line in lines if line.startswith("USER ")] == ["USER lingua"]
    assert json.loads(lines[-2].removeprefix("ENTRYPOINT ")) == ["lingua"]


def interpolated(text: str) -> str:
    """Put in what the caller's environment gives, as Compose does."""
    return re.sub(r"\$\{([A-Z_]+):\?\}", lambda found: GIVEN[found[1]], text)


# The systemd unit.


@pytest.fixture(name="unit")
def systemd_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes="#")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "lingua.service").read_text(encoding="utf-8"))
    return unit


def test_the_unit_drains_on_stop_and_restarts_on_failure(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert service["KillMode"] == "mixed", "a private store must outlive the drain"
    assert int(service["TimeoutStopSec"]) > DRAIN_S
    assert service["Restart"] == "on-failure"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["LimitNOFILE"]) > 2 * Settings().server.connections_max


def test_the_unit_gives_up_on_settings_that_cannot_be_used(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    _, *words = shlex.split(unit["Service"]["ExecStart"])
    file = tmp_path / "lingua.toml"
    file.write_text("cells = 0")
    words[words.index("--config") + 1] = str(file)
    assert str(main(words)) == unit["Service"]["RestartPreventExitStatus"]


def test_the_unit_of_a_speech_node_lets_its_workers_live_until_it_is_drained() -> None:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes="#")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "lingua-node.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    assert (service["KillMode"], service["OOMPolicy"]) == ("mixed", "continue")
    assert float(service["TimeoutStopSec"]) > Node().drain_s + LAST_ACKS_S
    _, *words = shlex.split(service["ExecStart"].replace("$SPEECH_NODE_OPTIONS", ""))
    parsed = build_parser(("node",)).parse_args(words)
    assert (parsed.engines, parsed.install) == (["default"], True)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "lingua.service").read_text(encoding="utf-8")
    lingua = shutil.which("lingua", path=str(Path(sys.executable).parent))
    assert lingua is not None
    file = tmp_path / "lingua.service"
    file.write_text(text.replace("/opt/lingua/bin/lingua", lingua))
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # the other tests of the unit need no systemd
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Reading YAML.


def read_block_yaml(text: str) -> dict[str, Any]:
    """Read nested maps, lists, JSON-like lists, quoted and plain scalars, and `|` texts."""
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    value, rest = read_node(lines, 0)
    assert not rest, f"cannot read: {rest[0]}"
    assert isinstance(value, dict)
    return value


def read_node(lines: list[str], depth: int) -> tuple[Any, list[str]]:
    """Read the block that begins at this depth; return it and the lines after it."""
    if lines[0].lstrip().startswith("- "):
        return read_list(lines, depth)
    found: dict[str, Any] = {}
    while lines and indent(lines[0]) == depth:
        name, _, value = lines[0].strip().partition(":")
        assert name not in found, f"twice: {name}"
        lines = lines[1:]
        if value.strip() == "|":
            count = next((n for n, line in enumerate(lines) if indent(line) <= depth), len(lines))
            found[name] = "".join(f"{line.strip()}\n" for line in lines[:count])
            lines = lines[count:]
        elif value.strip():
            found[name] = scalar(value.strip())
        else:
            found[name], lines = read_node(lines, indent(lines[0]))
    return found, lines


def read_list(lines: list[str], depth: int) -> tuple[list[Any], list[str]]:
    found: list[Any] = []
    while lines and indent(lines[0]) == depth and lines[0].lstrip().startswith("- "):
        item = lines[0].lstrip()[2:]
        if re.match(r"[a-z_]+: ", item):
            # A map whose first line is behind the dash.
            value, lines = read_node([" " * (depth + 2) + item, *lines[1:]], depth + 2)
            found.append(value)
        else:
            found.append(scalar(item))
            lines = lines[1:]
    return found, lines


def scalar(text: str) -> Any:
    """Read a value on one line; JSON is YAML, single quotes are not JSON."""
    if text[0] in '["{' or text.isdigit() or text in {"true", "false"}:
        return json.loads(text)
    return text[1:-1] if text[0] == "'" else text


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())
