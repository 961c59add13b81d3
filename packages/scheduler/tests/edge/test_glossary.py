"""A client's and a tenant's glossary, over real sockets: what a node is told with each job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge import many_servers
from edge.live_server import JSON, MSGPACK, Stage, opus, pcm16, play
from edge.locked import LOCKED, client_token, node_token
from edge.many_servers import Company, Traveller, heard_all
from lingua_client import Outcome, connect
from lingua_node import Job, Node, Result
from lingua_scheduler.config import load_settings
from lingua_scheduler.runtime.session_profiles import glossaries_of
from lingua_wire.errors import ConfigError
from lingua_wire.shared import Term
from node_peer import serving

pytestmark = pytest.mark.store

OURS = [{"term": "Acme Cloud"}, {"term": "ledger", "translations": {"EN": "book", "es": "libro"}}]
TOLD = [{"term": "Acme Cloud"}, {"term": "ledger", "translations": {"en": "book"}}]


@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_a_job_has_the_clients_terms_in_its_language(form: str) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(form=form)
        client = await stage.client(form=form, glossary=OURS)
        await client.say(pcm16(400), is_final=True)
        assert (await node.job())["glossary"] == TOLD

    play(scenario)


def test_without_a_glossary_a_job_has_none() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        for given in ({}, {"glossary": None}, {"glossary": []}):
            client = await stage.client(**given)
            await client.say(pcm16(400), is_final=True)
            job = await node.job(session_id=client.id)
            assert "glossary" not in job

    play(scenario)


def test_old_nodes_are_not_told_and_old_clients_may_give_one() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client(glossary=OURS)
        await client.utter(0, opus(400))
        assert "glossary" not in await node.job()

    play(scenario)


def test_both_ways_need_both_languages() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        both = {"mode": "two_way_auto", "lang_a": "zh", "lang_b": "en"}
        called = {"zh": "账", "en": "book", "es": "libro"}
        glossary = [{"term": "ledger", "translations": called}]
        client = await stage.client(src="auto", glossary=glossary, **both)
        await client.say(pcm16(400), is_final=True)
        [ledger] = (await node.job())["glossary"]
        assert ledger["translations"] == {"zh": "账", "en": "book"}

    play(scenario)


def test_it_holds_when_languages_change_and_when_a_client_comes_back_elsewhere() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node()
        node.work()
        client = await Traveller.at(company, "A", glossary=OURS)
        await client.socket.ask("session_update", tgt_lang="es")
        await client.say(opus(400), is_final=True)
        await heard_all(client, 1)
        client.socket.drop()
        await client.come_back("B")
        await client.say(opus(400), is_final=True)
        await heard_all(client, 2)
        told = [job["glossary"] for job in node.all("job_assign")]
        assert [ledger["translations"] for _, ledger in told] == [{"es": "libro"}] * 2

    many_servers.play(scenario)


def locked(directory: Path, content: str) -> dict[str, Any]:
    file = directory / "acme.toml"
    file.write_text(content)
    tenants = [{"id": "acme", "glossary_file": str(file)}]
    return {**LOCKED, "tenants": json.dumps(tenants)}


def test_a_tenants_terms_are_for_its_sessions_and_a_clients_own_count_before(
    tmp_path: Path,
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1", token=node_token("n1"))
        ours, others = client_token(tenant="acme"), client_token(tenant="other")
        own = [{"term": "ledger", "translations": {"en": "account"}}, {"term": "Zeta"}]
        told = []
        for token, given in ((ours, None), (ours, own), (others, None)):
            client = await stage.client(token=token, glossary=given)
            await client.say(pcm16(400), is_final=True)
            told.append((await node.job(session_id=client.id)).get("glossary"))
        assert told == [TOLD, [TOLD[0], *own], None]

    content = '"Acme Cloud" = {}\nledger = { en = "book", es = "libro" }\n'
    play(scenario, **locked(tmp_path, content))


def test_a_tenants_file_that_is_none_ends_the_start(tmp_path: Path) -> None:
    given = locked(tmp_path, "ledger = 7")
    environ = {f"LINGUA_{name.upper()}": str(value) for name, value in given.items()}
    with pytest.raises(
        ConfigError, match=r"tenants\[0\].glossary_file: .*acme.toml: glossary: 'le"
    ):
        glossaries_of(load_settings(None, environ))


def test_the_sdks_take_it_as_a_table_and_give_it_to_the_handler() -> None:
    seen: list[tuple[Term, ...]] = []

    async def handler(job: Job) -> Result:
        seen.append(job.glossary)
        called = {one.term: one.said_in(job.tgt_lang) for one in job.glossary}
        return Result(text_asr="x", text_translated=str(called))

    async def scenario(stage: Stage) -> None:
        url = stage.server.url.replace("http", "ws")
        node = Node(f"{url}/ws/node", node_id="n1", pairs=["zh>en"], reports_usage=False)
        node.job(handler)
        glossary = {"Acme Cloud": None, "ledger": {"en": "book", "es": "libro"}}
        session = connect(
            f"{url}/ws/session", source="zh", targets="en", glossary=glossary, audio_format="opus"
        )
        async with serving(node), session:
            await session.send(opus(400))
            await session.cut()
            async for event in session:
                if isinstance(event, Outcome):
                    assert event.text == "{'Acme Cloud': None, 'ledger': 'book'}"
                    break
        assert seen == [(Term(term="Acme Cloud"), Term(term="ledger", translations={"en": "book"}))]

    play(scenario)


@pytest.mark.parametrize("glossary", [{"": None}, {"a": {"??": "b"}}, {"a": 3}])
def test_the_client_sdk_refuses_what_is_none(glossary: Any) -> None:
    with pytest.raises(ConfigError, match="glossary"):
        connect("ws://127.0.0.1:1", source="zh", targets="en", glossary=glossary)
