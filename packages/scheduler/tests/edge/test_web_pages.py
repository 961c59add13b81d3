"""The pages for people: what is served, under which rules, and what it says of the fleet."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from edge.live_server import Stage, play, registration, until
from edge.test_http_api import WITH_KEYS, Reply, ask, private_node, shown
from lingua_scheduler.edge.web_pages import PAGES, POLICY, web_config
from lingua_scheduler.jobs.placement import PoolView
from lingua_scheduler.nodes.capability import Capability
from lingua_web import STATIC

pytestmark = pytest.mark.store

PLAIN = {"Accept-Encoding": "identity"}


def check_headers(reply: Reply) -> None:
    assert reply.headers["Content-Security-Policy"] == POLICY
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Permissions-Policy"].startswith("microphone=(self)")
    assert reply.headers["Cache-Control"] == "no-cache"


def test_every_page_and_every_file_is_served_with_its_rules() -> None:
    async def scenario(stage: Stage) -> None:
        for path, name, _ in PAGES:
            page = await ask(stage, path.replace("{code}", "123456"), headers=PLAIN)
            assert (page.status, page.body) == (200, (STATIC / name).read_bytes())
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            check_headers(page)
        for file in (one for one in STATIC.rglob("*") if one.is_file()):
            name = file.relative_to(STATIC).as_posix()
            reply = await ask(stage, f"/assets/{name}", headers=PLAIN)
            assert (reply.status, reply.body) == (200, file.read_bytes()), name
            check_headers(reply)

    play(scenario)


def test_the_sdk_has_an_address_of_its_own_that_other_pages_may_load() -> None:
    async def scenario(stage: Stage) -> None:
        for name in ("lingua-client.js", "lingua-client.d.ts", "microphone-worklet.js"):
            reply = await ask(stage, f"/sdk/{name}", headers=PLAIN)
            assert (reply.status, reply.body) == (200, (STATIC / "sdk" / name).read_bytes())
            assert reply.headers["Access-Control-Allow-Origin"] == "*"
        script = await ask(stage, "/sdk/lingua-client.js")
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"

    play(scenario)


def test_a_file_is_compressed_and_not_sent_again_while_it_is_the_same() -> None:
    async def scenario(stage: Stage) -> None:
        raw = {"headers": {"Accept-Encoding": "br, gzip"}, "auto_decompress": False}
        page = await ask(stage, "/", **raw)
        assert page.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(page.body) == (STATIC / "index.html").read_bytes()
        tag = page.headers["Etag"]
        for known in (tag, f'"other", W/{tag}'):
            again = await ask(stage, "/", headers={"If-None-Match": known})
            assert (again.status, again.body) == (304, b"")
            check_headers(again)
        assert (await ask(stage, "/", headers={"If-None-Match": '"other"'})).status == 200

    play(scenario)


@pytest.mark.parametrize(
    "path",
    ["/assets/none.js", "/assets/../__init__.py", "/assets/%2e%2e/__init__.py", "/assets/", "/sdk/",
     "/assets//etc/passwd", "/sdk/../index.html"],
)  # fmt: skip
def test_nothing_but_its_files_is_served(path: str) -> None:
    async def scenario(stage: Stage) -> None:
        reply = await ask(stage, path)
        assert (reply.status, reply.code) == (404, "NOT_FOUND")

    play(scenario)


@pytest.mark.parametrize("page", sorted(STATIC.rglob("*.html")), ids=str)
def test_a_page_has_no_inline_script_or_style_and_loads_only_its_own_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    for attributes in re.findall(r"<script([^>]*)>", text):
        assert 'src="/' in attributes
    for link in re.findall(r'(?:src|href)="(/assets/[^"]+)"', text):
        assert (STATIC / link.removeprefix("/assets/")).is_file(), link
    loaded = re.findall(r'<(?:script|link|img|audio)[^>]*(?:src|href)="([^"]+)"', text)
    assert all(link.startswith("/") for link in loaded)


def test_the_page_knows_the_languages_of_public_nodes_and_nothing_else() -> None:
    async def scenario(stage: Stage) -> None:
        empty = await shown(stage, "/web/config.json")
        assert (empty["languages"], empty["pairs"], empty["serves_any"]) == ([], [], False)
        assert empty["tokens_required"] is True
        await private_node(stage, "theirs", "acme")
        assert (await shown(stage, "/web/config.json"))["pairs"] == []

    play(scenario, **WITH_KEYS)


def test_a_page_is_told_why_it_gets_no_socket() -> None:
    async def scenario(stage: Stage) -> None:
        async def sockets(origin: str = "") -> str:
            found = await shown(stage, f"/web/config.json?origin={origin}")
            assert (found["retry_after_s"] > 0) == (found["sockets"] in ("full", "draining"))
            return str(found["sockets"])

        assert await sockets() == await sockets("https://ours.example") == "open"
        assert await sockets("https://evil.example") == "origin_not_allowed"
        stage.server.instance.lifecycle.drain()
        assert await sockets("https://ours.example") == "draining"

    play(scenario, server__origins='["https://ours.example"]')


def test_a_new_node_is_soon_among_the_languages() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node(**registration(["zh"], ["en"]))
        await until(lambda: stage.server.instance.fleet.pools, "the fleet is known")
        config = await shown(stage, "/web/config.json")
        assert config["pairs"] == ["zh>en"]
        assert config["languages"] == [
            {"code": "en", "name": "English"},
            {"code": "zh", "name": "Chinese"},
        ]
        assert config["tokens_required"] is False

    play(scenario)


def pool(name: str, **can: object) -> PoolView:
    return PoolView(name, Capability(services={}, **can), frozenset())  # type: ignore[arg-type]


def test_pairs_are_made_of_what_nodes_declare() -> None:
    made = web_config(
        [
            pool("a", pairs=("en>es", "en>de")),
            pool("b", sources=("fr",), targets=("en", "es")),
            pool("c", pairs=("ja>ko",), owner="acme"),
        ],
        tokens_required=True,
    )
    assert made.pairs == ("en>de", "en>es", "fr>en", "fr>es")
    assert [one.code for one in made.languages] == ["de", "en", "es", "fr"]
    assert not made.serves_any


def test_a_node_for_any_language_means_all_that_have_a_name() -> None:
    made = web_config([pool("a")], tokens_required=False)
    assert made.serves_any
    assert {"en", "es", "zh", "yue"} <= {one.code for one in made.languages}
    assert next(one.name for one in made.languages if one.code == "my") == "Myanmar"
