"""Requests over sockets that are sent again in flight, after delivery, after moves, elsewhere.

Two instances, one tenant. Each speaker has a session that goes from one instance to the other, and
a second session on the other one, as a client has that lost the first and does not know what came
of it. Every request is sent by both, several times and at the same time.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import JSON, Message, NewNode, pcm16, until
from edge.locked import LOCKED, client_token, node_token
from edge.many_servers import Company, Traveller, play
from lingua_scheduler.state.records import job_id_of, request_scope

if TYPE_CHECKING:
    from edge.live_server import Client

pytestmark = pytest.mark.stress

SPEAKERS, REQUESTS = 10, 20
TENANT = "acme"
ROOMY: dict[str, Any] = {
    "sessions__utterances_per_s_max": 1000, "sessions__backlog_max": 64, "jobs__in_flight_max": 32,
    "instances__silence_ms": 20_000,
}  # fmt: skip


def audio_of(speaker: int, number: int) -> bytes:
    return pcm16(100, bytes([speaker + 1])) + bytes([number, 0])


def text_of(audio: bytes) -> str:
    return f"{audio[0] - 1}/{audio[-2]}"


class Worker(NewNode):
    """A node that answers every job after a while, in any order."""

    _chance = Random(7)

    async def do(self, job: Message) -> None:
        self.tasks.append(asyncio.create_task(self._do(job)))

    @cached_property
    def tasks(self) -> list[asyncio.Task[None]]:
        return []

    async def _do(self, job: Message) -> None:
        await asyncio.sleep(self._chance.random() / 5)
        await self.answer(job, text_of(base64.b64decode(job["audio"])))


class Speaker:
    """A client with two sessions that says everything again and again."""

    def __init__(self, company: Company, number: int) -> None:
        self._company = company
        self._number = number
        self._chance = Random(number)
        self.sent = 0
        self.first: Traveller
        self.second: Client

    async def run(self) -> None:
        here, there = "AB" if self._number % 2 else "BA"
        token = client_token(tenant=TENANT)
        self.first = await Traveller.at(self._company, here, token=token)
        self.second = await self._company[there].client(token=token)
        for number in range(REQUESTS):
            sockets = [self.first.socket, self.first.socket, self.second]
            self._chance.shuffle(sockets)
            await asyncio.gather(*(self._say(socket, number) for socket in sockets))
            if number % 7 == 6:
                here, there = there, here
                # Jobs are under way; a place that was not told could be given to nobody.
                await until(
                    lambda said=number: len(self._accepted()) == said + 1, "all is accepted"
                )
                await self.first.come_back(here, token=token)
            await asyncio.sleep(self._chance.random() / 20)
            # One that is under way, or was delivered, here or by the former owner.
            await self._say(self.first.socket, self._chance.randint(0, number))
        for client in (self.first, self.second):
            await until(lambda client=client: len(answers(client)) == REQUESTS, "all is answered")

    def _accepted(self) -> set[int]:
        told = (m for m in self.first.heard if m["type"] == "utterance_accepted")
        return {message["utterance_index"] for message in told}

    async def _say(self, socket: Client, number: int) -> None:
        self.sent += 1
        name = f"r-{self._number}-{number}"
        await socket.utter(number, audio_of(self._number, number), request_id=name)


def answers(client: Client | Traveller) -> dict[str, set[tuple[str, int]]]:
    """Return what a session was told: text -> the jobs that gave it, and the indices it had."""
    found: dict[str, set[tuple[str, int]]] = {}
    for message in client.heard:
        if message["type"] == "translation_result":
            place = (message["job_id"], message["utterance_index"])
            found.setdefault(message["text_asr"], set()).add(place)
    return found


def test_a_request_is_one_job_and_one_answer_however_often_it_is_sent() -> None:
    tally: Counter[str] = Counter()

    async def scenario(company: Company) -> None:
        member = company["A"]
        node: Worker = await member._enter(Worker(await member.connect("/ws/node", JSON), JSON))
        await node.enter("node-a", token=node_token("node-a"), max_jobs=64)
        await member.until_ready(node)
        node.work()
        speakers = [Speaker(company, number) for number in range(SPEAKERS)]
        async with asyncio.TaskGroup() as tasks:
            for speaker in speakers:
                tasks.create_task(speaker.run())
        jobs = Counter(job["job_id"] for job in node.jobs)
        for number, speaker in enumerate(speakers):
            told = answers(speaker.first), answers(speaker.second)
            for request in range(REQUESTS):
                name = job_id_of(request_scope(TENANT, ""), f"r-{number}-{request}")
                # In each session under one index, from the one job.
                for one in told:
                    assert one[f"{number}/{request}"] == {(name, request)}
            for client in (speaker.first, speaker.second):
                assert not [m for m in client.heard if m["type"] in ("missing_result", "error")]
            coverage = (await speaker.first.socket.bye())["coverage"]
            assert coverage["admitted_ms"] == coverage["delivered_ms"] == 100 * REQUESTS
            tally["sent"] += speaker.sent
        tally["jobs"], tally["attempts"] = len(jobs), jobs.total()

    play(scenario, **LOCKED, **ROOMY)
    print(f"\n{SPEAKERS * REQUESTS} requests sent {tally['sent']} times: {tally['jobs']} jobs")
    assert tally["jobs"] == tally["attempts"] == SPEAKERS * REQUESTS
