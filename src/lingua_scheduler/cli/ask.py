"""Asks a running scheduler over HTTP: for `lingua sessions`, `nodes`, `jobs` and `explain --url`.

The address comes from `--url`, else from the settings' `server`. Proxies of the environment are not
used and redirects are not followed: a token goes to the address that was named and nowhere else.
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

from lingua_scheduler.cli.trust import CA_VARIABLE, add_ca, tls_of
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.answers import ErrorAnswer
from lingua_scheduler.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.config import Server

TOKEN_VARIABLE = "LINGUA_TOKEN"  # noqa: S105 a name, not a secret
URL_HELP = "the scheduler (default: as `server` is set)"
PATIENCE_S = 5
ANSWER_BYTES_MAX = 64 << 20
PAGE = 500
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 where to ask
SHORT_CHARS = 10

A = TypeVar("A")


class NoScheduler(LinguaError):
    """Nobody answers at the address."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(f"no scheduler answers at {url} ({why}): start one with `lingua serve`")


class NotTrusted(LinguaError):
    """Somebody answers, with a certificate that nobody vouches for."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(
            f"the certificate of {url} is not trusted here ({why}): give the service's own with "
            f"--ca FILE or ${CA_VARIABLE}"
        )


class SchedulerRefused(LinguaError):
    """The scheduler answered, but not with what was asked for."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        hint = ""
        if status == 401:
            hint = f"; give it with --token or ${TOKEN_VARIABLE}"
        super().__init__(f"the scheduler refused: {message} ({code}){hint}")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A running instance and how it is asked."""

    url: str
    token: str | None
    tls: ssl.SSLContext | None = None

    def get(self, path: str, kind: type[A], **query: str | int) -> A:
        """Return what a path answers."""
        asked = f"?{urlencode(query)}" if query else ""
        return self._send(f"{path}{asked}", kind, None)

    def post(self, path: str, kind: type[A], body: Mapping[str, Any]) -> A:
        """Act, and return what came of it."""
        return self._send(path, kind, msgspec.json.encode(body))

    @property
    def sockets(self) -> str:
        """Return the address its clients and nodes use."""
        return self.url.replace("http", "ws", 1)

    def _send(self, path: str, kind: type[A], body: bytes | None) -> A:
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self.url}{path}", body, headers)  # noqa: S310 checked
        try:
            with _opener(self.tls).open(request, timeout=PATIENCE_S) as answer:
                data = answer.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.status or 0, error.read(ANSWER_BYTES_MAX)) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise NotTrusted(self.url, error.reason.verify_message) from None
            raise NoScheduler(self.url, _why(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise NoScheduler(self.url, _why(error)) from None
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError:
            raise NoScheduler(self.url, "what listens there is something else") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the answer becomes an error."""


def add_options(
    parser: argparse.ArgumentParser, url_help: str = URL_HELP, *, is_nested: bool = False
) -> None:
    """Add the options of commands that ask a scheduler.

    A nested parser has no defaults, because they would undo what was given before its name.
    """
    default: Any = argparse.SUPPRESS if is_nested else None
    parser.add_argument("--url", default=default, help=url_help)
    parser.add_argument(
        "--token", default=default, metavar="T",
        help=f"client token of scope admin, if keys are set (default: ${TOKEN_VARIABLE})",
    )  # fmt: skip
    add_ca(parser, default)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS if is_nested else False,
        help="print JSON rather than tables",
    )  # fmt: skip


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that bounds a list."""
    parser.add_argument(
        "--limit", type=_at_least_one, default=PAGE, metavar="N",
        help=f"show at most so many (default: {PAGE})",
    )  # fmt: skip


def scheduler_of(args: argparse.Namespace) -> Scheduler:
    """Return the scheduler that a command line names."""
    token = args.token or os.environ.get(TOKEN_VARIABLE) or None
    if args.url:
        return Scheduler(_checked(args.url), token, tls_of(args.ca))
    server = load_settings(args.config, os.environ).server
    # A certificate of one's own making is trusted by who has the settings that name it.
    own = Path(server.tls_cert_file) if server.tls_cert_file else None
    return Scheduler(_url_of(server), token, tls_of(args.ca or own))


def id_path(kind: str, name: str) -> str:
    """Return the path of one thing."""
    return f"/api/v1/{kind}/{quote(name, safe='')}"


def age_text(age_ms: float) -> str:
    """Return an age as people say it: `3s`, `12m`, `5h`, `2d`."""
    seconds = int(age_ms // 1000)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def short(name: str) -> str:
    """Return the beginning of a long id; `--json` has all of it."""
    return name if len(name) <= SHORT_CHARS + 2 else name[:SHORT_CHARS]


def count_text(count: int, one: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _url_of(server: Server) -> str:
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
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got: {text!r}")
    return int(text)


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    https = urllib.request.HTTPSHandler(context=tls)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https, _NoRedirects)


def _refused(status: int, data: bytes) -> SchedulerRefused:
    try:
        trouble = msgspec.json.decode(data, type=ErrorAnswer).error
    except msgspec.MsgspecError:
        return SchedulerRefused(status, f"HTTP {status}", "an answer of another server")
    return SchedulerRefused(status, trouble.code, trouble.message)


def _why(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    text = reason.strerror if isinstance(reason, OSError) else None
    return (text or str(reason)).lower()[:100]
