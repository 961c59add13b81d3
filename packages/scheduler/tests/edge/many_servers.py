"""Several schedulers over one store, in one process, and everyone connected to them.

A `Company` has instances by name: each is started, crashes, falls silent, drains or is stopped by
itself, and the store under all of them can be killed, frozen, emptied or put back. `Traveller` is
a client over several sockets as the protocol asks: it keeps what was not acknowledged and knows
where it stands. A scenario is a coroutine that gets the company; see `play`.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from edge.live_server import JSON, QUICK, SCENARIO_S, Message, NewClient, Stage, until
from lingua_scheduler.state.keys import Cell, InstanceKeys
from servers import AOF, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from edge.live_server import Client, Node
    from lingua_scheduler.metrics import LiveMetrics

# Deaths and lost letters are noticed soon; each beat is a fifth of the silence.
BRISK = {"instances__silence_ms": 500}
# A store that is there and does not answer is noticed soon, too.
FREEZING = {"redis__call_timeout_ms": 1000, "redis__connect_timeout_ms": 1000}
OUTCOMES = ("translation_result", "missing_result")
PREFIX = "lingua"


def play(
    scenario: Callable[[Company], Coroutine[Any, Any, None]],
    names: str = "AB",
    *,
    keeps: bool = False,
    **settings: object,
) -> None:
    """Run a scenario with instances of these names; no error may have gone unhandled in any.

    With `keeps` the store has its data again after a restart.
    """

    async def whole(directory: Path) -> None:
        store = Server(directory / "store", port=None, unix=True, extra=AOF if keeps else ())
        company = Company(directory, store, settings)
        try:
            store.start()
            async with asyncio.timeout(SCENARIO_S), company:
                for name in names:
                    await company.start(name)
                await scenario(company)
                company.check()
        finally:
            store.kill()

    with (
        tempfile.TemporaryDirectory(prefix="lingua-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(whole(Path(directory)))


class Company:
    """Instances that share a store."""

    def __init__(self, directory: Path, store: Server, settings: dict[str, Any]) -> None:
        self._directory = directory
        self.store = store
        self._settings = settings
        self._instances: dict[str, Member] = {}
        # Those that ended: their peers are closed and their errors looked at with the others'.
        self._former: list[Member] = []

    async def __aenter__(self) -> Company:
        return self

    async def __aexit__(self, *error: Any) -> None:
        for member in (*self._former, *self._instances.values()):
            await member.__aexit__(*error)

    def __getitem__(self, name: str) -> Member:
        return self._instances[name]

    async def start(self, name: str, **more: object) -> Member:
        """Start an instance; under the name of one that ended it is its successor."""
        if name in self._instances:
            self._former.append(self._instances.pop(name))
        shared = {
            **BRISK, "deployment_mode": "cross_instance", "instance_id": name,
            "redis__url": f"unix://{self.store.address.path}",
        }  # fmt: skip
        own = {**self._settings, **more}
        settings = {**QUICK, **shared, **own}
        member = Member(str(self._directory / name), settings)
        self._instances[name] = member
        await member.__aenter__()
        return member

    def check(self) -> None:
        """Fail if anything went wrong in an instance that nobody handled."""
        for member in (*self._former, *self._instances.values()):
            assert member.server.instance.metrics.instance.internal_errors_total.value == 0

    async def until_met(self) -> None:
        """Wait until every instance knows that all the others are there."""
        members = list(self._instances.values())

        def knows_all(member: Member) -> bool:
            view = member.server.instance.peers.presence.view
            return view is not None and len(view.alive) >= len(members)

        await until(lambda: all(knows_all(member) for member in members), "all have met")

    # The store

    def ask(self, *words: str | bytes | int) -> Any:
        """Send the store one command."""
        return self.store.ask(*words)

    def key(self, family: str, rest: str = "") -> str:
        """Return the name of a key in the one cell."""
        return Cell(PREFIX, 0).key(family, rest)

    def inbox(self, name: str) -> bytes:
        """Return the key of an instance's inbox."""
        return InstanceKeys(PREFIX, name).inbox

    def field(self, family: str, rest: str, field: str) -> str:
        """Return one field of a record, '' if it is not there."""
        return str((self.ask("HGET", self.key(family, rest), field) or b"").decode())

    def outbox_length(self, session: str) -> int:
        """Return how many outcomes are kept for a session."""
        return int(self.ask("LLEN", self.key("outbox", session)))

    def leases(self) -> list[bytes]:
        """Return every lease there is."""
        found: list[bytes] = []
        for key in self.ask("KEYS", self.key("leases", "*")):
            found += self.ask("ZRANGE", key, 0, -1)
        return found

    def save(self) -> Path:
        """Copy what the store has on disk now; only one that `keeps` has anything there."""
        copy = self._directory / "saved"
        shutil.copytree(self.store.directory, copy, ignore=_ignore_sockets)
        return copy

    def put_back(self, copy: Path) -> None:
        """Let the killed store start from a copy: whatever it wrote since is lost."""
        for part in copy.iterdir():
            target = self.store.directory / part.name
            if part.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(part, target)
            elif part.name != "server.log":
                shutil.copy(part, target)


class Member(Stage):
    """One instance of a company with its peers."""

    is_serving = False

    async def start_server(self) -> None:
        """Serve."""
        await super().start_server()
        self.is_serving = True

    async def newcomer(self, form: str = JSON) -> NewClient:
        """Return a client that has said nothing yet."""
        client: NewClient = await self._enter(
            NewClient(await self.connect("/ws/session", form), form)
        )
        return client

    async def fall_silent(self) -> None:
        """Stop every loop, as SIGSTOP does: no beat, no letter read; its sockets are there."""
        self.server.loops.cancel()
        await asyncio.gather(self.server.loops, return_exceptions=True)

    async def crash(self) -> None:
        """End as kill -9 does: sockets break, and nobody is told anything."""
        instance, front = self.server.instance, self.server.front
        await self.fall_silent()
        await instance.tasks.end()
        await instance._connection.close()
        front.stop_accepting()
        for wire in tuple(front.websockets):
            wire.abort()
        await self._server.aclose()
        self.is_serving = False

    async def drain(self) -> bool:
        """Drain as SIGTERM does, then end in good order."""
        is_done = await self.server.drain()
        await self._server.aclose()
        self.is_serving = False
        return is_done

    async def status(self, path: str) -> int:
        """Return how it answers an HTTP request."""
        async with self._http.get(f"{self.server.url}{path}") as response:
            return response.status


def metric_named(metrics: LiveMetrics, name: str) -> Any:
    """Return a metric by its name without the prefix, whichever group it is in."""
    groups = [vars(group) for group in vars(metrics).values() if hasattr(group, "__dict__")]
    (found,) = [group[name] for group in groups if name in group]
    return found


class Traveller:
    """One session over several sockets, on whichever instances."""

    def __init__(self, company: Company) -> None:
        self._company = company
        self.sockets: list[NewClient] = []
        # Every chunk that was said, at its number.
        self.said: list[tuple[bytes, bool]] = []

    @classmethod
    async def at(cls, company: Company, name: str, **init: Any) -> Traveller:
        """Open a session on an instance."""
        traveller = cls(company)
        traveller.sockets.append(await company[name].client(**init))
        return traveller

    @property
    def socket(self) -> NewClient:
        return self.sockets[-1]

    @property
    def id(self) -> str:
        return self.sockets[0].id

    @property
    def heard(self) -> list[Message]:
        """Return everything that came over all sockets."""
        return [message for socket in self.sockets for message in socket.heard]

    @property
    def position(self) -> tuple[str, int]:
        """Return epoch and number of the last outcome."""
        epoch, seq = self.sockets[0].ack["epoch"], 0
        for message in self.heard:
            if message["type"] == "session_reset" or message.get("reset"):
                epoch, seq = message["epoch"], 0
            elif message["type"] in OUTCOMES and message["epoch"] == epoch:
                seq = max(seq, message["seq"])
        return epoch, seq

    @property
    def acknowledged(self) -> tuple[int, int]:
        """Return the last chunk that need not be kept, and where in the audio it ends."""
        last, at_ms = -1, 0
        for message in self.heard:
            if message["type"] == "utterance_accepted" and message.get("last_seq", -1) > last:
                last, at_ms = message["last_seq"], message["end_ms"]
            elif message["type"] == "audio_ack" and message["seq"] > last:
                last, at_ms = message["seq"], message["audio_ms"]
        return last, at_ms

    def outcomes(self) -> list[tuple[int, str]]:
        """Return what ended each utterance, in order; on one socket nothing comes twice."""
        found: dict[tuple[str, int], tuple[int, str]] = {}
        for socket in self.sockets:
            told = [message for message in socket.heard if message["type"] in OUTCOMES]
            places = [(message["epoch"], message["seq"]) for message in told]
            assert places == sorted(set(places)), f"not once and in order: {places}"
            for place, message in zip(places, told, strict=True):
                outcome = (message["utterance_index"], message.get("reason", "ok"))
                # What was on its way to a former socket may come again: it is the same.
                assert found.setdefault(place, outcome) == outcome
        return [found[place] for place in sorted(found)]

    async def say(self, audio: bytes, *, is_final: bool = False) -> None:
        """Send one chunk and keep it."""
        self.said.append((audio, is_final))
        await self._send(len(self.said) - 1)

    async def _send(self, seq: int) -> None:
        audio, is_final = self.said[seq]
        await self.socket.ask("audio_chunk", seq=seq, is_final=is_final, payload=audio)

    def claim(self, **changes: Any) -> Message:
        """Return what it says when it comes back."""
        epoch, seq = self.position
        last, at_ms = self.acknowledged
        return {
            "session_id": self.id, "resume_token": self.sockets[0].ack["resume_token"],
            "epoch": epoch, "last_seq": seq, "next_audio_seq": last + 1, "audio_ms": at_ms,
        } | changes  # fmt: skip

    async def come_back(self, name: str, **changes: Any) -> Message:
        """Go on at an instance: send again what is asked for; returns the answer."""
        claim = self.claim(**changes)
        socket = await self._company[name].newcomer()
        socket.id = self.id
        await socket.send("session_resume", **claim)
        answer = await socket.follows("session_resumed", session_id=self.id)
        self.sockets.append(socket)
        wanted = answer.get("next_audio_seq")
        for seq in range(claim["next_audio_seq"] if wanted is None else wanted, len(self.said)):
            await self._send(seq)
        return answer

    async def attached(self) -> None:
        """Wait until its messages are handled: `session_resumed` is sent before the store was read.

        A store that is lost in between ends the resume, and the client must try once more.
        """
        await self.socket.ask("client_heartbeat", timestamp=0)
        await self.socket.expect("server_heartbeat", session_id=self.id)

    async def refused(self, name: str, **changes: Any) -> str:
        """Try to go on at an instance; returns why it cannot."""
        socket = await self._company[name].newcomer()
        await socket.send("session_resume", **self.claim(**changes))
        answer = await socket.follows("resume_rejected", session_id=self.id)
        return str(answer["reason"])


def spoken(nodes: Iterable[Node], session: str) -> bytes:
    """Return the audio that nodes got of a session, in order; attempts of one job are the same."""
    heard: dict[int, bytes] = {}
    for node in nodes:
        for job in node.jobs:
            if job["session_id"] == session:
                audio = base64.b64decode(job["audio"])
                assert heard.setdefault(job["utterance_index"], audio) == audio
    return b"".join(heard[index] for index in sorted(heard))


def attempts(nodes: Iterable[Node]) -> list[int]:
    """Return the attempts of the jobs that nodes were given, each attempt of a job once."""
    return sorted(
        attempt
        for _, attempt in {
            (job["job_id"], job["attempt_id"]) for node in nodes for job in node.jobs
        }
    )


async def heard_all(client: Client | Traveller, count: int) -> None:
    """Wait until a client has so many outcomes."""
    await until(lambda: len(client.outcomes()) >= count, f"{count} outcomes")


def _ignore_sockets(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".sock")]
