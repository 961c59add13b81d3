"""Downloading one pinned file: resumed, bounded, tried at each of its addresses, hashed.

Standard library only. A file grows as `NAME.part` and gets its own name when size and SHA-256 are
the pinned ones, so a file without `.part` is always right and an interrupted download goes on.
Proxies are taken from the environment as urllib does. Used by `store`.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from lingua_scheduler.models.errors import ModelCorrupt, SourceUnreachable
from lingua_scheduler.models.packagers import PackagerFailed, bring

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK_BYTES = 256 * 1024
TIMEOUT_S = 15.0
# Tries in a row without progress at an address that never gave a byte, and at one that did.
IDLE_TRIES = 2
PATIENT_TRIES = 6
PROGRESS_BYTES = 64 * 1024
PAUSE_S = 0.2  # before the second try; doubles
PAUSE_MAX_S = 5.0
# Slower than this is as good as nothing: another address, or another hour.
PACE_WINDOW_S = 60.0
PACE_BYTES = 60_000
SILENT_S = 300.0  # how long a host that cannot be reached is not asked for other files
WHY_MAX = 200
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
    packager: str = ""  # the machine's own program to ask last


class SilentHosts:
    """Hosts that could not be reached a moment ago: each further file would wait for them again."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, str]] = {}  # host -> when, and why

    def add(self, host: str, why: str) -> None:
        """Remember that nobody answered."""
        self._found[host] = (time.monotonic(), why)

    def why(self, host: str) -> str:
        """Return why a host need not be asked now; empty: ask it."""
        since, why = self._found.get(host, (0.0, ""))
        return why if why and time.monotonic() - since < SILENT_S else ""


class _Failed(Exception):
    """An address did not give the file; never leaves this module."""

    def __init__(self, why: str, *, again: bool, is_silent: bool = False) -> None:
        self.again = again  # another try at this address may help
        self.is_silent = is_silent  # the host could not be reached at all
        super().__init__("".join(c if c.isprintable() else " " for c in why)[:WHY_MAX])


def fetch(
    item: Item,
    target: Path,
    moved: Callable[[int], None],
    asks: Callable[[str], None] = lambda _: None,
    silent: SilentHosts | None = None,
) -> str:
    """Bring the file to `target` and return its address.

    `moved` hears the bytes there so far, `asks` the packager that is asked in the end.
    """
    # Hashed again: a machine that lost its power may have kept the name and not the content.
    if target.exists() and sha256_of(target) == item.sha256:
        moved(item.size)
        return item.urls[0]
    target.unlink(missing_ok=True)
    moved(min(_size(_part(target)), item.size))
    tries: list[tuple[str, str]] = []
    wrong = False
    for url in item.urls:
        try:
            return _fetch_heard(url, item, target, moved, silent or SilentHosts())
        except _Failed as failed:
            tries.append((_asked(url), str(failed)))
        except ModelCorrupt as corrupt:
            wrong = True
            tries.append((_asked(url), corrupt.problem))
    if item.packager:
        asks(item.packager)
        try:
            return _fetch_packed(item, target, moved)
        except _Failed as failed:
            tries.append((item.packager, str(failed)))
    if wrong:
        reasons = "; ".join(f"{host}: {why}" for host, why in tries)
        raise ModelCorrupt(item.model, f"{reasons}; set {item.variable} to another mirror")
    raise SourceUnreachable(f"{item.file} of model {item.model}", tries, item.variable)


def _fetch_packed(item: Item, target: Path, moved: Callable[[int], None]) -> str:
    """Have the machine's own packager bring the file."""
    known = [_host(url) for url in item.urls]
    try:
        bring(item.packager, item.file, target, lambda f: sha256_of(f) == item.sha256, known)
    except PackagerFailed as failed:
        raise _Failed(str(failed), again=False) from failed
    moved(item.size)
    return f"{item.packager}:{item.file}"


def _fetch_heard(
    url: str, item: Item, target: Path, moved: Callable[[int], None], silent: SilentHosts
) -> str:
    """Bring the file from one address unless its host was silent just now."""
    if why := silent.why(_asked(url)):
        raise _Failed(why, again=False)
    try:
        return _fetch_right(url, item, target, moved)
    except _Failed as failed:
        if failed.is_silent:
            silent.add(_asked(url), str(failed))
        raise


def _fetch_right(url: str, item: Item, target: Path, moved: Callable[[int], None]) -> str:
    """Bring the file from one address, once more from its start if it was pieced together wrong."""
    is_one_piece = _fetch_from(url, item, target, moved)
    try:
        _accept(item, target)
    except ModelCorrupt:
        if is_one_piece:
            raise
        _fetch_from(url, item, target, moved)
        _accept(item, target)
    return url


def _fetch_from(url: str, item: Item, target: Path, moved: Callable[[int], None]) -> bool:
    """Bring the file, going on after breaks; tell whether it came in one piece."""
    part = _part(target)
    before = best = _size(part)
    is_one_piece = best == 0
    idle = 0
    while True:
        try:
            _pull(url, item, part, moved)
        except _Failed as failed:
            # Of the most there ever was: a server without ranges begins at the start each time.
            idle = 0 if _size(part) - best >= PROGRESS_BYTES else idle + 1
            best = max(best, _size(part))
            is_one_piece = False
            if not failed.again or idle >= (PATIENT_TRIES if best > before else IDLE_TRIES):
                raise
            time.sleep(min(PAUSE_S * 2**idle, PAUSE_MAX_S))
        else:
            return is_one_piece


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
        have = _start(response, have, item.size, part)
        pace = _Pace()
        with part.open("ab" if have else "wb") as out:
            while have < item.size:
                chunk = _read(response, min(CHUNK_BYTES, item.size - have))
                out.write(chunk)
                have += len(chunk)
                moved(have)
                pace.check(len(chunk))


class _Pace:
    """Whether a download is fast enough to wait for."""

    def __init__(self) -> None:
        self._since = time.monotonic()  # when this window began
        self._bytes = 0  # what came in it

    def check(self, size: int) -> None:
        """Count what came; raise when a window is over and it was next to nothing."""
        self._bytes += size
        took_s = time.monotonic() - self._since
        if took_s >= PACE_WINDOW_S:
            if self._bytes < PACE_BYTES:
                raise _Failed(f"too slow: {self._bytes} bytes in {took_s:.0f} s", again=True)
            self._since, self._bytes = time.monotonic(), 0


def _start(response: http.client.HTTPResponse, have: int, size: int, part: Path) -> int:
    """Return where the answer begins; one that cannot be our file is refused unread."""
    if response.headers.get_content_type() == "text/html":
        raise _Failed("answers with a web page (does this network want a log-in?)", again=False)
    begin, total = 0, response.headers.get("Content-Length", str(size))
    if getattr(response, "status", None) == http.HTTPStatus.PARTIAL_CONTENT:
        begin = have
        wanted = f"bytes {have}-{size - 1}/"
        if not response.headers.get("Content-Range", "").startswith(wanted):
            part.unlink(missing_ok=True)  # or every later run would fail like this
            raise _Failed("answers with another part than was asked for", again=True)
    elif total != str(size):
        raise _Failed(f"answers with {total} bytes, not {size}", again=False)
    return begin


def _open(url: str, have: int, part: Path) -> http.client.HTTPResponse:
    """Open the address at an offset; whatever fails is a `_Failed`."""
    headers = {"User-Agent": "lingua-scheduler", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        _check_address(url)
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
        # Made anew, for it reads the proxies from the environment.
        answer = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        why = f"HTTP {error.code} {error.reason}"
        again = error.code in PASSING
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # what lies here is none of this file
            again = True
        raise _Failed(why, again=again) from None
    except urllib.error.URLError as error:
        raise _Failed(str(error.reason), again=True, is_silent=True) from error
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise _Failed(why, again=True, is_silent=True) from error
    except ValueError as error:
        raise _Failed(f"not an address: {error}", again=False) from error
    return cast("http.client.HTTPResponse", answer)


def _check_address(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https", "file"}:
        raise _Failed(f"not an address of http, https or file: {parts.scheme}", again=False)
    if "@" in parts.netloc:
        raise _Failed("an address with a user or a password is not supported", again=False)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to other hosts, which mirrors do, but not from https to something weaker."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the request to follow with, or raise."""
        old, new = (urllib.parse.urlsplit(url).scheme for url in (req.full_url, newurl))
        if new not in {"https", old}:
            raise urllib.error.HTTPError(newurl, code, f"leads from {old} to {new}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Read some bytes; an end before the file's end is a failure too."""
    try:
        # What is there: waiting for more would lose it when the connection breaks.
        chunk = response.read1(limit)
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"broke off: {str(error) or type(error).__name__}", again=True) from error
    if not chunk:
        raise _Failed("broke off before the end", again=True)
    return chunk


def _accept(item: Item, target: Path) -> None:
    """Give a whole and right file its name; throw away a wrong one."""
    part = _part(target)
    found = sha256_of(part)
    if found != item.sha256:
        part.unlink()
        raise ModelCorrupt(
            item.model, f"{item.file} has SHA-256 {found[:16]}…, not {item.sha256[:16]}…"
        )
    part.rename(target)


def _host(url: str) -> str:
    """Return whom an address asks, without the password that it may hold."""
    try:
        host = urllib.parse.urlsplit(url).netloc or url
    except ValueError:
        host = url
    return host.rpartition("@")[2]


def _asked(url: str) -> str:
    """Return whom an address asks, and by which proxy."""
    host = _host(url)
    proxy = urllib.request.getproxies().get(url.partition(":")[0], "")
    if not proxy or urllib.request.proxy_bypass(host):
        return host
    return f"{host} by the proxy {_host(proxy)}"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
