"""How instances use the store: the keys they write, and the commands that a request costs."""

from __future__ import annotations

from typing import Any

import pytest

from edge.live_server import registration, until
from edge.many_servers import Company, play
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import TAGGED

pytestmark = pytest.mark.store

# Nobody is declared dead, whatever it does.
PATIENT: dict[str, Any] = {"instances__silence_ms": 20_000}


def calls(company: Company) -> int:
    """Return how many commands the store has run, those of scripts included."""
    rows = company.store.info("commandstats").items()
    return sum(
        int(row.partition("calls=")[2].partition(",")[0])
        for name, row in rows
        if name not in ("cmdstat_info", "cmdstat_ping")
    )


def test_every_key_has_the_tag_of_its_cell_or_of_its_instance_as_a_cluster_needs() -> None:
    async def scenario(company: Company) -> None:
        nodes = [await company[name].node(f"{name}-{number}") for name in "AB" for number in "12"]
        clients = [await company[name].client() for name in "ABAB"]
        for client in clients:
            await client.utter(0)
        await until(lambda: sum(len(node.jobs) for node in nodes) == 4, "all are under way")
        slots: dict[str, set[int]] = {}
        for key in company.ask("KEYS", "*"):
            found = TAGGED.search(key.decode())
            assert found is not None, key
            tag = key.decode().partition("{")[2].partition("}")[0]
            slots.setdefault(tag, set()).add(key_slot(key))
        assert all(len(of_tag) == 1 for of_tag in slots.values())
        assert {"i:A", "i:B"} < set(slots)
        assert len([tag for tag in slots if tag.startswith("c")]) > 1
        for node in nodes:
            for job in node.jobs:
                await node.answer(job)
        for client in clients:
            await client.result(0)

    play(scenario, cells=4)


def test_asking_for_a_pair_nobody_serves_costs_the_same_whatever_others_serve() -> None:
    async def scenario(company: Company) -> None:
        client = await company["A"].client("zh", "fr")
        languages = ("de", "it", "pt", "ko", "ru", "nl")
        costs = []
        tasks = company["A"].server.instance.tasks
        for number in range(len(languages) + 1):
            if number:
                lang = languages[number - 1]
                capabilities = registration(("en",), (lang,))["language_capabilities"]
                await company["A"].node(f"node-{lang}", language_capabilities=capabilities)
            # What a registration or a submission leaves to do is not the cost of another step.
            await until(lambda: not len(tasks), "nothing else is under way")
            before = calls(company)
            await client.utter(number, tgt_lang="fr")
            await client.expect("utterance_accepted", utterance_index=number)
            await until(lambda: not len(tasks), "the utterance is in the store")
            costs.append(calls(company) - before)
        # The first two find out that nobody does, the others know.
        assert len(set(costs[2:])) == 1, costs

    async def quiet(company: Company) -> None:
        await company["A"].fall_silent()
        await scenario(company)

    play(quiet, "A", **PATIENT)
