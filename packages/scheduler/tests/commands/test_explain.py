"""`lingua explain` against real stores: the private one of a scheduler, and a shared one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_cli.main import main
from lingua_scheduler.config import Settings
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.opening import open_connection
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import NodeAbout, NodeBeat
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from servers import Server, free_port, start_server

pytestmark = pytest.mark.store

BOUND_S = 60
SERVICES = {"asr": (), "nmt": (), "tts": ()}
EN_ES = ["--from", "en", "--to", "es"]
FLEET = {
    "madrid": Declared(SERVICES, pairs=(("en", "es"),)),
    "polyglot": Declared(SERVICES, asr_languages=("en", "de"), nmt_targets=("es", "fr")),
    "tokyo": Declared(SERVICES, pairs=(("ja", "en"),)),
    "mute": Declared({"asr": (), "nmt": ()}, pairs=(("en", "es"),)),
    "acme": Declared(SERVICES, pairs=(("en", "es"),), private_to="acme"),
}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run where neither a lingua.toml nor a variable of ours changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path


async def register(connection: Connection, cells: Cells) -> None:
    """Register the fleet: each node is ready in its cell and busy with one job."""
    store = Store(connection, FleetPolicy())
    about = NodeAbout(instance="test", max=4, silence_ms=60_000)
    for name, declared in FLEET.items():
        cell, can = cells.of_node(name), capability(declared).packed()
        await store.nodes.register(cell, name, "b1", conn="c", can=can, about=about)
        await store.nodes.beat(cell, name, "b1", NodeBeat(running=1))


async def lingua(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own while this one goes on."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "lingua_cli", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.fixture(name="shared", scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server with the fleet in it: in one cell under `one`, in four under `four`."""
    with start_server(tmp_path_factory.mktemp("explain"), port=free_port()) as server:

        async def fill() -> None:
            connection = await SingleConnection.open(
                server.address, LinkOptions(call_timeout_ms=10_000)
            )
            await register(connection, Cells("one", 1))
            await register(connection, Cells("four", 4))
            await connection.close()

        asyncio.run(fill())
        yield server


@pytest.fixture(name="deployment")
def cross_instance_deployment(shared: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://127.0.0.1:{shared.port}")
    monkeypatch.setenv("LINGUA_REDIS__KEY_PREFIX", "one")


def results(table: str) -> dict[str, str]:
    """Return node -> its row in the table."""
    rows = [line.split(None, 4) for line in table.splitlines()]
    return {row[0]: row[4] for row in rows if len(row) == 5 and row[0] in FLEET}


def test_every_node_has_a_result_and_the_chosen_one_comes_first(
    deployment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *EN_ES]) == 0
    shown = capsys.readouterr().out
    head, verdict = shown.splitlines()[0], shown.splitlines()[2]
    assert head == "en>es with asr, nmt, tts"
    assert verdict == "c0: would go to madrid"
    assert results(shown) == {
        "madrid": "chosen",
        "polyglot": "could take it",
        "tokyo": "lang_pair_unsupported",
        "mute": "model_not_available",
        "acme": "not_in_public_pool",
    }
    assert list(results(shown))[:2] == ["madrid", "polyglot"]
    assert shown.splitlines()[4].split()[2:4] == ["1", "4"], "one of four slots is taken"


@pytest.mark.parametrize(
    ("more", "chosen"),
    [
        (["--prefer", "polyglot"], "polyglot"),
        (["--prefer", "tokyo"], "madrid"),
        (["--tenant", "acme", "--prefer", "acme"], "acme"),
        (["--services", "asr,nmt", "--prefer", "mute"], "mute"),
        (["--from", "auto"], "madrid"),
        (["--from", "de", "--to", "fr"], "polyglot"),
    ],
    ids=" ".join,
)
def test_what_is_asked_decides_who_is_chosen(
    more: list[str], chosen: str, deployment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *EN_ES, *more]) == 0
    shown = capsys.readouterr().out
    assert [name for name, result in results(shown).items() if result == "chosen"] == [chosen]


def test_a_pair_that_nobody_serves_is_explained_too(
    deployment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--from", "ko", "--to", "sw"]) == 0
    assert (
        "c0: no node (NO_POOL_FOR_LANG_PAIR, lang_pair_unsupported);"
        " removed: 5 lang_pair_unsupported\n"
    ) in capsys.readouterr().out


def test_a_preferred_node_that_does_not_exist_is_named(
    deployment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *EN_ES, "--prefer", "atlantis"]) == 0
    assert "the preferred node atlantis is unknown\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["labels", "pools"])
def test_a_tenant_is_bound_to_its_labels(
    name: str, deployment: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_TENANTS", f'[{{"id": "pinned", "{name}": ["eu", "another"]}}]')
    assert main(["explain", *EN_ES, "--tenant", "pinned"]) == 0
    shown = capsys.readouterr().out
    head = "en>es with asr, nmt, tts for pinned, only on nodes with another, eu\n"
    assert shown.startswith(head)
    assert results(shown)["madrid"] == "not_in_pinned_pool: lacks another, eu"


def test_several_cells_each_have_their_verdict(
    deployment: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_REDIS__KEY_PREFIX", "four")
    monkeypatch.setenv("LINGUA_CELLS", "4")
    assert main(["explain", *EN_ES]) == 0
    shown = capsys.readouterr().out
    homes = {Cells("four", 4).of_node(name).name for name in FLEET}
    for cell in ("c0", "c1", "c2", "c3"):
        assert (f"\n{cell}: " in shown) is (cell in homes)
    assert ("no nodes in " in shown) is (len(homes) < 4)
    assert set(results(shown)) == set(FLEET)


def test_json_says_the_same_to_programs(
    deployment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *EN_ES, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["demand"] == "en>es|asr,nmt,tts||es|||"
    [cell] = found["cells"]
    assert cell["verdict"] == {"node": "madrid", "code": "", "label": ""}
    nodes = {node.pop("node"): node for node in cell["nodes"]}
    pool = nodes["madrid"].pop("pool")
    assert len(pool) == 12
    assert nodes["madrid"] == {
        "taken": 1, "slots": 4, "removed_by": "", "chosen": True, "labels": [], "lacks": [],
    }  # fmt: skip
    assert nodes["acme"]["removed_by"] == "not_in_public_pool"
    assert set(nodes) == set(FLEET)


@pytest.mark.parametrize("depth", [0, 4], ids=["short path", "path too long for a socket"])
def test_in_local_mode_the_private_server_of_a_running_scheduler_is_asked(
    depth: int, tmp_path: Path
) -> None:
    data_dir = tmp_path.joinpath(*["a-directory-with-a-long-name"] * depth)

    async def scenario() -> None:
        async with open_connection(Settings(data_dir=data_dir)) as connection:
            await register(connection, Cells("lingua", 1))
            done = await lingua("explain", *EN_ES, LINGUA_DATA_DIR=str(data_dir))
            assert (done.returncode, done.stderr) == (0, "")
            assert "c0: would go to madrid\n" in done.stdout

    asyncio.run(scenario())


def test_in_local_mode_without_a_scheduler_it_says_so_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGUA_DATA_DIR", str(tmp_path / "data"))
    assert main(["explain", *EN_ES]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"lingua: store unix:{tmp_path}/data/store/server.sock unavail")
    assert "no scheduler runs in local mode with this data_dir" in output.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "en"],
        ["--from", "e", "--to", "es"],
        ["--from", "en", "--to", "auto"],
        [*EN_ES, "--services", "asr,magic"],
        [*EN_ES, "--services", ""],
    ],
    ids=" ".join,
)
def test_what_cannot_be_asked_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 2
    assert "usage: lingua explain" in capsys.readouterr().err


def test_a_name_that_no_key_may_carry_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *EN_ES, "--prefer", "a b"]) == 1
    assert "lingua: node must be 1 to 128 characters" in capsys.readouterr().err
