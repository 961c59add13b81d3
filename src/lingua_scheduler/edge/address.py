"""Why a scheduler cannot listen where it should, in one line that says what to do about it."""

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
from lingua_scheduler.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable

# Who is asked is on this machine: an answer is there at once, or it is none of ours.
ANSWER_S = 1.0
ANSWER_BYTES_MAX = 1 << 16
PRIVILEGED_BELOW = 1024


class AddressUnusable(LinguaError):
    """The address to listen on cannot be had."""

    def __init__(self, host: str, port: int, why: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"cannot listen on {_shown(host, port)}: {why}")


async def unusable(host: str, port: int, error: OSError) -> AddressUnusable:
    """Return the error that tells why, and what to do."""
    if error.errno == errno.EADDRINUSE:
        who = await asyncio.to_thread(_who_listens, host, port)
        why = f"{who}; give this one another port: --port {port + 1}, or --port 0 for a free one"
        return AddressUnusable(host, port, why)
    tell = _TOLD.get(error.errno or 0)
    if isinstance(error, socket.gaierror) or tell is None:
        what = error.strerror or str(error)
        return AddressUnusable(host, port, f"{what}; --host names an address of this machine")
    return AddressUnusable(host, port, tell(port))


def _no_such_address(_: int) -> str:
    return "this machine has no such address; --host 127.0.0.1 is for this machine alone"


def _not_allowed(port: int) -> str:
    low = " below 1024" if port < PRIVILEGED_BELOW else ""
    return f"this user may not listen on a port{low}; choose another with --port"


_TOLD: dict[int, Callable[[int], str]] = {
    errno.EADDRNOTAVAIL: _no_such_address,
    errno.EACCES: _not_allowed,
    errno.EPERM: _not_allowed,
}


def _who_listens(host: str, port: int) -> str:
    """Say who has the port: a scheduler tells its name, which has its process id."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 not listened on here
    for scheme in ("http", "https"):
        if instance := instance_at(f"{scheme}://{_shown(near, port)}/health"):
            return f"a scheduler listens there already, instance {instance}"
    return "another program listens there"


def instance_at(url: str) -> str:
    """Return the name of the scheduler that answers there, empty if none does."""
    # Its certificate is not looked at: it is told nothing, and believed nothing but its name.
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
