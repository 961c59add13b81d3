"""The scenarios as data, and `lingua bench chaos` as far as it can be tested without playing."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from lingua_bench.chaos import scenarios
from lingua_bench.chaos.findings import ROOM_DANGERS, ChaosFindings
from lingua_bench.chaos.nemesis import FAULTS, TOXICS
from lingua_bench.chaos.process import HarnessFailed, Process, free_port, until
from lingua_bench.chaos.recording_node import urls_of
from lingua_bench.chaos.report import CrossInstanceCost, Run
from lingua_bench.chaos.run import compared, faults_of
from lingua_bench.chaos.scenarios import SIZES, Scenario, Size, is_counted, scenario
from lingua_bench.chaos.scheduler_process import UTTERANCES, ended, labelled, summed
from lingua_bench.commands.bench import (
    changed_scenario,
    chaos_json_lines,
    chaos_page,
    run_chaos,
    runs,
)
from lingua_cli.main import build_parser

pytestmark = pytest.mark.unit

LAST = [
    "utterances",
    "kills",
    "lost",
    "duplicates",
    "inversions",
    "stale_rejected",
    "adopted",
    "leases_left",
    "streams_opened",
    "streams_lost",
    "listeners_killed",
    "affected_p99_s",
    "heard_wrong",
    "listeners_lost",
    "rooms",
    "untranslated_share",
]
GOOD = Run(scenario("rolling", "ci"), ChaosFindings(utterances=9, resumes=1, hits=1, wall_s=4.0))
VOID = Run(scenario("freeze", "ci"), ChaosFindings(utterances=9, resumes=1, hits=1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", scenarios.FULL)
def test_every_scenario_names_faults_that_exist_on_hops_that_are_there(
    name: str, size: Size
) -> None:
    played = scenario(name, size, seed=3)
    assert (played.name, played.size, played.seed) == (name, size, 3)
    for fault in played.faults:
        link, colon, toxic = fault.partition(":")
        assert fault in FAULTS or (colon and link in played.links and toxic in TOXICS), fault
    needs_cluster = any("master" in fault for fault in played.faults)
    assert played.is_cluster is needs_cluster
    assert played.cells > 1 or not played.is_cluster, "a cluster is played with several cells"


def test_the_full_sizes_are_those_of_the_proof() -> None:
    full = scenarios.FULL
    proof = full["instances"]
    assert (proof.instances, proof.nodes, proof.sessions, proof.utterances) == (3, 8, 50, 10_000)
    assert sum(proof.faults.values()) == 100
    assert full["store"].faults["kill_store"] == 20
    assert sum(full["failover"].faults.values()) == 20
    assert full["reconnect"].moves * full["reconnect"].sessions == 1000
    assert full["rolling"].faults == {"term_instance": 3}
    assert full["rolling"].rules.missing_percent_max == 0
    rooms = full["rooms"]
    assert (rooms.instances, rooms.rooms, rooms.room_size, rooms.utterances) == (3, 12, 8, 10_000)
    kills = {name: count for name, count in rooms.faults.items() if "instance" in name}
    assert sum(kills.values()) == rooms.faults["kill_in_delivery"] == 50
    assert rooms.faults["kill_node"] > 0 < rooms.faults["kill_store"]
    assert rooms.rules.needs >= ROOM_DANGERS.keys()
    moves = full["redispatch"]
    assert (moves.instances, moves.nodes, moves.sessions, moves.utterances) == (1, 10, 100, 5000)
    assert (moves.is_private, moves.ends_by_term, moves.rules.all_accepted) == (True, True, True)
    assert (moves.rules.after_kill_p99_max_ms, moves.rules.after_freeze_max_ms) == (300, 6500)
    assert moves.rules.needs == {"hit", "stale", "after_kill", "after_freeze"}


def test_a_small_size_is_held_to_the_same_but_for_time() -> None:
    for name, full in scenarios.FULL.items():
        small = scenario(name, "ci").rules
        assert small.needs == scenario(name, "quick").rules.needs == full.rules.needs
        assert small.missing_percent_max == full.rules.missing_percent_max
        assert small.store_forgets == full.rules.store_forgets
        assert small.all_accepted == full.rules.all_accepted
        assert small.after_kill_p50_max_ms == full.rules.after_kill_p50_max_ms
        assert small.after_freeze_p50_max_ms == full.rules.after_freeze_p50_max_ms
        assert small.failed_attempts_percent_min == full.rules.failed_attempts_percent_min


def test_the_same_seed_gives_the_same_faults_and_another_one_another_order() -> None:
    orders = [faults_of(scenario("mixed", "full", seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_what_is_played_by_default_is_everything_in_small_and_long_is_everything_in_full() -> None:
    assert {name for name, _ in scenarios.CHAOS} == scenarios.FULL.keys() - {"mixed"}
    assert {name for name, _ in scenarios.LONG} == scenarios.FULL.keys() - {"mixed"}
    assert {size for _, size in scenarios.LONG} == {"full"}


def test_only_takes_names_and_sizes() -> None:
    assert runs("store,instances:full") == (("store", "quick"), ("instances", "full"))


@pytest.mark.parametrize("text", ["", "stores", "store:huge", "store,", "store:"])
def test_only_refuses_what_there_is_not(text: str) -> None:
    if text == "store:":
        assert runs(text) == (("store", "quick"),)
        return
    with pytest.raises(argparse.ArgumentTypeError):
        runs(text)


def test_the_command_has_its_options() -> None:
    words = ["bench", "chaos", "--quick", "--json", "--seed", "5", "--cells", "3"]
    args = build_parser(("bench",)).parse_args([*words, "--planted", "passed_early"])
    assert (args.run, args.quick, args.json, args.seed) == (run_chaos, True, True, 5)
    changed = changed_scenario(args, scenario("rooms", "ci"))
    assert (changed.cells, changed.planted, changed.is_cluster) == (3, "passed_early", False)


def test_json_ends_with_exactly_the_numbers_to_quote() -> None:
    *rows, last = map(msgspec.json.decode, chaos_json_lines([GOOD, VOID]).splitlines())
    assert list(last) == LAST
    assert last["utterances"] == 18
    assert [(row["scenario"], row["verdict"]) for row in rows] == [
        ("rolling", "good"),
        ("freeze", "VOID"),
    ]


def test_the_page_says_why_a_run_is_void_and_what_a_hop_costs() -> None:
    link = Run(
        scenario("hop", "ci"),
        ChaosFindings(utterances=2),
        CrossInstanceCost(2, 5, 3, 9, 500, 700, 90, 140),
    )
    shown = chaos_page([GOOD, VOID, link])
    assert "freeze: VOID: no stale result was rejected" in shown
    assert "p50 2.0 -> 3.0 ms (+1.0)" in shown
    assert "schedulers 500 -> 700 us per utterance" in shown


def test_nodes_are_spread_over_the_instances_and_know_all_of_them() -> None:
    urls = ("a", "b", "c")
    assert [urls_of(f"node-{number}", urls)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert urls_of("node-1", urls) == ("b", "c", "a")


def test_metrics_are_summed_over_their_labels() -> None:
    page = '# HELP x\nx_total{a="1"} 2\nx_total{a="2"} 3\ny 7.0\n'
    assert summed(page) == {"x_total": 5, "y": 7}
    assert labelled(page) == {'x_total{a="1"}': 2, 'x_total{a="2"}': 3}


def test_metrics_are_compared_where_nothing_that_counts_was_lost() -> None:
    counted = [name for name in scenarios.FULL if is_counted(scenarios.FULL[name])]
    assert counted == ["nodes", "redispatch", "hop"]
    findings = ChaosFindings(utterances=3, outcomes=5)
    findings.missing["expired"] = 2
    counts = Counter({UTTERANCES: 3, ended("completed"): 3, ended("expired"): 1})
    found = compared(counts, findings)
    assert found["utterances"] == (3, 3)
    assert found["jobs completed"] == (3, 3)
    assert found["jobs expired"] == (1, 2)


def test_a_process_is_ended_even_while_it_is_stopped_and_can_be_started_again(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        process = Process(["sh", "-c", "echo here; exec sleep 100"], tmp_path / "x.log")
        for _ in range(2):
            await process.start()
            assert await process.read_line() == "here"
            assert process.is_running
            process.signal(signal.SIGSTOP)
            await process.kill()
            assert not process.is_running

    asyncio.run(play())


def test_a_process_that_ends_is_told_with_its_last_word(tmp_path: Path) -> None:
    async def play() -> None:
        process = Process(["sh", "-c", "echo first >&2; echo no port >&2"], tmp_path / "it.log")
        await process.start()
        with pytest.raises(HarnessFailed, match="it ended: no port"):
            await process.read_line()
        await process.kill()

    asyncio.run(play())


def test_what_does_not_come_in_time_is_named() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(HarnessFailed, match="not within 0 s: the moon rises"):
        asyncio.run(until(never, 0.0, "the moon rises"))


def test_ports_are_given_once() -> None:
    assert len({free_port() for _ in range(20)}) == 20


def test_a_scenario_without_faults_has_none() -> None:
    assert faults_of(Scenario("x", "nothing is done", seed=Random(1).randrange(9))) == []
