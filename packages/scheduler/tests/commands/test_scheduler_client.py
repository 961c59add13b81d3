"""`lingua sessions`, `nodes`, `jobs` and `explain --url` as an operator runs them, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edge.live_server import Stage, play, registration, until
from lingua_cli.main import main
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.commands.scheduler_client import age_text, short
from lingua_scheduler.secret import Secret
from servers import free_port

pytestmark = pytest.mark.store

BOUND_S = 60
KEY = "client-key-" + "c" * 32
KEYS = TokenKeys([Secret(KEY)], [])
Done = subprocess.CompletedProcess[str]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where neither a lingua.toml nor a variable of ours changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)


async def lingua(*words: str, **environ: str) -> Done:
    """Run the command as a process of its own while this one serves."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "lingua_cli", *words],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, **environ},
    )


async def printed(stage: Stage, *words: str) -> str:
    """Return what a command prints when it asks this stage's server, which must go well."""
    done = await lingua(*words, "--url", stage.server.url)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def rows(text: str) -> list[list[str]]:
    """Return the words of each line after the table's head."""
    lines = text.splitlines()
    return [line.split() for line in lines[lines.index("") + 2 :]]


def test_where_nothing_is_yet_the_next_step_is_told() -> None:
    async def scenario(stage: Stage) -> None:
        instance, sockets = stage.server.instance.id, f"ws://127.0.0.1:{stage.server.port}"
        assert await printed(stage, "nodes") == (
            f"no nodes are known to {stage.server.url}\n"
            f"start one: lingua node --simulate --url {sockets}/ws/node\n"
        )
        assert await printed(stage, "sessions") == (
            f"no sessions are open on {instance}\nclients connect to {sockets}/ws/session\n"
        )
        assert (await printed(stage, "jobs")).startswith(f"no jobs are under way on {instance}\n")

    play(scenario)


def test_nodes_are_a_table_for_people() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("madrid", max_jobs=4, max_streams=6, version="7.1", platform="linux")
        await stage.old_node("tokyo")
        await printed(stage, "nodes", "drain", "tokyo")
        text = await printed(stage, "nodes")
        assert text.splitlines()[0] == "2 nodes, 1 ready, 4 of 4 slots free"
        assert text.splitlines()[2].split() == [
            "node", "status", "busy", "hears", "languages", "services", "beat", "runs", "instance",
        ]  # fmt: skip
        madrid, tokyo = rows(text)
        assert madrid[:4] == ["madrid", "ready", "0/4", "0/6"]
        assert " ".join(madrid[4:-4]) == "en, zh to en, es, ja, zh asr nmt tts"
        assert madrid[-3:] == ["linux", "7.1", stage.server.instance.id]
        assert madrid[-4].endswith("s")
        assert tokyo[:4] == ["tokyo", "drained", "0/4", "-"]

    play(scenario)


def test_an_overloaded_node_is_shown_with_the_number_that_made_it_so() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("madrid")
        usage = {"cpu_percent": 97.2, "mem_percent": 40.0, "running_jobs": 0}
        await node.beat(resource_usage=usage)
        async with asyncio.timeout(BOUND_S):
            while "overloaded" not in (text := await printed(stage, "nodes")):
                pass
        assert "overloaded: cpu 97 % > 85 %" in text

    play(scenario, nodes__resource_percent_max=85)


def test_many_languages_are_counted_for_people_and_listed_for_programs() -> None:
    many = [f"e{chr(97 + n)}" for n in range(15)]

    async def scenario(stage: Stage) -> None:
        pairs = [{"src": "en", "tgt": code} for code in many]
        await stage.node("n1", language_capabilities={"supported_language_pairs": pairs})
        assert "en to ea, en to eb, en to ec, en to ed and 11 more" in await printed(stage, "nodes")
        text = await printed(stage, "nodes", "--json")
        [node] = json.loads(text)["nodes"]
        assert node["languages"]["pairs"] == [f"en>{code}" for code in many]
        assert " more" not in text

    play(scenario)


def test_sessions_and_jobs_are_tables_for_people() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client("zh", "en")
        await client.utter(0)
        await until(lambda: stage.leases() == 1, "the job is there")
        text = await printed(stage, "sessions")
        assert text.splitlines()[0] == f"1 session on {stage.server.instance.id}"
        [session] = rows(text)
        assert session[:5] == [client.id[:10], "-", "zh", "to", "en"]
        assert session[6:] == ["1", "0", "1", "0s", "0s", "0s", "-", "here"]

        text = await printed(stage, "jobs")
        assert text.splitlines()[0] == f"1 job under way on {stage.server.instance.id}"
        [job] = rows(text)
        assert job[1:7] == [client.id[:10], "0", "en", "pending", "0", "-"]
        assert all(cell.endswith("s") for cell in job[7:])

    play(scenario)


def test_an_operator_is_shown_what_became_of_an_utterance() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.node("first")
        client = await stage.client("zh", "en", trace_id="trace-1")
        await client.utter(0)
        job = await first.job()
        text = await printed(stage, "jobs", "show", job["job_id"])
        assert "  state    assigned on first\n" in text
        assert "  due      20" in text
        second = await stage.node("second")
        await first.fail(job, "NMT_TIMEOUT", "very private words")
        await second.answer(await second.job(), "very private words")
        await client.result(0)
        for way in (job["job_id"], f"{client.id}:0", "trace-1"):
            text = await printed(stage, "jobs", "show", way)
            head, *lines = text.splitlines()
            assert head == f"{job['job_id']}: utterance 0 of {client.id} into en"
            words = [line.split() for line in lines]
            assert words[0] == ["trace", "trace-1"]
            assert words[1] == ["state", "completed"]
            assert [one[0] for one in words[2:]] == ["came", "try", "try", "ended", "time"]
            assert words[3][4] == "first,"
            assert (words[3][-1], words[4][-1]) == ("NMT_TIMEOUT", "completed")
            assert "private" not in text
        found = json.loads(await printed(stage, "jobs", "show", f"{client.id}:0", "--json"))
        assert [one["id"] for one in found["jobs"]] == [job["job_id"]]

    play(scenario)


def test_of_what_is_not_known_it_says_where_to_look() -> None:
    async def scenario(stage: Stage) -> None:
        done = await lingua("jobs", "show", "s-gone:7", "--url", stage.server.url)
        assert done.returncode == 1
        assert done.stdout.startswith("nothing is known of s-gone:7 on ")
        assert "--url" in done.stdout

    play(scenario)


def test_programs_get_json_with_whole_ids() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        clients = {(await stage.client()).id for _ in range(3)}
        nodes = json.loads(await printed(stage, "nodes", "--json"))
        assert [node["id"] for node in nodes["nodes"]] == ["n1"]
        sessions = json.loads(await printed(stage, "sessions", "--json"))
        assert {session["id"] for session in sessions["sessions"]} == clients
        some = json.loads(await printed(stage, "sessions", "--json", "--limit", "2"))
        assert len(some["sessions"]) == 2
        assert some["next"]
        shown = await printed(stage, "sessions", "--limit", "2")
        assert shown.startswith(f"2 sessions on {stage.server.instance.id} (there are more: ")
        assert json.loads(await printed(stage, "jobs", "--json"))["jobs"] == []

    play(scenario)


def test_an_operator_drains_resumes_and_pairs_a_node() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        client = await stage.client()
        await client.utter(0)
        await node.job()
        assert await printed(stage, "nodes", "drain", "n1") == (
            "n1 drains: no new work, 1 job to finish; "
            "it stays so over restarts until `lingua nodes resume n1`\n"
        )
        # Options may also precede the action.
        done = await lingua("nodes", "--url", stage.server.url, "resume", "n1")
        assert (done.returncode, done.stdout) == (0, "n1 gets work again\n")
        code, sentence = (await printed(stage, "nodes", "pair", "n1")).splitlines()
        assert sentence == f"one session may use n1 with `pairing_code` {code} within 5 minutes"
        paired = await stage.client(pairing_code=code)
        assert stage.server.instance.sessions[paired.id].languages.profile.paired == "n1"
        answer = json.loads(await printed(stage, "nodes", "drain", "n1", "--json"))
        assert answer == {"id": "n1", "draining": True, "leased": 1}

        done = await lingua("nodes", "drain", "n2", "--url", stage.server.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "lingua: the scheduler refused: no such node (NOT_FOUND)\n"

    play(scenario)


def test_an_instance_explains_as_its_store_does() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        await stage.node("n2", **{**registration(asr=("ko",)), "boot_id": "b"})
        words = ["explain", "--from", "zh", "--to", "en", "--prefer", "n1"]
        for more in ([], ["--json"]):
            asked = await printed(stage, *words, *more)
            data_dir = str(stage.server.settings.data_dir)
            read = await lingua(*words, *more, LINGUA_DATA_DIR=data_dir)
            assert "n1" in asked
            assert (read.returncode, read.stdout) == (0, asked)

    play(scenario)


def test_the_address_comes_from_the_settings() -> None:
    async def scenario(stage: Stage) -> None:
        environ = {"LINGUA_SERVER__PORT": str(stage.server.port)}
        # A proxy of the environment is not used.
        environ |= {"http_proxy": f"http://127.0.0.1:{free_port()}"}
        done = await lingua("nodes", **environ)
        assert done.stdout.startswith(f"no nodes are known to {stage.server.url}\n")

    play(scenario)


def test_a_token_is_asked_for_and_used() -> None:
    async def scenario(stage: Stage) -> None:
        url = ["--url", stage.server.url]
        done = await lingua("nodes", *url)
        assert (done.returncode, done.stdout) == (1, "")
        make = "`lingua token create --client --scopes admin`"
        assert done.stderr == (
            f"lingua: the scheduler refused: no token was given; make one with {make} and send it "
            "as `Authorization: Bearer TOKEN` (UNAUTHORIZED); give it with --token or "
            "$LINGUA_TOKEN\n"
        )
        old = TokenKeys([Secret(KEY)], [], lambda: time.time() - 7200).issue_client()
        done = await lingua("nodes", *url, "--token", old.reveal())
        assert done.stderr.startswith(
            f"lingua: the scheduler refused: token refused: expired; make a new one with {make}"
        )
        token = KEYS.issue_client(scopes=("admin",)).reveal()
        assert (await lingua("nodes", *url, "--token", token)).returncode == 0
        assert (await lingua("nodes", *url, LINGUA_TOKEN=token)).returncode == 0
        speaker = KEYS.issue_client().reveal()
        done = await lingua("nodes", *url, "--token", speaker)
        assert f"lacks the scope `admin`; make one with {make} (FORBIDDEN)" in done.stderr
        assert speaker not in done.stderr

    play(scenario, auth__client_keys=json.dumps([KEY]))


@pytest.mark.parametrize(
    "words",
    [["nodes"], ["sessions"], ["jobs"], ["jobs", "show", "x"], ["nodes", "drain", "n1"]],
    ids=" ".join,
)
def test_where_nothing_listens_it_says_how_to_start(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main([*words, "--url", url]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        f"lingua: no scheduler answers at {url} (connection refused): "
        "start one with `lingua serve`\n"
    )


@pytest.mark.parametrize(
    ("status", "headers", "body", "shown"),
    [
        (200, {}, "<html>", "(another program listens there)"),
        (404, {}, "<html>", "not a response of a scheduler (HTTP 404)"),
        (302, {"Location": "http://127.0.0.1:1/"}, "", "not a response of a scheduler (HTTP 302)"),
    ],
    ids=["another page", "no such page", "elsewhere"],
)
def test_another_server_is_not_taken_for_a_scheduler(
    status: int, headers: dict[str, str], body: str, shown: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers, text=body)

    async def scenario() -> None:
        app = web.Application()
        app.router.add_get("/{any:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        done = await lingua("nodes", "--url", f"http://127.0.0.1:{port}")
        await runner.cleanup()
        assert (done.returncode, done.stdout) == (1, "")
        assert shown in done.stderr

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["127.0.0.1:5010", "ftp://127.0.0.1", "file:///etc/passwd", "http:"]
)
def test_an_address_that_is_none_is_wrong_usage(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", "--url", url]) == 2
    assert capsys.readouterr().err.startswith("lingua: --url: must be http://HOST:PORT")


@pytest.mark.parametrize("words", [["nodes", "drain"], ["nodes", "n1"], ["jobs", "--limit", "0"]])
def test_wrong_usage_ends_with_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: lingua" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0s"), (999, "0s"), (3000, "3s"), (119_999, "119s"), (120_000, "2m"),
        (7_199_000, "119m"), (7_200_000, "2h"), (172_800_000, "2d"),
    ],
)  # fmt: skip
def test_ages_are_short(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text


def test_only_long_ids_are_shortened() -> None:
    assert [short(name) for name in ("node-1", "s-0123456789", "s-0123456789abcdef")] == [
        "node-1", "s-0123456789", "s-01234567",
    ]  # fmt: skip


def test_the_help_names_every_act(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nodes", "--help"])
    shown: Any = capsys.readouterr().out
    for act in ("drain", "resume", "pair"):
        assert act in shown
