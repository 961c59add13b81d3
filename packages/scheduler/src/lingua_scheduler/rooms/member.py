"""What rooms need of sessions and of other instances; the runtime provides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released
    from lingua_wire.to_client import ToClient


class MemberRecord(Protocol):
    """What identifies a session, and the state it is in."""

    @property
    def id(self) -> str:
        """Return the session's id."""

    @property
    def home(self) -> Cell:
        """Return the cell of the session."""

    @property
    def tenant(self) -> str:
        """Return the tenant of the session."""

    @property
    def fence(self) -> int:
        """Return the number of this owner."""

    @property
    def is_resumable(self) -> bool:
        """Tell whether its client may come back."""

    @property
    def is_disconnected(self) -> bool:
        """Tell whether its client's socket is lost and may come back."""

    @property
    def is_closing(self) -> bool:
        """Tell whether accepted speech is being finished before the session ends."""

    @property
    def is_over(self) -> bool:
        """Tell whether it ended or another instance owns it."""


class MemberNotifier(Protocol):
    """The way to a member's client."""

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that large messages should wait."""

    def send(self, message: ToClient) -> None:
        """Send a message."""


class MemberInput(Protocol):
    """The speech of a member."""

    def cut_here(self) -> None:
        """End the utterance here: what follows may have another audience."""

    async def until_addressed(self) -> None:
        """Wait until the audience of everything that was cut is known."""

    async def until_taken(self) -> None:
        """Wait until the store has answered for everything that was cut."""


class MemberSession(Protocol):
    """A session of this instance, as rooms see it."""

    @property
    def record(self) -> MemberRecord:
        """Return what identifies it."""

    @property
    def notifier(self) -> MemberNotifier:
        """Return the way to its client."""

    @property
    def input(self) -> MemberInput:
        """Return its speech."""


class OutcomeListener(Protocol):
    """A session that receives outcomes of others."""

    def deliver(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver released outcomes in the order of their positions."""


class RoomWatcher(Protocol):
    """Those here who follow rooms without being members."""

    def room_changed(self, code: str) -> None:
        """Note that a room changed or ended."""

    def verify(self) -> None:
        """Note that the store may have lost what it knew of them."""


class PeerLink(Protocol):
    """The way to other instances."""

    @property
    def instance(self) -> str:
        """Return the id of this instance."""

    def write(self, to: str, message: PeerMessage) -> None:
        """Send a message that may be lost."""

    async def send(self, to: str, message: PeerMessage) -> bool:
        """Send a message; False if that instance has no inbox."""
