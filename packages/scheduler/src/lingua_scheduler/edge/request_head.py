"""Parses and checks the request head of a WebSocket upgrade.

Pure functions of bytes and text: `tcp_listener.py` reads the bytes and acts. For other paths, only
the first line is read here; aiohttp parses those requests itself. Ambiguous requests (folded or
repeated headers, a body) are refused, not interpreted.
"""

from __future__ import annotations

import binascii
import ipaddress
import re
from base64 import b64decode
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADERS_MAX: Final = 100
QUERY_FIELDS_MAX: Final = 32

SINGLE_HEADERS: Final = frozenset(
    {
        "authorization",
        "content-length",
        "host",
        "origin",
        "sec-websocket-key",
        "sec-websocket-version",
    }
)
REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) ([!-~]+) (HTTP/1\.[01])")
HEADER_LINE: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)"
)
ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

WEBSOCKET_ONLY: Final = {
    "Connection": "Upgrade, close",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
}


class Refusal(LinguaError):
    """A connection is refused with this HTTP status; the reason is text for the peer."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.reason = reason
        self.headers = dict(headers or {})
        super().__init__(f"{status} {reason}")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A parsed request head; fields that may hold a token are not printed."""

    path: str
    # The first value of each query field.
    query: Mapping[str, str] = field(repr=False)
    # By lower-case name; a repeated header has its values joined by a comma.
    headers: Mapping[str, str] = field(repr=False)
    # The offered subprotocols, in the peer's order.
    subprotocols: tuple[str, ...] = field(repr=False)
    # The client's address: the socket's peer, or the one that a trusted proxy names.
    remote: str


def parse_headers(block: bytes) -> dict[str, str]:
    """Return the headers by lower-case name, or refuse ambiguous ones."""
    lines = block.split(b"\r\n") if block else []
    if len(lines) > HEADERS_MAX:
        raise Refusal(431, "too many headers")
    headers: dict[str, str] = {}
    for line in lines:
        parts = HEADER_LINE.fullmatch(line)
        if parts is None:
            raise Refusal(400, "malformed header")
        name, value = parts[1].decode("ascii").lower(), parts[2].rstrip(b" \t").decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in SINGLE_HEADERS:
            raise Refusal(400, "repeated header")
        else:
            headers[name] += f", {value}"
    return headers


def upgrade_key(request: re.Match[bytes], headers: Mapping[str, str]) -> str:
    """Return the key of a valid upgrade request, or refuse the request."""
    if request[1] != b"GET":
        raise Refusal(405, "a WebSocket is opened by GET", {"Allow": "GET"})
    if request[3] != b"HTTP/1.1" or "host" not in headers:
        raise Refusal(400, "a WebSocket needs HTTP/1.1 and a Host header")
    if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
        raise Refusal(400, "an upgrade has no body")
    upgrades = listed(headers.get("upgrade", "").lower())
    if "websocket" not in upgrades or "upgrade" not in listed(
        headers.get("connection", "").lower()
    ):
        raise Refusal(426, "only WebSockets here", WEBSOCKET_ONLY)
    if headers.get("sec-websocket-version") != "13":
        raise Refusal(426, "only WebSocket version 13 here", WEBSOCKET_ONLY)
    key = headers.get("sec-websocket-key", "")
    if not _is_websocket_key(key):
        raise Refusal(400, "bad Sec-WebSocket-Key")
    return key


def _is_websocket_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def listed(value: str) -> tuple[str, ...]:
    """Return the items of a comma-separated header."""
    return tuple(item for part in value.split(",") if (item := part.strip(" \t")))


def first_values(query: str) -> dict[str, str]:
    """Return the first value of each field of a query."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise Refusal(400, "too many query fields") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        values.setdefault(name, value)
    return values


def response_to(refusal: Refusal) -> bytes:
    """Return the complete HTTP response of a refusal."""
    body = f"{refusal.reason}\n".encode()
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **refusal.headers,
    }
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(lines)
    assert text.count("\r\n") == len(headers), "a header of a refusal has a line break"
    return text.encode("latin-1") + b"\r\n\r\n" + body


def is_origin_allowed(
    origin: str, host: str, allowed: frozenset[str], *, by_loopback: bool
) -> bool:
    """Tell whether a web page of this origin may connect.

    With an allow-list (in lower case), only origins that are literally in it. Without one, pages
    of this machine, and pages of the host and port that the request was sent to. The latter not
    for a host name on a loopback connection: any host name can be made to resolve to 127.0.0.1.
    """
    origin = origin.lower()
    if allowed:
        return origin in allowed
    parts = ORIGIN.fullmatch(origin)
    if parts is None or parts[1] not in DEFAULT_PORTS or int(parts[3] or 0) > 65535:
        return False
    name = parts[2].strip("[]")
    if name == "localhost" or is_loopback(name):
        return True
    if by_loopback and not _is_ip(name):
        return False
    default = DEFAULT_PORTS[parts[1]]
    return _host_port(parts[2], parts[3], default) == _split_host(host.lower(), default)


def _split_host(host: str, default: int) -> tuple[str, int] | None:
    # A Host header is an origin without its scheme.
    parts = ORIGIN.fullmatch(f"http://{host}")
    return _host_port(parts[2], parts[3], default) if parts is not None else None


def _host_port(name: str, port: str | None, default: int) -> tuple[str, int]:
    return name, int(port) if port else default


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Tell whether this is a loopback address; False for host names."""
    return _is_ip(name) and ipaddress.ip_address(name).is_loopback


def address_in(name: tuple[str, int] | None) -> str:
    """Return the address in a socket's name; an IPv4-mapped IPv6 address as plain IPv4."""
    return name[0].removeprefix("::ffff:") if name else ""


def client_address(peer: str, forwarded: str) -> str:
    """Return the client that a proxy has named (`X-Forwarded-For`), or the peer if it has not.

    The last name is the proxy's own. Those before it may have been written by anybody.
    """
    last = forwarded.rpartition(",")[2].strip(" \t")
    return last.removeprefix("::ffff:") if _is_ip(last) else peer


def cap_key(remote: str) -> str:
    """Return the key that one peer is counted by: an IPv4 address, or an IPv6 /64 network."""
    return ipaddress.IPv6Address(remote).packed[:8].hex() if ":" in remote else remote
