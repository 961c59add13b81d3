"""Where the token of a connection comes from: a fixed text, or a function of the user.

Both SDKs present a token with every connection, and a newer one when the scheduler announces that
the current token expires soon.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final

# How long a token function may take, and how soon it is called again after it failed.
TOKEN_S: Final = 10.0
TOKEN_RETRY_S: Final = 1.0

# A token, or a function, plain or async, that returns one each time it is called.
TokenSource = str | Callable[[], str | Awaitable[str]] | None

_logger = logging.getLogger(__name__)


async def fetch_token(source: TokenSource) -> str | None:
    """Return the token to present now; raises TimeoutError, or what a token function raises."""
    if not callable(source):
        return source
    given = source()
    if inspect.isawaitable(given):
        async with asyncio.timeout(TOKEN_S):
            given = await given
    return given


async def retry_token(source: TokenSource) -> str | None:
    """Return a fresh token; a token function is called until its server is available."""
    while True:
        try:
            return await fetch_token(source)
        except (OSError, TimeoutError) as error:
            _logger.warning("no token now: %s", str(error) or type(error).__name__)
            await asyncio.sleep(TOKEN_RETRY_S)
