"""`lingua translate` as it is typed: real processes, a real scheduler, simulated nodes."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import wave
from array import array
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from lingua_cli.main import main
from lingua_translate.commands.translate import session_url
from lingua_wire.errors import ConfigError
from lingua_wire.recording import read, write_wav

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.stress

BOUND_S = 60
RATE = 16_000
LINGUA = [sys.executable, "-m", "lingua_cli"]


def speech(count: int) -> bytes:
    """Return so many loud parts of 800 ms, each followed by 700 ms of silence."""
    voice = array("h", [round(9000 * math.sin(at / 6)) for at in range(RATE * 800 // 1000)])
    return (voice.tobytes() + bytes(2 * RATE * 700 // 1000)) * count


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a scheduler and a node for en to es and fr; give the address of the scheduler."""
    environ = {**os.environ, "LINGUA_DATA_DIR": str(tmp_path_factory.mktemp("data"))}
    serve = subprocess.Popen(
        [*LINGUA, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
    )
    assert serve.stdout is not None
    found = re.search(r"listens on http://([^ ]+)", serve.stdout.readline())
    assert found is not None
    address = f"ws://{found[1]}"
    words = ["--simulate", "--pairs", "en:es,en:fr", "--partials", "2", "--delay-ms", "100"]
    node = subprocess.Popen(
        [*LINGUA, "node", *words, "--url", f"{address}/ws/node"], stdout=subprocess.PIPE, text=True
    )
    assert node.stdout is not None
    while "registered" not in node.stdout.readline():
        assert node.poll() is None
    yield address
    for process in (node, serve):
        process.terminate()
    for process in (node, serve):
        process.wait(BOUND_S)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.wav"
    write_wav(path, speech(2), RATE)
    return path


def translate(*words: object, **options: object) -> subprocess.CompletedProcess[Any]:
    command = [*LINGUA, "translate", *map(str, words)]
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
        **{"text": True, **options},
    )


def test_a_recording_is_shown_line_by_line_and_summed_up(url: str, talk: Path) -> None:
    done = translate(talk, "--from", "en", "--to", "es", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"0:00\.0  simulated speech of \d+ ms: .*", lines[0])
    assert re.fullmatch(r"0:00\.0 es  \[es\] simulated speech of .*", lines[1])
    assert re.fullmatch(
        r"0:00\.0 time  \d\.\d\d s after the voice · asr 33 · mt 33 · tts 33 · scheduler \d+ ms",
        lines[2],
    )
    assert re.fullmatch(r"0:01\.\d  simulated speech of .*", lines[3])
    assert re.match(r"speech: admitted \d+ ms, delivered \d+ ms, silent \d+ ms, failed 0", lines[6])
    assert lines[7].startswith("p50 / p95: end of speech → result ")
    assert len(lines) == 8


@pytest.mark.parametrize(
    ("words", "is_shown"),
    [((), False), (("--partials",), True), (("--partials", "--quiet"), False)],
)
def test_texts_so_far_are_printed_only_if_they_are_wanted(
    url: str, talk: Path, words: tuple[str, ...], *, is_shown: bool
) -> None:
    done = translate(talk, "--from", "en", "--to", "es", "--url", url, *words)
    assert (done.returncode, done.stderr) == (0, "")
    so_far = [line for line in done.stdout.splitlines() if " so far  " in line]
    assert bool(so_far) == is_shown
    # The words of this node may all still change.
    assert all(re.fullmatch(r"0:0\d\.\d so far  \[simulated.*\]", line) for line in so_far)


def test_two_languages_have_two_files_each_and_all_of_them_can_be_read(
    url: str, talk: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = translate(
        talk,
        "--from",
        "en",
        "--to",
        "es",
        "--to",
        "fr",
        "--url",
        url,
        "--fast",
        "--srt",
        out / "talk.srt",
        "--vtt",
        out / "talk.vtt",
        "--json",
        out / "talk.json",
        "--out-audio",
        out / "talk.wav",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == [
        "talk.es.srt",
        "talk.es.vtt",
        "talk.es.wav",
        "talk.fr.srt",
        "talk.fr.vtt",
        "talk.fr.wav",
        "talk.json",
    ]
    srt = (out / "talk.fr.srt").read_text()
    assert srt.startswith("1\n00:00:00,000 --> 00:00:00,")
    assert "[fr] simulated speech" in srt
    assert (out / "talk.es.vtt").read_text().startswith("WEBVTT\n\nNOTE en to es, by lingua")
    whole = json.loads((out / "talk.json").read_text())
    assert whole["targets"] == ["es", "fr"]
    assert [said["index"] for said in whole["utterances"]] == [0, 1]
    assert whole["summary"]["failures"] == 0
    assert "latency_ms" not in whole["utterances"][0]["renditions"]["es"]
    with wave.open(str(out / "talk.es.wav")) as file:
        assert (file.getnchannels(), file.getframerate()) == (1, RATE)
    starts = [said["start_ms"] for said in whole["utterances"]]
    audio = read(out / "talk.es.wav")
    assert audio.duration_ms == pytest.approx(starts[1] + 100, abs=2)


def test_what_a_program_reads_is_alone_on_standard_output(url: str, talk: Path) -> None:
    done = translate(talk, "--from", "en", "--to", "es", "--url", url, "--fast", "--json", "-")
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["utterances"]) == 2
    assert "[es] simulated speech" in done.stderr


@pytest.mark.parametrize("kind", ["raw", "wav"])
def test_standard_input_may_be_raw_or_a_wav_file(url: str, talk: Path, kind: str) -> None:
    data = talk.read_bytes() if kind == "wav" else speech(2)
    done = translate("-", "--from", "en", "--to", "es", "--url", url, input=data, text=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b" es  [es]") == 2


def test_a_program_that_records_is_the_microphone(url: str, tmp_path: Path) -> None:
    (tmp_path / "speech.raw").write_bytes(speech(1))
    program = tmp_path / "arecord"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/speech.raw\n")
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = translate("mic", "--from", "en", "--to", "es", "--url", url, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0:00.0 es  [es] simulated" in done.stdout


def test_translated_speech_is_played_in_order(url: str, talk: Path, tmp_path: Path) -> None:
    program = tmp_path / "aplay"
    program.write_text(f"#!/bin/sh\ncat >> {tmp_path}/played.raw\n")
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ("--from", "en", "--to", "es", "--to", "fr", "--url", url, "--fast", "--play")
    done = translate(talk, *words, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    # One language only, both utterances: a tone of 100 ms each.
    assert (tmp_path / "played.raw").stat().st_size == 2 * 3200


def test_a_language_nobody_serves_is_shown_as_missing_and_fails(url: str, talk: Path) -> None:
    words = ("--from", "en", "--to", "de", "--url", url, "--fast")
    done = translate(talk, *words, env={**os.environ})
    assert done.returncode == 1
    assert re.search(r"0:00\.0 de  \(missing: \w+", done.stdout)
    assert re.search(r"failed [1-9]\d* ms", done.stdout)


class Screen:
    """The command on a terminal of its own."""

    def __init__(self, *words: object) -> None:
        self.written = b""
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.environ.pop("NO_COLOR", None)
            command = [*LINGUA, "translate", *map(str, words)]
            os.execv(command[0], command)
        self._pid = pid

    def read_until(self, *wanted: bytes) -> None:
        """Read until all of these were written."""
        deadline = time.monotonic() + BOUND_S
        while not all(word in self.written for word in wanted):
            assert time.monotonic() < deadline, self.written
            if not self._read():
                raise AssertionError(self.written)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def wait(self) -> int:
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + BOUND_S
        while self._read():
            assert time.monotonic() < deadline, self.written
        _, status = os.waitpid(self._pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)

    def hang_up(self) -> int:
        """Close the terminal; return the exit code."""
        os.close(self._terminal)
        deadline = time.monotonic() + BOUND_S
        while (found := os.waitpid(self._pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return os.waitstatus_to_exitcode(found[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], 1)
        if not ready:
            return True
        try:
            part = os.read(self._terminal, 65_536)
        except OSError:  # The other side is closed.
            return False
        self.written += part
        return bool(part)


def test_on_a_terminal_captions_grow_in_place_and_become_lines(url: str, talk: Path) -> None:
    screen = Screen(talk, "--from", "en", "--to", "es", "--url", url)
    assert screen.wait() == 0
    text = screen.written.decode()
    assert "\r\x1b[K\x1b[2mlistening …" in text
    # Partial texts are grey on a line that is cleared, the finished one is not.
    assert re.search(r"\r\x1b\[K\x1b\[2m[^\n]*simulated[^\n]* …\x1b\[0m\r\x1b\[K", text)
    assert re.search("\x1b\\[1msimulated speech of \\d+ ms: one", text)
    assert "\x1b[32m[es] simulated speech" in text
    assert text.endswith("\r\n")


def test_ctrl_c_ends_the_session_properly_and_what_was_said_is_answered(
    url: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.wav"
    write_wav(path, speech(200), RATE)
    screen = Screen(path, "--from", "en", "--to", "es", "--url", url, "--json", tmp_path / "o.json")
    screen.read_until(b"[es] simulated")
    screen.type(b"\x03")
    assert screen.wait() == 0
    assert b"stopping: waiting for the last outcomes" in screen.written
    found = json.loads((tmp_path / "o.json").read_text())
    assert 1 <= len(found["utterances"]) < 20
    assert all(said["renditions"]["es"]["text"] for said in found["utterances"])
    assert found["summary"]["coverage"]["failed_ms"] == 0


def test_a_second_ctrl_c_quits(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    write_wav(path, speech(200), RATE)
    environ = {**os.environ, "LINGUA_DATA_DIR": str(tmp_path / "data")}
    serve = subprocess.Popen(
        [*LINGUA, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
    )
    try:
        assert serve.stdout is not None
        found = re.search(r"listens on http://([^ ]+)", serve.stdout.readline())
        assert found is not None
        # Without a node there is no outcome for a long time.
        words = ("--from", "en", "--to", "es", "--url", f"ws://{found[1]}", "--json")
        screen = Screen(path, *words, tmp_path / "o.json")
        screen.read_until(b"0:00.0")
        screen.type(b"\x03")
        screen.read_until(b"stopping")
        screen.type(b"\x03")
        assert screen.wait() == 130
        # The results so far are written all the same.
        assert json.loads((tmp_path / "o.json").read_text())["utterances"]
    finally:
        serve.kill()
        serve.wait()
        assert serve.stdout is not None
        serve.stdout.close()


def test_a_running_scheduler_that_serves_the_languages_is_used(url: str, talk: Path) -> None:
    port = url.rpartition(":")[2]
    environ = {**os.environ, "LINGUA_SERVER__PORT": port}
    done = translate(talk, "--from", "en", "--to", "es", "--fast", env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"(using the scheduler at http://127.0.0.1:{port})" in done.stdout


def test_without_models_a_private_service_says_how_to_get_them(
    url: str, talk: Path, tmp_path: Path
) -> None:
    port = url.rpartition(":")[2]
    environ = {**os.environ, "LINGUA_SERVER__PORT": port, "LINGUA_MODELS": str(tmp_path)}
    done = translate(talk, "--from", "en", "--to", "de", env=environ)
    assert done.returncode == 1
    assert "has no node for en to de now" in done.stdout
    assert "models are missing: whisper-base" in done.stderr
    assert "lingua models install default" in done.stderr


def test_a_natural_voice_that_is_not_installed_says_how_to_get_it(
    url: str, talk: Path, tmp_path: Path
) -> None:
    port = url.rpartition(":")[2]
    environ = {**os.environ, "LINGUA_SERVER__PORT": port, "LINGUA_MODELS": str(tmp_path)}
    # The running scheduler has voices of its own: it is not used.
    done = translate(talk, "--from", "en", "--to", "es", "--voice", "natural", env=environ)
    assert done.returncode == 1
    assert "using the scheduler" not in done.stdout
    assert "kokoro" in done.stderr
    assert "lingua models install default natural" in done.stderr


def test_a_recording_that_cannot_be_read_is_told_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talk.mp3").write_text("this is no sound")
    words = ["--from", "en", "--to", "es"]
    assert main(["translate", str(tmp_path / "talk.mp3"), *words]) == 1
    assert "no format that can be read" in capsys.readouterr().err
    assert main(["translate", str(tmp_path / "none.wav"), *words]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--from", "en"], "give --from LANG and --to LANG"),
        (["--from", "en", "--to", "no language"], "not a language code"),
        (["--two-way", "en", "en"], "needs two languages"),
        (["--two-way", "en", "es", "--to", "fr"], "cannot be combined with --from and --to"),
        (
            ["--from", "en", "--to", "es", "--private", "--url", "ws://x"],
            "cannot be combined with --url",
        ),
        (["--from", "en", "--to", "es", "--voice", "fast", "--url", "ws://x"], "a private node"),
        (["--from", "en", "--to", "es", "--voice", "fast", "--engines", "asr=whisper"], "default"),
        (["--from", "en", "--to", "es", "--srt", "a", "--vtt", "./a"], "a is for --srt already"),
        (["--from", "en", "--to", "es", "--out-audio", "talk.wav"], "is the file to translate"),
        (["--from", "en", "--to", "es", "--srt", "-", "--json", "-"], "takes one file"),
        (["--from", "en", "--to", "es", "--to", "fr", "--vtt", "-"], "in one language"),
        (["--from", "en", "--to", "es", "--url", "ws://127.0.0.1:1"], "no scheduler at ws://127"),
        (["--from", "en", "--to", "es", "--url", "ws://127.0.0.1:1", "--play"], "can play sound"),
    ],
)
def test_wrong_usage_is_told(
    words: list[str],
    problem: str,
    talk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(talk.parent)
    monkeypatch.setattr("lingua_translate.playback.PLAYERS", ())
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert main(["translate", str(talk), *words]) in (1, 2)
    assert problem in capsys.readouterr().err


def test_an_address_may_leave_out_its_path() -> None:
    assert session_url("ws://a:5010") == "ws://a:5010/ws/session"
    assert session_url("https://a/") == "wss://a/ws/session"
    assert session_url("ws://a/other") == "ws://a/other"
    with pytest.raises(ConfigError, match="must be ws://"):
        session_url("a:5010")


@pytest.mark.parametrize("option", ["--srt", "--vtt", "--json", "--out-audio"])
@pytest.mark.parametrize("place", ["none/file", "", "talk.wav/file"])
def test_a_place_where_nothing_can_be_written_is_told_before_anything_is_said(
    option: str, place: str, talk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--from", "en", "--to", "es", "--url", "ws://127.0.0.1:1", option]
    assert main(["translate", str(talk), *words, str(talk.parent / place)]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_translated_speech_can_go_to_standard_output_alone(url: str, talk: Path) -> None:
    words = ("--from", "en", "--to", "es", "--url", url, "--fast", "--out-audio", "-")
    done = translate(talk, *words, text=False, cwd=talk.parent)
    assert done.returncode == 0, done.stderr
    assert read(done.stdout).duration_ms > 0
    assert not (talk.parent / "-").exists()


def test_a_terminal_without_the_letters_does_not_end_the_talk(url: str, talk: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = translate(talk, "--from", "en", "--to", "es", "--url", url, env=environ)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--srt", "--json", "--out-audio"])
def test_a_full_disk_costs_that_file_and_no_other(
    option: str, url: str, talk: Path, tmp_path: Path
) -> None:
    words = ("--from", "en", "--to", "es", "--url", url, "--fast", "--vtt", tmp_path / "o.vtt")
    done = translate(talk, *words, option, "/dev/full")
    assert done.returncode == 1
    assert done.stderr == "lingua: cannot write /dev/full: No space left on device\n"
    assert (tmp_path / "o.vtt").read_text().count("[es] simulated") == 2


@pytest.mark.parametrize("words", [(), ("--json", "-"), ("--out-audio", "-")])
def test_output_that_has_no_place_is_told_in_one_line(
    words: tuple[str, ...], url: str, talk: Path, tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*LINGUA, "translate", str(talk), "--from", "en", "--to", "es", "--url", url]
        done = subprocess.run(
            [*command, "--fast", "--srt", str(tmp_path / "o.srt"), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("lingua: cannot write standard output: No space left on device\n")
    assert "Traceback" not in done.stderr
    if words != ("--out-audio", "-"):
        assert "simulated" in (tmp_path / "o.srt").read_text()


def test_who_reads_no_further_costs_no_file(url: str, talk: Path, tmp_path: Path) -> None:
    command = [*LINGUA, "translate", str(talk), "--from", "en", "--to", "es", "--url", url]
    process = subprocess.Popen(
        [*command, "--srt", str(tmp_path / "o.srt")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "simulated" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(BOUND_S) == 141
    assert "simulated" in (tmp_path / "o.srt").read_text()


def test_a_terminal_that_is_closed_ends_the_session_properly(url: str, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    write_wav(path, speech(200), RATE)
    out = tmp_path / "o.json"
    screen = Screen(path, "--from", "en", "--to", "es", "--url", url, "--json", out)
    screen.read_until(b"[es] simulated")
    assert screen.hang_up() == 0
    found = json.loads(out.read_text())
    assert found["summary"]["coverage"]["failed_ms"] == 0
    assert all(said["renditions"]["es"]["text"] for said in found["utterances"])


PRIVATE = """
import sys
from lingua_cli import main
from lingua_translate.commands import translate
from lingua_translate.local import private_service
def simulated(engines, node_words, **more):
    return private_service(node_words=("--simulate", "--pairs", "en:es"), **more)
async def nothing(_):
    pass
translate.private_service = simulated
translate.Translation._check_models = nothing
sys.exit(main.main())
"""


@pytest.mark.parametrize("which", ["serve", "node"])
def test_a_private_process_that_dies_ends_the_talk_and_is_told(which: str, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    write_wav(path, speech(200), RATE)
    words = ["translate", str(path), "--from", "en", "--to", "es", "--private", "--srt", "o.srt"]
    process = subprocess.Popen(
        [sys.executable, "-c", PRIVATE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    while "[es] simulated" not in process.stdout.readline():
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        if which in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
            os.kill(int(child), signal.SIGKILL)
    _, problem = process.communicate(timeout=BOUND_S)
    name = {"serve": "scheduler", "node": "node"}[which]
    assert problem == f"lingua: the private {name} has ended (exit code -9)\n"
    assert process.returncode == 1
    assert "[es] simulated" in (tmp_path / "o.srt").read_text()


class Refuses(BaseHTTPRequestHandler):
    """A scheduler that requires another token."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_running_scheduler_that_refuses_us_is_told(talk: Path, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        answering = Thread(target=server.serve_forever)
        answering.start()
        port = str(server.server_port)
        environ = {**os.environ, "LINGUA_SERVER__PORT": port, "LINGUA_MODELS": str(tmp_path)}
        done = translate(talk, "--from", "en", "--to", "es", env=environ)
        server.shutdown()
        answering.join()
    assert f"127.0.0.1:{port} does not say what it serves (HTTP 401)" in done.stdout
    assert "models are missing" in done.stderr
