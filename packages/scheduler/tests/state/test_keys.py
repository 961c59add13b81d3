"""The data dictionary: names of keys, cells of sessions and nodes, ids that are valid in a key."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.errors import InvalidIdentifier
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import (
    FAMILIES,
    INSTANCE_FAMILIES,
    Cell,
    Cells,
    InstanceKeys,
    KeyFamily,
    family_of,
    identifier,
    keys_page,
)

pytestmark = pytest.mark.unit

ids = st.from_regex(r"[A-Za-z0-9_.:-]{1,20}", fullmatch=True)


# One cell.


def test_a_cell_names_the_key_every_script_is_given() -> None:
    cell = Cell("lingua", 7)
    assert cell.name == "c7"
    assert cell.due == b"lingua:v1:{c7}:due"


def test_a_key_is_named_by_family_and_rest() -> None:
    cell = Cell("lingua", 0)
    assert cell.key("pending") == "lingua:v1:{c0}:pending"
    assert cell.key("job", "job-1") == "lingua:v1:{c0}:job:job-1"


@given(st.integers(0, 1023), st.sampled_from(FAMILIES), ids)
def test_all_keys_of_a_cell_share_its_slot(number: int, family: KeyFamily, rest: str) -> None:
    cell = Cell("lingua", number)
    assert key_slot(cell.key(family.pattern.partition(":")[0], rest)) == cell.slot


def test_the_prefix_does_not_move_a_cell() -> None:
    assert Cell("lingua", 3).slot == Cell("other", 3).slot
    assert Cell("lingua", 3).base != Cell("other", 3).base


# One instance.


def test_an_instance_names_the_keys_of_its_streams() -> None:
    keys = InstanceKeys("lingua", "host-1.4711:a")
    assert keys.instance == "host-1.4711:a"
    assert keys.inbox == b"lingua:v1:{i:host-1.4711:a}:inbox"
    assert keys.dlq == b"lingua:v1:{i:host-1.4711:a}:dlq"
    assert keys.adopter == b"lingua:v1:{i:host-1.4711:a}:adopter"
    assert keys.keys == (keys.inbox, b"lingua:v1:{i:host-1.4711:a}:absent")


@given(ids)
def test_all_keys_of_an_instance_share_a_slot_and_are_in_the_dictionary(instance: str) -> None:
    keys = InstanceKeys("lingua", instance)
    every = (keys.inbox, keys.dlq, keys.adopter, keys.absent)
    assert {key_slot(key) for key in every} == {keys.slot}
    found = [family_of(key.decode(), "lingua") for key in every]
    assert {family.pattern for family in found if family} == {
        family.pattern for family in INSTANCE_FAMILIES
    }


def test_an_instance_is_never_taken_for_a_cell() -> None:
    assert InstanceKeys("lingua", "c0").slot != Cell("lingua", 0).slot
    assert InstanceKeys("lingua", "c0").base != Cell("lingua", 0).base


@pytest.mark.parametrize("name", ["", "a b", "{a}", "a}b", "é", "x" * 129])
def test_an_instance_has_a_name_that_keys_may_carry(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        InstanceKeys("lingua", name)


# Who lives where.


def test_cells_are_found_by_the_name_replies_carry() -> None:
    cells = Cells("lingua", 3)
    assert [cell.name for cell in cells.all] == ["c0", "c1", "c2"]
    assert cells.named("c2") is cells.all[2]


def test_a_cell_that_does_not_exist_is_not_invented() -> None:
    with pytest.raises(KeyError):
        Cells("lingua", 3).named("c3")


def test_with_one_cell_everything_lives_there() -> None:
    cells = Cells("lingua", 1)
    assert cells.of_node("n") is cells.home_of("s") is cells.all[0]
    assert cells.ring_after(cells.all[0]) == ()


def test_a_node_and_a_session_live_where_every_instance_looks() -> None:
    # CRC-32 modulo the cells; another hash would lose every node and session at an upgrade.
    cells = Cells("lingua", 16)
    assert cells.of_node("node-1A2B3C4D").name == "c6"
    assert cells.home_of("tenant-acme").name == "c2"
    assert cells.home_of("s-0000000F").name == "c10"


def test_nodes_and_sessions_are_dealt_to_all_cells() -> None:
    cells = Cells("lingua", 8)
    assert {cells.of_node(f"node-{i}").name for i in range(200)} == {c.name for c in cells.all}
    assert {cells.home_of(f"s-{i}").name for i in range(200)} == {c.name for c in cells.all}


def test_a_tenant_has_one_home_whatever_the_session() -> None:
    cells = Cells("lingua", 8)
    homes = {cells.home_of("acme", f"s-{i}") for i in range(50)}
    assert homes == {cells.home_of("acme")}


def test_a_spread_tenant_uses_as_many_neighbouring_cells() -> None:
    cells = Cells("lingua", 8)
    at = cells.all.index(cells.home_of("acme"))
    homes = {cells.home_of("acme", f"s-{i}", spread=3) for i in range(200)}
    assert homes == {cells.all[(at + step) % 8] for step in range(3)}


def test_a_session_of_a_spread_tenant_stays_at_its_home() -> None:
    cells = Cells("lingua", 8)
    assert len({cells.home_of("acme", "s-1", spread=8) for _ in range(5)}) == 1


def test_a_tenant_spread_past_the_last_cell_goes_on_at_the_first() -> None:
    cells = Cells("lingua", 2)
    homes = {cells.home_of(tenant, f"s-{i}", spread=2) for tenant in "ab" for i in range(50)}
    assert homes == set(cells.all)


def test_the_ring_of_four_from_the_third_is_the_fourth_the_first_and_the_second() -> None:
    cells = Cells("lingua", 4)
    assert [cell.name for cell in cells.ring_after(cells.all[2])] == ["c3", "c0", "c1"]


@given(st.integers(1, 12), st.data())
def test_the_ring_meets_every_other_cell_once(count: int, data: st.DataObject) -> None:
    cells = Cells("lingua", count)
    home = data.draw(st.sampled_from(cells.all))
    around = (home, *cells.ring_after(home))
    assert len(around) == len(set(around)) == count
    numbers = [cells.all.index(cell) for cell in around]
    assert all((a + 1) % count == b for a, b in pairwise(numbers))


# Ids from outside.


@pytest.mark.parametrize("value", ["a", "s-1A2B3C4D", "tenant:acme", "node_1.local", "x" * 128])
def test_an_id_a_key_may_carry_is_taken_as_it_is(value: str) -> None:
    assert identifier("session", value) == value


@pytest.mark.parametrize(
    "value",
    ["", "x" * 129, "a b", "a|b", "a,b", "a@b", "a/b", "{a}", "a>b", "a\n", "\0", "é", "日本"],
)
def test_an_id_that_could_be_mistaken_for_something_else_is_refused(value: str) -> None:
    with pytest.raises(InvalidIdentifier) as caught:
        identifier("session", value)
    assert (caught.value.kind, caught.value.value) == ("session", value)


# Families.


@pytest.mark.parametrize(
    ("rest", "pattern"),
    [
        ("due", "due"),
        ("absent", "absent"),
        ("session:s-1", "session:<session>"),
        ("session:a:b", "session:<session>"),
        ("outbox:s-1", "outbox:<session>"),
        ("relay:s-1", "relay:<session>"),
        ("heard:s-1|17|3", "heard:<speaker>|<epoch>|<number>"),
        ("said:s-1", "said:<speaker>"),
        ("job:job-1", "job:<job>"),
        ("request:job-1", "request:<job>"),
        ("audio:s-1|3", "audio:<session>|<index>"),
        ("pending", "pending"),
        ("waiting", "waiting"),
        ("queue:*>en,zh>en|asr|||acme||", "queue:<demand>"),
        ("demands", "demands"),
        ("pools", "pools"),
        ("pool:0123456789ab", "pool:<pool>"),
        ("nodes", "nodes"),
        ("node:n", "node:<node>"),
        ("leases:n", "leases:<node>"),
        ("marks:n", "marks:<node>"),
        ("streams:n", "streams:<node>"),
        ("stream:str-1", "stream:<stream>"),
        ("streaming:0123456789ab", "streaming:<pool>"),
        ("reserved", "reserved"),
        ("revoked", "revoked"),
        ("revocations", "revocations"),
        ("instances", "instances"),
        ("instance:host-1", "instance:<instance>"),
        ("inboxes", "inboxes"),
        ("dlqs", "dlqs"),
    ],
)
def test_a_key_is_recognised(rest: str, pattern: str) -> None:
    family = family_of(f"lingua:v1:{{c12}}:{rest}", "lingua")
    assert family is not None
    assert family.pattern == pattern


def test_every_family_was_recognised_above() -> None:
    assert len({family.pattern for family in FAMILIES}) == len(FAMILIES) == 34


@pytest.mark.parametrize(
    "key",
    [
        "lingua:v1:{c0}:",
        "lingua:v1:{c0}:unknown",
        "lingua:v1:{c0}:due:x",
        "lingua:v1:{c0}:job:",
        "lingua:v1:{c0}:job",
        "lingua:v1:{c0}:audio:s-1",
        "lingua:v1:{c0}:job:a{b}",
        "lingua:v1:{c0}:inbox",
        "lingua:v1:{i:a}:due",
        "lingua:v1:{i:a}:inbox:b",
        "lingua:v1:{i:}:inbox",
        "lingua:v1:{i:a b}:inbox",
        "lingua:v1:{x}:due",
        "lingua:v1:c0:due",
        "lingua:v2:{c0}:due",
        "other:v1:{c0}:due",
        "x-lingua:v1:{c0}:due",
        ":v1:{c0}:due",
        "due",
    ],
)
def test_what_the_dictionary_does_not_know_has_no_family(key: str) -> None:
    assert family_of(key, "lingua") is None


def test_a_prefix_is_taken_literally() -> None:
    assert family_of("a.b:v1:{c0}:due", "a.b") is not None
    assert family_of("aXb:v1:{c0}:due", "a.b") is None


def test_every_family_says_what_it_holds_and_who_ends_it() -> None:
    for family in (*FAMILIES, *INSTANCE_FAMILIES):
        assert family.kind in {"zset", "hash", "list", "set", "stream", "string", "none"}
        assert family.holds
        assert family.ended_by


def test_the_page_has_a_row_for_each_family() -> None:
    page = keys_page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(FAMILIES) + len(INSTANCE_FAMILIES)
    # A bar inside a cell is escaped, so that every row has four cells.
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert "| `audio:<session>\\|<index>` | hash |" in page
    assert page.endswith("|\n")
