"""A real HTTP server on the loopback with small generated archives, which can misbehave.

Used by the tests of the model store: it cuts answers short, ignores ranges, pauses within a file,
sends other content or redirects, and records its requests. Also functions that write the three
kinds of archives, and a catalogue of them.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lingua_speech.models.catalogue import Catalogue, Download, DownloadSource, Model

VARIABLE = "LINGUA_TEST_URL"
Content = Mapping[str, bytes]


class Depot:
    """The files, the behaviour and the recorded requests of the server."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: dict[str, list[int]] = {}  # path -> bytes given before each break, in turn
        self.stalls: dict[str, list[int]] = {}  # the same, but silent rather than broken off
        self.crumbs: dict[str, int] = {}  # path -> bytes given every 50 ms
        self.statuses: dict[str, int] = {}  # path -> the error it answers with
        self.reason: str | None = None  # the words beside an error
        self.moved: dict[str, str] = {}  # path -> address it redirects to
        self.pages: set[str] = set()  # paths that are web pages and do not tell their length
        self.has_ranges = True
        self.skew = 0  # by how much the ranges it gives begin later than was asked
        self.held: dict[str, threading.Event] = {}  # path -> let go after half of the file
        self.reached = threading.Event()  # a held file is at its half
        self.asked: list[tuple[str, str]] = []  # (path, range) in order
        self.over = threading.Event()  # the server is being stopped
        self.url = ""

    def add(self, path: str, content: bytes) -> Download:
        """Serve a file and return its pinned download."""
        self.files[f"/{path}"] = content
        digest = hashlib.sha256(content).hexdigest()
        return Download(source="depot", path=path, size=len(content), sha256=digest)


@contextmanager
def running_depot(tls: ssl.SSLContext | None = None) -> Iterator[Depot]:
    depot = Depot()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self, depot)

        def log_message(self, *words: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    depot.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield depot
    finally:
        depot.over.set()
        for event in depot.held.values():
            event.set()
        server.shutdown()
        thread.join()
        server.server_close()


def answer(request: BaseHTTPRequestHandler, depot: Depot) -> None:
    path, wanted = request.path, request.headers.get("Range", "")
    depot.asked.append((path, wanted))
    content = depot.files.get(path)
    request.close_connection = True
    if content is None or path in depot.statuses:
        request.send_error(depot.statuses.get(path, 404), depot.reason)
        return
    if path in depot.moved:
        request.send_response(302)
        request.send_header("Location", depot.moved[path])
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    if path in depot.pages:
        request.send_response(200)
        request.send_header("Content-Type", "text/html; charset=utf-8")
        request.end_headers()
        request.wfile.write(content)
        return
    start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and depot.has_ranges else 0
    start += depot.skew if start else 0
    if start >= len(content):
        request.send_error(416)
        return
    request.send_response(206 if start else 200)
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    request.send_header("Content-Length", str(len(content) - start))
    request.end_headers()
    give(request, depot, content[start:])


def give(request: BaseHTTPRequestHandler, depot: Depot, rest: bytes) -> None:
    if cuts := depot.cuts.get(request.path):
        request.wfile.write(rest[: cuts.pop(0)])
        return
    if stalls := depot.stalls.get(request.path):
        request.wfile.write(rest[: stalls.pop(0)])
        request.wfile.flush()
        depot.over.wait(30)
        return
    if crumb := depot.crumbs.get(request.path):
        give_crumbs(request, depot, rest, crumb)
        return
    if held := depot.held.get(request.path):
        request.wfile.write(rest[: len(rest) // 2])
        request.wfile.flush()
        depot.reached.set()
        held.wait(30)
        rest = rest[len(rest) // 2 :]
    # The client may have been killed by the test.
    with suppress(BrokenPipeError, ConnectionResetError):
        request.wfile.write(rest)


def give_crumbs(request: BaseHTTPRequestHandler, depot: Depot, rest: bytes, crumb: int) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        for start in range(0, len(rest), crumb):
            request.wfile.write(rest[start : start + crumb])
            if depot.over.wait(0.05):
                return


def tgz(content: Content) -> bytes:
    """Return an npm-like tarball."""
    return tar_of([plain(name, data) for name, data in content.items()], "w:gz")


def wheel(content: Content) -> bytes:
    """Return a zip file, the format of wheels."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, data in content.items():
            folder.writestr(name, data)
    return out.getvalue()


def deb(content: Content, links: Mapping[str, str] | None = None) -> bytes:
    """Return a Debian package with these files and symbolic links."""
    entries = [plain(f"./{name}", data) for name, data in content.items()]
    entries += [symbolic(f"./{name}", target) for name, target in (links or {}).items()]
    return deb_of(tar_of(entries, "w"))


def deb_of(tar: bytes, name: str = "data.tar.xz") -> bytes:
    """Return a Debian package, an `ar` archive, with this tar file."""
    data = lzma.compress(tar) if name.endswith(".xz") else tar
    return ar_of({"debian-binary": b"2.0\n", "control.tar.xz": b"odd", name: data})


def ar_of(members: Content) -> bytes:
    """Return an `ar` archive of these members."""
    out = b"!<arch>\n"
    for member, body in members.items():
        header = f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n"
        out += header.encode() + body + b"\n" * (len(body) % 2)
    return out


TarEntry = tuple[tarfile.TarInfo, bytes]


def plain(name: str, data: bytes, mode: int = 0o644) -> TarEntry:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    return entry, data


def symbolic(name: str, target: str) -> TarEntry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry, b""


def tar_of(entries: list[TarEntry], mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for entry, data in entries:
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def model(name: str, *downloads: Download, **facts: object) -> Model:
    """Return an entry of a catalogue; by default it takes all files."""
    known: dict[str, object] = {
        "name": name,
        "purpose": f"to test {name}",
        "licence": "CC0-1.0",
        "credit": "the tests",
        "disk_mb": 1,
        "downloads": downloads,
        "take": {"package/": ""},
    }
    return Model(**{**known, **facts})  # type: ignore[arg-type]


def catalogue(
    urls: str | tuple[str, ...], *models: Model, groups: dict[str, tuple[str, ...]] | None = None
) -> Catalogue:
    """Return a catalogue with these servers as its only source."""
    bases = (urls,) if isinstance(urls, str) else urls
    source = DownloadSource(urls=bases, variable=VARIABLE)
    return Catalogue(
        sources={"depot": source}, groups=groups or {}, models={m.name: m for m in models}
    )
