"""HTTP client of a running scheduler, for `lingua top`, `sessions`, `nodes`, `jobs` and
`explain --url`.

The address comes from `--url`, else from `server` in the settings. Proxies of the environment are
not used and redirects are not followed: a token is sent only to the given address.
"""

from __future__ import annotations

import argparse
import http.client
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from lingua_cli.certificates import CA_VARIABLE, add_ca, tls_of
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.answers import ErrorAnswer, JobPage, NodePage, SessionPage
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_scheduler.config import ServerSettings

TOKEN_VARIABLE = "LINGUA_TOKEN"  # noqa: S105 a name, not a secret
URL_HELP = "URL of the scheduler (default: from `server` in the settings)"
PATIENCE_S = 5
ANSWER_BYTES_MAX = 64 << 20
PAGE = 500
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 where to ask
SHORT_CHARS = 10

A = TypeVar("A")
Page = TypeVar("Page", JobPage, NodePage, SessionPage)


class NoScheduler(LinguaError):
    """No scheduler answers at the address."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(f"no scheduler answers at {url} ({why}): start one with `lingua serve`")


class NotTrusted(LinguaError):
    """The server's certificate is not trusted."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(
            f"the certificate of {url} is not trusted here ({why}): give the service's own with "
            f"--ca FILE or ${CA_VARIABLE}"
        )


class SchedulerRefused(LinguaError):
    """The scheduler refused the request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        hint = ""
        if status == 401:
            hint = f"; give it with --token or ${TOKEN_VARIABLE}"
        super().__init__(f"the scheduler refused: {message} ({code}){hint}")


@dataclass(frozen=True, slots=True)
class SchedulerClient:
    """Sends requests to a running instance."""

    url: str
    token: str | None
    tls: ssl.SSLContext | None = None

    def get(self, path: str, kind: type[A], **query: str | int) -> A:
        """Return the response of a path."""
        parameters = f"?{urlencode(query)}" if query else ""
        return self._send(f"{path}{parameters}", kind, None)

    def post(self, path: str, kind: type[A], body: Mapping[str, Any]) -> A:
        """Send a body to a path, and return the response."""
        return self._send(path, kind, msgspec.json.encode(body))

    def get_list(self, path: str, kind: type[Page], name: str, limit: int) -> Page:
        """Read up to `limit` elements of a list, page by page, and return them as one page."""
        found: list[Any] = []
        after: str | None = ""
        page = None
        while after is not None and len(found) < limit:
            size = min(PAGE, limit - len(found))
            page = self.get(path, kind, limit=size, after=after)
            found += getattr(page, name)
            after = page.next
        assert page is not None, "the limit is at least 1"
        return msgspec.structs.replace(page, **{name: tuple(found)})

    @property
    def sockets(self) -> str:
        """Return the URL that clients and nodes use."""
        return self.url.replace("http", "ws", 1)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a stream until it ends; it may be silent for `PATIENCE_S`."""
        with self._asked(path, None) as answer:
            try:
                while line := answer.readline(ANSWER_BYTES_MAX):
                    yield line
            except (OSError, http.client.HTTPException) as error:
                raise NoScheduler(self.url, _why(error)) from None

    def _send(self, path: str, kind: type[A], body: bytes | None) -> A:
        with self._asked(path, body) as answer:
            try:
                data = answer.read(ANSWER_BYTES_MAX)
            except (OSError, http.client.HTTPException) as error:
                raise NoScheduler(self.url, _why(error)) from None
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError:
            raise NoScheduler(self.url, "another program listens there") from None

    def _asked(self, path: str, body: bytes | None) -> http.client.HTTPResponse:
        """Send a request and return the response, of which only the head was read."""
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self.url}{path}", body, headers)  # noqa: S310 checked
        try:
            answer: http.client.HTTPResponse = _opener(self.tls).open(request, timeout=PATIENCE_S)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.status or 0, error.read(ANSWER_BYTES_MAX)) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise NotTrusted(self.url, error.reason.verify_message) from None
            raise NoScheduler(self.url, _why(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise NoScheduler(self.url, _why(error)) from None
        return answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Do not follow: the response becomes an error."""


def add_options(
    parser: argparse.ArgumentParser, url_help: str = URL_HELP, *, is_nested: bool = False
) -> None:
    """Add the options of commands that send requests to a scheduler.

    A nested parser has no defaults: they would overwrite options given before its name.
    """
    default: Any = argparse.SUPPRESS if is_nested else None
    parser.add_argument("--url", default=default, help=url_help)
    parser.add_argument(
        "--token",
        default=default,
        metavar="T",
        help=f"client token with scope admin, if keys are set (default: ${TOKEN_VARIABLE})",
    )
    add_ca(parser, default)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if is_nested else False,
        help="print JSON instead of tables",
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits a list."""
    parser.add_argument(
        "--limit",
        type=_at_least_one,
        default=PAGE,
        metavar="N",
        help=f"show at most N (default: {PAGE})",
    )


def scheduler_of(args: argparse.Namespace) -> SchedulerClient:
    """Return a client for the scheduler that the arguments name."""
    token = args.token or os.environ.get(TOKEN_VARIABLE) or None
    if args.url:
        return SchedulerClient(_checked(args.url), token, tls_of(args.ca))
    server = load_settings(args.config, os.environ).server
    # The settings name the certificate of the service, so a self-signed one is trusted.
    own = Path(server.tls_cert_file) if server.tls_cert_file else None
    return SchedulerClient(_url_of(server), token, tls_of(args.ca or own))


def id_path(kind: str, name: str) -> str:
    """Return the API path of one object."""
    return f"/api/v1/{kind}/{quote(name, safe='')}"


def age_text(age_ms: float) -> str:
    """Return an age in one unit: `3s`, `12m`, `5h`, `2d`."""
    seconds = int(age_ms // 1000)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def short(name: str) -> str:
    """Return the beginning of a long id; `--json` has the whole id."""
    return name if len(name) <= SHORT_CHARS + 2 else name[:SHORT_CHARS]


def count_text(count: int, one: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _url_of(server: ServerSettings) -> str:
    host = ANY_ADDRESS.get(server.host, server.host)
    scheme = "https" if server.tls_cert_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port or 5010}"


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("--url", f"must be http://HOST:PORT or https://..., got: {url[:80]!r}")
    return url.rstrip("/")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got: {text!r}")
    return int(text)


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    https = urllib.request.HTTPSHandler(context=tls)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https, _NoRedirects)


def _refused(status: int, data: bytes) -> SchedulerRefused:
    try:
        trouble = msgspec.json.decode(data, type=ErrorAnswer).error
    except msgspec.MsgspecError:
        return SchedulerRefused(status, f"HTTP {status}", "not a response of a scheduler")
    return SchedulerRefused(status, trouble.code, trouble.message)


def _why(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    text = reason.strerror if isinstance(reason, OSError) else None
    return (text or str(reason)).lower()[:100]
