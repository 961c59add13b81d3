"""Downloading one pinned file: resumed, bounded, tried at each of its addresses, hashed.

Standard library only. A file grows as `NAME.part` and gets its own name when size and SHA-256 are
the pinned ones, so a file without `.part` is always right and an interrupted download goes on.
Proxies are taken from the environment as urllib does. Used by `store`.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from lingua_scheduler.models.errors import ModelCorrupt, SourceUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 256 * 1024
TIMEOUT_S = 15.0
# Tries at one address: in a row without a byte, and in all.
IDLE_TRIES = 2
TRIES_MAX = 20
APT_TIMEOUT_S = 300
# Answers that another try may change.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Item(NamedTuple):
    """One file to fetch, with its addresses in the order of trying."""

    model: str
    file: str
    urls: tuple[str, ...]
    size: int
    sha256: str
    variable: str  # the environment variable that names a mirror
    apt: bool = False


class _Failed(Exception):
    """An address did not give the file; never leaves this module."""

    def __init__(self, why: str, *, again: bool) -> None:
        self.again = again  # another try at this address may help
        super().__init__(why)


def fetch(item: Item, target: Path, moved: Callable[[int], None]) -> str:
    """Bring the file to `target` and return its address; `moved` hears the bytes there so far."""
    # Hashed again: a machine that lost its power may have kept the name and not the content.
    if target.exists() and sha256_of(target) == item.sha256:
        moved(item.size)
        return item.urls[0]
    target.unlink(missing_ok=True)
    tries: list[tuple[str, str]] = []
    wrong = False
    for url in item.urls:
        try:
            return _fetch_right(url, item, target, moved)
        except _Failed as failed:
            tries.append((_host(url), str(failed)))
        except ModelCorrupt as corrupt:
            wrong = True
            tries.append((_host(url), corrupt.problem))
    if item.apt and _fetch_by_apt(item, target):
        moved(item.size)
        return f"apt:{item.file}"
    if wrong:
        raise ModelCorrupt(item.model, "; ".join(f"{host}: {why}" for host, why in tries))
    raise SourceUnreachable(item.file, tries, item.variable)


def _fetch_right(url: str, item: Item, target: Path, moved: Callable[[int], None]) -> str:
    """Bring the file from one address, once more from its start if what lay here was wrong."""
    is_continued = _size(_part(target)) > 0
    try:
        return _fetch_from(url, item, target, moved)
    except ModelCorrupt:
        if not is_continued:
            raise
        return _fetch_from(url, item, target, moved)


def _fetch_from(url: str, item: Item, target: Path, moved: Callable[[int], None]) -> str:
    """Bring the file from one address, going on after every break that made progress."""
    part = _part(target)
    idle = 0
    for _ in range(TRIES_MAX):
        before = _size(part)
        try:
            _pull(url, item, part, moved)
        except _Failed as failed:
            idle = 0 if _size(part) > before else idle + 1
            if not failed.again or idle >= IDLE_TRIES:
                raise
            time.sleep(min(0.2 * 2**idle, 2.0))
            continue
        _accept(item, part, target)
        return url
    raise _Failed(f"broke off {TRIES_MAX} times", again=False)


def _pull(url: str, item: Item, part: Path, moved: Callable[[int], None]) -> None:
    """Ask once for what is missing of the file and append it."""
    have = _size(part)
    if have > item.size:
        part.unlink()
        have = 0
    if have == item.size:
        return
    with _open(url, have, part) as response:
        # A server that ignores ranges begins at the start again, and so do we.
        have = _start(response, have, item.size)
        with part.open("ab" if have else "wb") as out:
            while have < item.size:
                chunk = _read(response, min(CHUNK_BYTES, item.size - have))
                out.write(chunk)
                have += len(chunk)
                moved(have)


def _start(response: http.client.HTTPResponse, have: int, size: int) -> int:
    """Return where the answer begins; one that cannot be our file is refused unread."""
    begin, total = 0, response.headers.get("Content-Length", str(size))
    if getattr(response, "status", None) == http.HTTPStatus.PARTIAL_CONTENT:
        begin = have
        wanted = f"bytes {have}-{size - 1}/"
        if not response.headers.get("Content-Range", "").startswith(wanted):
            raise _Failed("answers with another part than was asked for", again=False)
    elif total != str(size):
        raise _Failed(f"answers with {total} bytes, not {size}", again=False)
    return begin


def _open(url: str, have: int, part: Path) -> http.client.HTTPResponse:
    """Open the address at an offset; whatever fails is a `_Failed`."""
    if urllib.parse.urlsplit(url).scheme not in {"http", "https", "file"}:
        raise _Failed(f"not an address of http, https or file: {url[:80]}", again=False)
    if "@" in urllib.parse.urlsplit(url).netloc:
        raise _Failed("an address with a user or a password is not supported", again=False)
    headers = {"User-Agent": "lingua-scheduler", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - the same
    except urllib.error.HTTPError as error:
        why = f"HTTP {error.code} {error.reason}"
        again = error.code in PASSING
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # what lies here is none of this file
            again = True
        raise _Failed(why, again=again) from None
    except urllib.error.URLError as error:
        raise _Failed(str(error.reason), again=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(str(error) or type(error).__name__, again=True) from error
    return cast("http.client.HTTPResponse", answer)


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Read some bytes; an end before the file's end is a failure too."""
    try:
        chunk = response.read(limit)
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"broke off: {str(error) or type(error).__name__}", again=True) from error
    if not chunk:
        raise _Failed("broke off before the end", again=True)
    return chunk


def _accept(item: Item, part: Path, target: Path) -> None:
    """Give a whole and right file its name; throw away a wrong one."""
    found = sha256_of(part)
    if found != item.sha256:
        part.unlink()
        raise ModelCorrupt(
            item.model, f"{item.file} has SHA-256 {found[:16]}…, not {item.sha256[:16]}…"
        )
    part.rename(target)


def _fetch_by_apt(item: Item, target: Path) -> bool:
    """Ask the machine's own apt for the package; True when it gave exactly the pinned file."""
    program = shutil.which("apt-get")
    name, version, architecture = _package_of(item.file)
    if program is None or not name:
        return False
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [program, "download", f"{name}:{architecture}={version}"]
        if architecture == "all":
            command[-1] = f"{name}={version}"
        try:
            subprocess.run(  # noqa: S603 - no shell; the words come from the catalogue
                command, cwd=folder, capture_output=True, timeout=APT_TIMEOUT_S, check=True
            )
        except (subprocess.SubprocessError, OSError):
            return False
        for found in Path(folder).glob("*.deb"):
            if sha256_of(found) == item.sha256:
                found.rename(target)
                return True
    return False


def _host(url: str) -> str:
    """Return whom an address asks, without the password that it may hold."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2] or url


def _package_of(file: str) -> tuple[str, str, str]:
    """Split `name_version_architecture.deb`; empty names for another kind of file."""
    parts = urllib.parse.unquote(file).removesuffix(".deb").split("_")
    if not file.endswith(".deb") or len(parts) != 3:
        return "", "", ""
    return parts[0], parts[1], parts[2]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
