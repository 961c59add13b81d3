"""A client's socket, as a session sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lingua_wire.codec import EncodedAudio
    from lingua_wire.to_client import ToClient, TranslationResult


class Outlet(Protocol):
    """The client's socket, as a session sees it."""

    @property
    def speaks_additions(self) -> bool:
        """Tell whether the client knows the additions of this protocol."""

    @property
    def wants_events(self) -> bool:
        """Tell whether the client wants `ui_event`s."""

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages should wait."""

    def choose(self, *, speaks_additions: bool, wants_events: bool) -> None:
        """Restore what the client chose when it opened the session."""

    def send(self, message: ToClient) -> None:
        """Send one message; the socket drops a client that does not read."""

    def send_with(self, message: TranslationResult, sound: EncodedAudio) -> None:
        """Send a result whose audio is shared with other receivers."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
