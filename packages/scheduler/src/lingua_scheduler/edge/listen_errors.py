"""Explains why a scheduler cannot listen on its address, in one line with a remedy."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.request
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.edge.answers import HealthAnswer
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable

# The other server is on this machine: a scheduler responds at once.
ANSWER_S = 1.0
ANSWER_BYTES_MAX = 1 << 16
PRIVILEGED_BELOW = 1024


class AddressUnusable(LinguaError):
    """The address to listen on cannot be used."""

    def __init__(self, host: str, port: int, why: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"cannot listen on {_shown(host, port)}: {why}")


async def explain_listen_error(host: str, port: int, error: OSError) -> AddressUnusable:
    """Return the error with the cause and a remedy."""
    if error.errno == errno.EADDRINUSE:
        other = await asyncio.to_thread(_current_listener, host, port)
        why = f"{other}; give this one another port: --port {port + 1}, or --port 0 for a free one"
        return AddressUnusable(host, port, why)
    explain = _EXPLANATIONS.get(error.errno or 0)
    if isinstance(error, socket.gaierror) or explain is None:
        what = error.strerror or str(error)
        return AddressUnusable(host, port, f"{what}; --host names an address of this machine")
    return AddressUnusable(host, port, explain(port))


def _no_such_address(_: int) -> str:
    return "this machine has no such address; --host 127.0.0.1 is for this machine alone"


def _not_allowed(port: int) -> str:
    low = " below 1024" if port < PRIVILEGED_BELOW else ""
    return f"this user may not listen on a port{low}; choose another with --port"


_EXPLANATIONS: dict[int, Callable[[int], str]] = {
    errno.EADDRNOTAVAIL: _no_such_address,
    errno.EACCES: _not_allowed,
    errno.EPERM: _not_allowed,
}


def _current_listener(host: str, port: int) -> str:
    """Describe the program that uses the port; a scheduler reports its instance name."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 not listened on here
    for scheme in ("http", "https"):
        if instance := instance_at(f"{scheme}://{_shown(near, port)}/health"):
            return f"a scheduler listens there already, instance {instance}"
    return "another program listens there"


def instance_at(url: str) -> str:
    """Return the instance name of the scheduler at a URL, empty if there is none."""
    # Its certificate is not checked: it gets no data, and only its name is used.
    unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001
    https = urllib.request.HTTPSHandler(context=unchecked)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 ours
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            data = answer.read(ANSWER_BYTES_MAX)
        return msgspec.json.decode(data, type=HealthAnswer).instance
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return ""


def _shown(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}"
