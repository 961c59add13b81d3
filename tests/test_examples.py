"""Every example of README.md and docs/ as it stands, run against the default engines.

One service for all of them, started as a newcomer starts it (`lingua up`). The pages say port 5010;
here it is a free one, and that is the only word that is changed. Examples that serve are shown to
do the work: the other nodes are drained while they are tried.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from lingua_process import environment, running
from lingua_scheduler.edge.openai.audio import at_realtime_rate
from lingua_speech.models import default_store
from lingua_wire.recording import Recording, read, write_wav
from workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.speech

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
UP = r"lingua is up: open (http://127\.0\.0\.1:\d+)"
SPOKEN = "sense_and_sensibility_01_austen_64kb-0880"  # "he was not an ill disposed young man"
LIMIT_S = 120
# What each example of a program must print, beside ending well.
PRINTS = {
    "README.md 1": r"delivered_ms=\d+(.|\n)*^0 .*\bjoven\b",
    "client-sdk.md 1": r"^0 es .*\bjoven\b(.|\n)*^0 fr .*\bjeune\b",
    "client-sdk.md 2": r"^$",
    "client-sdk.md 3": r"^$",
    "engines.md 1": r"^$",
    "node-sdk.md 2": r"^$",
    "node-sdk.md 3": r"^$",
    "node-sdk.md 4": r"^$",
    "openai.md 1": r"young man(.|\n)*-\d+\.\d .*\bjoven\b(.|\n)*^transcript\.text\.done$",
    "openai.md 2": r"session\.output_transcript\.delta .*\bjoven\b(.|\n)*^session\.closed",
    "translate.md 1": r"young man.* .*\bjoven\b.* \d+\.\d+$",
}
# Examples that serve until they are ended: the node they are, and what a client then hears.
SERVES = {
    "README.md 2": ("gpu-1", r"^0 \d+\.\d s de voz$"),
    "node-sdk.md 1": ("gpu-1", r"^0 hola$"),
    "node-sdk.md 5": ("n1", r"^0 .*\bjoven\b"),
}
# Commands of README.md that are over at once; the others run until they are ended, or for long.
QUICK = {
    "translate",
    "languages",
    "nodes",
    "explain",
    "cluster",
    "doctor",
    "dlq",
    "init",
    "token",
    "config",
}


class Example(NamedTuple):
    """A block of a page."""

    page: str
    number: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.page} {self.number}"


def examples(kind: str) -> list[Example]:
    """Return every block of a kind."""
    found = []
    for page in PAGES:
        blocks = [b for b in BLOCK.finditer(page.read_text("utf-8")) if b["kind"] == kind]
        found += [Example(page.name, at, block["text"]) for at, block in enumerate(blocks, 1)]
    return found


PYTHON = examples("python")


class Service:
    """A scheduler with the default node, and a folder with the files that examples name."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.port = url.rpartition(":")[2]

    def here(self, text: str) -> str:
        """Return an example with this scheduler's port."""
        return re.sub(r"127\.0\.0\.1:501[01]\b", f"127.0.0.1:{self.port}", text)

    def environ(self) -> dict[str, str]:
        more = {"LINGUA_SERVER__PORT": self.port, "OPENAI_LOG": "", "NO_COLOR": "1"}
        return environment(self.folder, **more)

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder."""
        return subprocess.run(
            words, cwd=self.folder, env=self.environ(), capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def start(self, text: str) -> subprocess.Popen[bytes]:
        """Start an example that serves."""
        words = [sys.executable, "-c", self.here(text)]
        return subprocess.Popen(words, cwd=self.folder, env=self.environ())

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.loads(answer.read())

    def nodes(self) -> dict[str, str]:
        return {node["id"]: node["status"] for node in self.ask("/api/v1/nodes")["nodes"]}

    @contextmanager
    def without_others_than(self, node: str) -> Iterator[None]:
        """Give work to one node only."""
        others = [name for name, status in self.nodes().items() if status != "offline"]
        others.remove(node)
        for name in others:
            self.ask(f"/api/v1/nodes/{name}/drain", {"draining": True})
        try:
            yield
        finally:
            for name in others:
                self.ask(f"/api/v1/nodes/{name}/drain", {"draining": False})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    store = default_store()
    store.install("bench")
    folder = tmp_path_factory.mktemp("examples")
    write_materials(folder, read(store.path("recordings-librivox-en") / "wav" / f"{SPOKEN}.wav"))
    # A node of an example says how busy its machine is, which other tests may keep busy.
    more = {"LINGUA_NODES__RESOURCE_PERCENT_MAX": "100", "LINGUA_MODELS": str(store.root)}
    with running(["up", "--port", "0"], folder, **more) as command:
        yield Service(folder, command.until(UP, LIMIT_S)[1])


def write_materials(folder: Path, speech: Recording) -> None:
    """Write the files that examples name, all of them one sentence."""
    pcm = speech.pcm + bytes(speech.sample_rate)
    for name in ("speech.wav", "talk.wav"):
        write_wav(folder / name, pcm, speech.sample_rate)
    (folder / "speech.pcm").write_bytes(pcm)
    (folder / "speech24k.raw").write_bytes(at_realtime_rate(pcm, speech.sample_rate))


def test_every_program_of_the_pages_is_known_here() -> None:
    names = {example.name for example in PYTHON}
    assert names == PRINTS.keys() | SERVES.keys(), "say what a new example prints"


@pytest.mark.parametrize("name", PRINTS)
def test_a_program_runs_and_prints_what_it_should(name: str, service: Service) -> None:
    [example] = [example for example in PYTHON if example.name == name]
    # The official client calls a call of its own deprecated; that is not for us to change.
    quiet = ["-W", "ignore:deprecated:DeprecationWarning"]
    done = service.run([sys.executable, *quiet, "-c", service.here(example.text)])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    assert re.search(PRINTS[name], done.stdout, re.MULTILINE | re.IGNORECASE), done.stdout


@pytest.mark.parametrize("name", SERVES)
def test_a_node_does_the_work(name: str, service: Service) -> None:
    node, heard = SERVES[name]
    [example] = [example for example in PYTHON if example.name == name]
    [client] = [example for example in PYTHON if example.name == "README.md 1"]
    process = service.start(example.text)
    try:
        deadline = time.monotonic() + LIMIT_S
        while service.nodes().get(node) != "ready":
            assert process.poll() is None, "it ended"
            assert time.monotonic() < deadline, "it is not ready"
            time.sleep(0.1)
        with service.without_others_than(node):
            done = service.run([sys.executable, "-c", service.here(client.text)])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert re.search(heard, done.stdout, re.MULTILINE | re.IGNORECASE), done.stdout
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(LIMIT_S)
    # `run` takes the signal and ends in order; a bare loop is ended by it.
    assert code == (0 if "node.run()" in example.text else -signal.SIGTERM)


def lines_of(example: Example) -> list[str]:
    """Return the commands of a block, those over several lines as one."""
    whole = example.text.replace("\\\n", " ")
    return [line.removeprefix("$ ").strip() for line in whole.splitlines() if line.strip()]


def test_requests_with_curl_are_answered(service: Service) -> None:
    [example] = examples("sh")
    for line in lines_of(example):
        words = shlex.split(service.here(line), comments=True)
        assert words.pop(0) == "curl"
        status, text = post_form(words, service.folder)
        assert status == 200, text
        assert re.search(r"young man|\bjoven\b", text), text


def post_form(words: list[str], folder: Path) -> tuple[int, str]:
    """Do what curl does with `URL -F name=value ...`; not every machine has it."""
    [url] = [word for word in words if word.startswith("http")]
    fields = [words[at + 1] for at, word in enumerate(words) if word == "-F"]
    assert len(words) == 1 + 2 * len(fields), "an option that curl knows and this does not"
    form = aiohttp.FormData()
    for name, _, value in (field.partition("=") for field in fields):
        if value.startswith("@"):
            form.add_field(name, (folder / value[1:]).read_bytes(), filename=value[1:])
        else:
            form.add_field(name, value)

    async def send() -> tuple[int, str]:
        async with aiohttp.ClientSession() as http, http.post(url, data=form) as answer:
            return answer.status, await answer.text()

    return asyncio.run(send())


def test_commands_of_the_pages_do_what_they_say(service: Service) -> None:
    [readme] = [e for e in examples("") if e.page == "README.md" and "lingua serve" in e.text]
    [console] = examples("console")
    lines = [line for line in lines_of(readme) if "bin/lingua" in line] + [
        line for line in lines_of(console) if line.startswith("lingua translate talk.wav")
    ]
    ran = set()
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        if words[0] in QUICK:
            ran.add(words[0])
            done = service.run([sys.executable, "-m", "lingua_cli", *words])
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            if words[0] == "translate":
                assert "joven" in done.stdout.lower()
                assert f"using the scheduler at {service.url}" in done.stdout
    assert ran == QUICK
    assert json.loads((service.folder / "talk.json").read_text("utf-8"))["utterances"]
    assert (service.folder / "lingua" / "lingua.toml").is_file()
