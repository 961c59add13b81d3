"""The connection to a cluster: one steady link per master, each call routed by its slot.

The slot map comes from CLUSTER SLOTS. It is corrected by every MOVED reply and fetched anew, by
one background task at a bounded rate, after a redirect and while any master is unreachable. That is
how a failover is followed. Calls go to masters only; nothing is read from a replica.
"""

from __future__ import annotations

import asyncio
import random
import re
from binascii import crc_hqx
from typing import TYPE_CHECKING, Any

from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.connection import LONGEST_BLOCK_MS
from lingua_scheduler.state.link import Address, StoreLink, refuse
from lingua_scheduler.state.single import CallingConnection, SteadyLink, end_task, jittered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_scheduler.state.calls import StoreCall
    from lingua_scheduler.state.link import LinkOptions
    from lingua_scheduler.state.script import Word

    SlotRows = list[list[Any]]

SLOT_COUNT = 16384

REDIRECT = re.compile(r"(?P<code>MOVED|ASK) (?P<slot>\d{1,5}) (?P<host>\S*):(?P<port>\d{1,5})")

# The minimal time between two fetches of the slot map.
REFRESH_PAUSE_S = 0.25


def key_slot(key: bytes | str) -> int:
    """Return the key's slot: that of its non-empty hash tag, else that of the whole key."""
    name = key.encode() if isinstance(key, str) else key
    _, opened, rest = name.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    # The cluster's CRC16 is the XMODEM variant, which the standard library has as table-driven C.
    return crc_hqx(tag if opened and closed and tag else name, 0) % SLOT_COUNT


class ClusterConnection(CallingConnection):
    """The connection to all masters of a cluster."""

    def __init__(self, seeds: Sequence[Address], options: LinkOptions) -> None:
        super().__init__(options)
        # The addresses to ask if no node of the last map answers.
        self._seeds = tuple(seeds)
        # Every node of the last map, replicas too: each of them can return the next map.
        self._nodes: set[Address] = set()
        # By slot: the link to its master, None if the last map had none.
        self._slots: list[SteadyLink | None] = [None] * SLOT_COUNT
        # All links in use: the masters of the map, and targets of redirects.
        self._links: dict[Address, SteadyLink] = {}
        # Links to nodes that are not masters any more; closed after their last reply.
        self._retired: list[SteadyLink] = []
        self._refresh_wanted = asyncio.Event()
        self._surveyor: asyncio.Task[None] | None = None
        # Why there may be no map: the error of the last failed fetch.
        self._problem = "not connected yet"
        self._is_closed = False

    @classmethod
    async def open(cls, addresses: Sequence[Address], options: LinkOptions) -> ClusterConnection:
        """Fetch the slot map from the first address that has it and connect to all masters.

        A master that cannot be reached does not fail this; its slots are unavailable for now.
        """
        connection = cls(addresses, options)
        try:
            await connection._open()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def dedicated(self, slot: int, longest_block_ms: int = LONGEST_BLOCK_MS) -> StoreLink:
        """Open a separate connection to the slot's master; the caller closes it.

        When the slot moves or the master is demoted, reads on it fail with StoreUnavailable. The
        caller then closes it and requests another one.
        """
        steady = self._slots[slot]
        if steady is None or self._is_closed:
            raise self._no_master(slot)
        try:
            return await self._open_dedicated(
                steady.address, longest_block_ms, self._answer_dedicated
            )
        except StoreUnavailable:
            self._refresh_wanted.set()
            raise

    async def every_master(self, *words: Word) -> list[Any]:
        """Send a keyless command to each master that owns slots and return all replies."""
        replies = [self.command(slot, *words) for slot in self.masters()]
        await asyncio.wait(replies)
        return [reply.result() for reply in replies]

    def masters(self) -> list[int]:
        """Return a slot of each master that owns slots."""
        # Any slot of a master routes to it, also when the call must be retried.
        slot_of = {steady: slot for slot, steady in enumerate(self._slots) if steady is not None}
        if not slot_of:
            raise StoreUnavailable(self._where, self._problem)
        return list(slot_of.values())

    async def close(self) -> None:
        """Fail pending calls and end all tasks and sockets."""
        self._is_closed = True
        self._problem = "closed by this process"
        self._slots = [None] * SLOT_COUNT
        for steady in self._all_links():
            steady.link.drop(self._problem)  # all at once, because a reply may open a link
        surveyor, self._surveyor = self._surveyor, None
        if surveyor is not None:
            await end_task(surveyor)
        for steady in self._all_links():
            await steady.close()
        self._fail_waiting(self._where)

    # Where a call goes.

    def _send(self, call: StoreCall) -> None:
        steady = self._slots[call.slot]
        if steady is None:
            self._refresh_wanted.set()
            call.fail(self._no_master(call.slot))
        elif steady.is_opening:
            self._wait_for_opening(steady, call)
        else:
            steady.link.submit(call)

    def _wait_for_opening(self, steady: SteadyLink, call: StoreCall) -> None:
        """Retry soon, because the link to this master is being opened."""
        if self._is_closed:
            call.fail(StoreUnavailable(self._where, self._problem))
        else:
            self._retry_later(steady.link, call, "connecting takes too long")

    def _answer_error(self, link: StoreLink, call: StoreCall, text: str) -> None:
        if text.startswith("CLUSTERDOWN "):
            self._refresh_wanted.set()
        super()._answer_error(link, call, text)

    def _answer_redirect(self, link: StoreLink, call: StoreCall, text: str) -> bool:
        if text.startswith("READONLY "):
            self._refresh_wanted.set()
            call.fail(StoreUnavailable(str(link.address), text))
            return True
        redirect = REDIRECT.fullmatch(text)
        if redirect is None:
            return False
        if int(redirect["slot"]) != call.slot:
            # To follow it would hide a caller that computes slots wrongly, at twice the cost.
            call.fail(StoreRejected(call.label, f"{text} (the call was for slot {call.slot})"))
        elif redirect["code"] == "MOVED":
            self._follow_move(link, redirect)
            if self._may_resend(link, call, text):
                self._send(call)
        else:
            self._ask(link, call, redirect)
        return True

    def _follow_move(self, link: StoreLink, redirect: re.Match[str]) -> None:
        if not self._is_closed:
            target = self._link_to(redirect_target(redirect, link.address))
            slot = int(redirect["slot"])
            if self._slots[slot] is not target:
                self._advance()
            self._slots[slot] = target
            self._refresh_wanted.set()

    def _ask(self, link: StoreLink, call: StoreCall, redirect: re.Match[str]) -> None:
        """Send the call to a node that is importing its slot, without a change of the map."""
        target = self._link_to(redirect_target(redirect, link.address))
        if target.is_opening:
            # The retry goes to the slot's master, which answers ASK again after the link is open.
            self._wait_for_opening(target, call)
        elif self._may_resend(link, call, redirect[0]):
            target.link.submit_asking(call)

    def _answer_dedicated(self, link: StoreLink, call: StoreCall, text: str) -> None:
        redirect = REDIRECT.fullmatch(text)
        if redirect is not None and redirect["code"] == "MOVED":
            self._follow_move(link, redirect)
        elif text.startswith(("READONLY ", "UNBLOCKED ")):
            self._refresh_wanted.set()
        refuse(link, call, text)

    def _link_to(self, address: Address) -> SteadyLink:
        """Return the link to the node; a new one starts to connect in the background."""
        steady = self._links.get(address)
        if steady is None:
            steady = SteadyLink(
                address,
                self._options,
                self._answer_error,
                on_down=self._refresh_wanted.set,
                on_back=self._advance,
            )
            steady.start()
            self._links[address] = steady
        return steady

    def _all_links(self) -> list[SteadyLink]:
        return [*self._links.values(), *self._retired]

    @property
    def _where(self) -> str:
        return "cluster at " + ", ".join(map(str, self._seeds))

    def _no_master(self, slot: int) -> StoreUnavailable:
        why = self._problem if self._is_closed else f"slot {slot} has no known master"
        return StoreUnavailable(self._where, why)

    # The slot map.

    async def _open(self) -> None:
        refusal = await self._refresh(self._seeds)
        if not self._links:
            raise refusal or StoreUnavailable(self._where, self._problem)
        self._surveyor = asyncio.create_task(self._survey(), name="follow the cluster's slots")
        for steady in list(self._links.values()):
            await steady.first_attempt.wait()

    async def _survey(self) -> None:
        """Fetch the map when it is needed, but not more often than the pause allows."""
        while True:
            await self._refresh_wanted.wait()
            self._refresh_wanted.clear()
            await self._refresh(self._best_sources())
            await self._close_retired()
            await asyncio.sleep(jittered(REFRESH_PAUSE_S))
            if self._retired or not all(s.link.is_connected for s in self._links.values()):
                self._refresh_wanted.set()

    def _best_sources(self) -> list[Address]:
        """Return the nodes to ask: connected ones first, each group in random order."""
        connected = [a for a, steady in self._links.items() if steady.link.is_connected]
        others = [a for a in {*self._nodes, *self._seeds} if a not in connected]
        return [*shuffled(connected), *shuffled(others)]

    async def _refresh(self, sources: Iterable[Address]) -> StoreRejected | None:
        """Apply the map of the first node that has one; return the last refusal, if any."""
        refusal = None
        for address in sources:
            try:
                rows = await self._fetch_rows(address)
            except StoreUnavailable as error:
                self._problem = str(error)
            except StoreRejected as error:
                self._problem = str(error)
                refusal = error
            else:
                if rows:
                    await self._apply(rows, address)
                    return None
                self._problem = f"{address} knows of no slots"
        return refusal

    async def _fetch_rows(self, address: Address) -> SlotRows:
        # A separate short connection: a hanging node must not delay the calls of a shared link.
        link = StoreLink(address, self._options)
        await link.connect()
        try:
            rows: SlotRows = await link.command("CLUSTER", "SLOTS")
        finally:
            await link.close()
        return rows

    async def _apply(self, rows: SlotRows, source: Address) -> None:
        slots: list[SteadyLink | None] = [None] * SLOT_COUNT
        masters = set()
        nodes = set()
        for first, last, master, *replicas in rows:
            address = node_address(master, source)
            masters.add(address)
            nodes.update([address, *(node_address(replica, source) for replica in replicas)])
            slots[first : last + 1] = [self._link_to(address)] * (last + 1 - first)
        # Not the first map, and other masters: writes acknowledged by the old ones may be lost.
        if self._nodes and slots != self._slots:
            self._advance()
        self._slots = slots
        self._nodes = nodes
        retired = [self._links.pop(address) for address in set(self._links) - masters]
        self._retired += retired
        for steady in retired:
            await steady.stop_keeping()

    async def _close_retired(self) -> None:
        for steady in [steady for steady in self._retired if steady.link.is_idle]:
            await steady.close()
            self._retired.remove(steady)


def redirect_target(redirect: re.Match[str], source: Address) -> Address:
    """Return the node that a redirect names; without a host it is the host that answered."""
    return Address(redirect["host"] or source.host, int(redirect["port"]))


def node_address(node: list[Any], source: Address) -> Address:
    """Return the address of a node in a CLUSTER SLOTS row."""
    host = node[0].decode() if node[0] else source.host
    return Address(host, node[1])


def shuffled(addresses: list[Address]) -> list[Address]:
    """Return the addresses in random order."""
    return random.sample(addresses, len(addresses))
