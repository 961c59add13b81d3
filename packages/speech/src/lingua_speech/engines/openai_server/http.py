"""One connection to a speech server: kept open, bounded in time and size, with typed errors.

Requests block, because an engine has a process of its own, but check the watch while they wait. A
request is repeated once, and only if the kept connection was closed before any answer arrived.
Redirects are never followed, so the key reaches no other host.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import ssl
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lingua_speech.engine import EngineError, ModelMissing
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lingua_speech.engine import Watch

SMALL_BYTES: Final = 4 << 20
CHUNK_BYTES: Final = 64 << 10
CONNECT_S: Final = 10.0
# How often a waiting request checks whether its answer is still wanted.
POLL_S: Final = 0.1
# The length of a server's own message in an error text.
QUOTED_CHARS: Final = 200
JSON: Final = "application/json"

# The errors of a lost connection, and of one that the server closed while it was idle.
LOST: Final = (http.client.HTTPException, OSError)
DROPPED: Final = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)

REFUSED: Final = {
    401: "the key is refused",
    403: "the key is refused",
    404: "the server has no such model or path",
}
OVERLOADED: Final = frozenset({429, 503})


class RequestRefused(EngineError):
    """The server answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        super().__init__(code, message)


class ApiConnection:
    """Sends requests to one server, one after the other."""

    def __init__(self, url: str, key: str, timeout_s: float, *, allow_plain: bool = False) -> None:
        parts = _parts(url)
        if key and parts.scheme == "http" and not (allow_plain or _is_local(parts.hostname or "")):
            raise ConfigError(
                "engines", "the key would be sent unencrypted: use https://, or plain=yes"
            )
        # Always with a port: without one, an IPv6 address would be parsed as HOST:PORT.
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._root = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._key = key
        self._timeout_s = timeout_s
        # Kept open between requests; None until the first, and after any failure.
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, path: str, request: Any, watch: Watch) -> Any:
        """Send JSON and return the JSON of the answer."""
        body = json.dumps(request, ensure_ascii=False).encode()
        return self.read(self.post(path, body, JSON, watch))

    def post(
        self, path: str, body: bytes, kind: str, watch: Watch, most_bytes: int = SMALL_BYTES
    ) -> bytes:
        """Send a request and return the body of its answer."""
        deadline = time.monotonic() + self._timeout_s
        watch.check()
        is_kept = self._connection is not None
        try:
            try:
                response = self._sent(path, body, kind, (watch, deadline))
            except DROPPED:
                if not is_kept:
                    raise
                self.close()
                response = self._sent(path, body, kind, (watch, deadline))
            content = self._content(response, most_bytes, (watch, deadline))
        except LOST as error:
            self.close()
            raise EngineError("PROCESSING_ERROR", f"{self._host}: {_describe(error)}") from error
        except EngineError:
            # The answer may still arrive on this connection, so it cannot be used again.
            self.close()
            raise
        if response.will_close:
            self.close()
        return self._checked(response, content)

    def read(self, content: bytes) -> Any:
        """Parse an answer that must be JSON."""
        try:
            return json.loads(content)
        except ValueError as error:
            message = f"the answer of {self._host} is not JSON"
            raise EngineError("PROCESSING_ERROR", message) from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _sent(
        self, path: str, body: bytes, kind: str, until: tuple[Watch, float]
    ) -> http.client.HTTPResponse:
        connection = self._connection or self._opened()
        headers = {"Content-Type": kind, "Accept": "*/*", "User-Agent": "lingua-scheduler"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(max(POLL_S, until[1] - time.monotonic()))
        connection.request("POST", self._root + path, body, headers)
        connection.sock.settimeout(POLL_S)
        connection.response_class = _response(until)  # type: ignore[assignment]
        return connection.getresponse()

    def _opened(self) -> http.client.HTTPConnection:
        connect_s = min(CONNECT_S, self._timeout_s)
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=connect_s)
        else:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=connect_s, context=self._tls
            )
        self._connection = connection
        return connection

    def _content(
        self, response: http.client.HTTPResponse, most_bytes: int, until: tuple[Watch, float]
    ) -> bytes:
        watch, deadline = until
        content = bytearray()
        while chunk := response.read1(CHUNK_BYTES):
            content += chunk
            if len(content) > most_bytes:
                raise EngineError("PROCESSING_ERROR", f"the answer of {self._host} is too large")
            if time.monotonic() > deadline:
                raise TimeoutError("the answer takes too long")
            watch.check()
        if response.length:
            raise http.client.IncompleteRead(bytes(content), response.length)
        # The answer was read to its end; closing it frees the connection for the next request.
        response.close()
        return bytes(content)

    def _checked(self, response: http.client.HTTPResponse, content: bytes) -> bytes:
        status = response.status
        if status == 200:
            return content
        words = _server_message(content, self._key)
        if 300 <= status < 400:
            where = (response.getheader("Location") or "")[:QUOTED_CHARS]
            message = f"{self._host} redirects to {where!r}, which is not followed: set url="
            raise RequestRefused(status, "MODEL_NOT_AVAILABLE", message)
        if status in REFUSED:
            message = f"{self._host}: {REFUSED[status]} ({status}): {words}"
            raise RequestRefused(status, "MODEL_NOT_AVAILABLE", message)
        code = "NODE_OVERLOADED" if status in OVERLOADED else "PROCESSING_ERROR"
        raise RequestRefused(status, code, f"{self._host} answered {status}: {words}")


def key_of(variable: str) -> str:
    """Read the key from an environment variable; without a variable there is no key."""
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ModelMissing(f"the environment variable {variable} (key_env) is not set")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelMissing(f"the environment variable {variable} (key_env) is not a valid key")
    return key


class _Watched(io.RawIOBase):
    """A socket as a file to read, which checks the watch and the deadline while it waits."""

    def __init__(self, sock: socket.socket, until: tuple[Watch, float]) -> None:
        super().__init__()
        self._socket = sock
        self._until = until
        # Not read from, because it would fail at the first timeout; it keeps the socket open.
        self._hold = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        watch, deadline = self._until
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError("no answer in time")
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                watch.check()

    def close(self) -> None:
        self._hold.close()
        super().close()


def _response(until: tuple[Watch, float]) -> Callable[..., http.client.HTTPResponse]:
    """Return a factory of responses that are read through `_Watched` from the first byte."""

    def made(sock: socket.socket, *words: Any, **options: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, *words, **options)
        response.fp.close()
        response.fp = io.BufferedReader(_Watched(sock, until))
        return response

    return made


def _parts(url: str) -> Any:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    try:
        is_good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username:
        # The URL is not quoted, because it may contain a password or a key.
        raise ConfigError("engines", "url= is not like https://host/v1 (no user, ? or # in it)")
    return parts


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _server_message(content: bytes, key: str) -> str:
    """Return the server's message of an error, with the key masked if it is quoted."""
    try:
        found = json.loads(content)["error"]
        words = str(found["message"] if isinstance(found, dict) else found)
    except (ValueError, KeyError, TypeError):
        words = content[: 4 * QUOTED_CHARS].decode("utf-8", "replace")
    shown = " ".join((words.replace(key, "...") if key else words).split())
    return shown[:QUOTED_CHARS] or "no reason"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
