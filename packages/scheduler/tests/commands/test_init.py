"""`lingua init`, and then exactly the commands that it prints: real processes, TLS and tokens."""

from __future__ import annotations

import itertools
import math
import os
import signal
import ssl
import stat
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from lingua_process import BOUND_S, Running, environment, run, running
from lingua_wire.recording import write_wav
from servers import Server, free_port

pytestmark = pytest.mark.stress

FILES = {
    "lingua.toml": 0o600, "certificate.pem": 0o644, "certificate.key": 0o600,
    "admin.token": 0o600, "client.token": 0o600, "node.token": 0o600,
}  # fmt: skip


def made(folder: Path, *more: str) -> dict[str, str]:
    """Make a service's files for this machine alone; return the lines it prints, by their title."""
    done = run(["init", "--name", "127.0.0.1", "--listen", "127.0.0.1", *more], folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    return {
        title.partition(" (")[0].rstrip(":"): line.strip()
        for title, line in itertools.pairwise(lines)
        if line.startswith("  ") and not title.startswith("  ")
    }


def path_with_lingua(folder: Path) -> str:
    """Return a PATH on which `lingua` is this code."""
    program = folder / "bin" / "lingua"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lingua_cli "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


def typed(line: str, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell of another machine, without any settings."""
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=cwd, env={**environment(cwd), "PATH": path}, capture_output=True, text=True,
        timeout=BOUND_S, check=False,
    )  # fmt: skip


def copied(folder: Path, machine: Path, *names: str) -> Path:
    """Copy files to another machine."""
    machine.mkdir()
    for name in names:
        (machine / name).write_bytes((folder / "lingua" / name).read_bytes())
    return machine


def talk(path: Path) -> None:
    """Write a recording with something loud in it."""
    voice = array("h", [round(9000 * math.sin(at / 6)) for at in range(16_000)])
    write_wav(path, voice.tobytes() + bytes(2 * 8000), 16_000)


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    made(tmp_path)
    folder = tmp_path / "lingua"
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == FILES
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_there_is_not_overwritten_unless_that_is_meant(tmp_path: Path) -> None:
    made(tmp_path)
    before = {p.name: p.read_bytes() for p in (tmp_path / "lingua").iterdir()}
    again = run(["init"], tmp_path)
    assert again.returncode == 1
    assert "lingua already has lingua.toml, certificate.pem" in again.stderr
    assert "nothing was changed" in again.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "lingua").iterdir()} == before
    made(tmp_path, "--force")
    after = {p.name: p.read_bytes() for p in (tmp_path / "lingua").iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--store", "nonsense"], "redis.url"),
        (["--name", "a b"], "not a name or address"),
        (["--name", "x\nDNS:evil.example"], "not a name or address"),
        (["--node", "a b"], "must be letters"),
        (["--port", "0"], "must be from 1"),
    ],
)
def test_what_cannot_be_is_told_and_nothing_is_written(
    words: list[str], told: str, tmp_path: Path
) -> None:
    done = run(["init", *words], tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_openssl_it_says_what_is_missing(tmp_path: Path) -> None:
    done = run(["init"], tmp_path, PATH=str(tmp_path))
    assert done.returncode == 2
    assert "the program `openssl`, which makes the certificate," in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_certificate_is_good_enough_for_a_strict_reader(tmp_path: Path) -> None:
    made(tmp_path)
    context = ssl.create_default_context(cafile=tmp_path / "lingua" / "certificate.pem")
    # Newer Python versions are this strict by default.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = (tmp_path / "lingua" / name for name in ("certificate.pem", "certificate.key"))
    server.load_cert_chain(*names)
    for name in ("127.0.0.1", "localhost", "::1"):
        handshake(context, server, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(context, server, "evil.example")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let both sides meet in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_it_prints_works_as_it_is(workers: str, tmp_path: Path) -> None:
    port, path = free_port(), path_with_lingua(tmp_path)
    lines = made(tmp_path, "--port", str(port))
    serving = lines["here, serve"].split()
    assert serving[:2] == ["lingua", "serve"]
    with running(serving[1:], tmp_path, LINGUA_SERVER__WORKERS=workers) as server:
        assert server.url() == f"https://127.0.0.1:{port}"
        machine = copied(tmp_path, tmp_path / "gpu", "certificate.pem", "node.token")
        # Engines are not tested here.
        line = lines["on the machine of a node"].replace("--engines default", "--simulate")
        with shell(f"exec env {line}", machine, path) as node:
            node.until("registered as node-1")
            client = copied(tmp_path, tmp_path / "laptop", "certificate.pem", "client.token")
            talk(client / "talk.wav")
            done = typed(lines["on the machine of a client"], client, path)
            assert (done.returncode, done.stderr) == (0, ""), done
            assert "[es] simulated speech" in done.stdout
            admin = copied(tmp_path, tmp_path / "desk", "certificate.pem", "admin.token")
            done = typed(lines["to look at it"], admin, path)
            assert (done.returncode, done.stderr) == (0, "")
            assert "1 node, 1 ready" in done.stdout
            refusals(lines, client, path)


def refusals(lines: dict[str, str], client: Path, path: str) -> None:
    """A client without the token or the certificate learns at once what is missing."""
    line = lines["on the machine of a client"]
    done = typed(line.partition('" ')[2], client, path)
    assert done.returncode == 1
    assert "no token was given; make one with `lingua token create --client`" in done.stderr
    assert done.stderr.endswith("; give it with --token or $LINGUA_TOKEN\n")
    done = typed(line.replace("--ca certificate.pem ", ""), client, path)
    assert done.returncode == 1
    assert "is not trusted here (self-signed certificate): give the service's own" in done.stderr


def shell(line: str, cwd: Path, path: str) -> ShellLine:
    return ShellLine(line, cwd, path)


class ShellLine:
    """Run a command until the end of the block."""

    def __init__(self, line: str, cwd: Path, path: str) -> None:
        self._words = (line, cwd, path)
        self._running: Running | None = None

    def __enter__(self) -> Running:
        line, cwd, path = self._words
        self._running = Running(["/bin/sh", "-c", line], cwd, is_ours=False, PATH=path)
        return self._running

    def __exit__(self, *_: object) -> None:
        assert self._running is not None
        if self._running.process.poll() is None:
            self._running.send(signal.SIGTERM)
        self._running.ended()


def test_with_a_store_another_instance_joins_with_the_line_it_prints(tmp_path: Path) -> None:
    store = Server(tmp_path / "store", port=None, unix=False)
    store.start()
    try:
        assert store.tcp_address is not None
        port, other = free_port(), free_port()
        url = f"redis://127.0.0.1:{store.tcp_address.port}"
        lines = made(tmp_path, "--port", str(port), "--store", url)
        first = lines["here, serve"].split()[1:]
        second = lines["on a further machine that serves"].split()[1:]
        with (
            running(first, tmp_path) as one,
            # On one machine the port must differ.
            running([*second, "--port", str(other)], tmp_path) as two,
        ):
            one.url()
            two.url()
            machine = copied(tmp_path, tmp_path / "desk", "certificate.pem", "admin.token")
            path = path_with_lingua(tmp_path)
            done = run(["cluster", "--config", str(tmp_path / "lingua" / "lingua.toml")], tmp_path)
            assert "2 instances" in done.stdout
            line = lines["to look at it"].replace(str(port), str(other))
            assert typed(line, machine, path).returncode == 0
    finally:
        store.kill()
