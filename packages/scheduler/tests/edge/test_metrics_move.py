"""Every metric of the catalogue moves: what makes it move is played, and none is without a play.

`PLAYS` names for each play what it moves. A metric, or a value of a label that is known from the
start, that no play names fails `test_no_metric_is_without_a_play`, so that none can be added that
never moves; and each play fails if what it names did not move on a real `/metrics`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from edge import live_server, many_servers
from edge.live_server import Stage, opus, registration, until
from edge.many_servers import Traveller
from edge.streaming_stage import (
    STREAMING,
    fall_silent,
    heard_of,
    in_room,
    keep_speaking,
    listener,
    speak,
    text_so_far,
)
from lingua_scheduler.metrics import PREFIX, LiveMetrics
from lingua_scheduler.peers.messages import PushJob
from test_metrics import Read, parsed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from edge.live_server import Node
    from edge.many_servers import Company

pytestmark = pytest.mark.store

LOOK_EVERY_S = 0.01


class Row(NamedTuple):
    """A metric without its prefix, and the labels whose values are known from the start."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{dict(self.labels) if self.labels else ''}"


def row(text: str) -> Row:
    """Read `nodes status=ready`."""
    name, *pairs = text.split()
    return Row(
        name, tuple(sorted((key, value) for key, _, value in (p.partition("=") for p in pairs)))
    )


@dataclass
class Watch:
    """Scrapes instances again and again, and keeps what was ever above 0."""

    stages: Callable[[], Iterable[Stage]]
    last: dict[str, Read] = field(default_factory=dict)
    moved: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        for stage in self.stages():
            for name, read in parsed(stage.server.instance.metrics.render()).items():
                wanted = f"{name}_count" if read.type == "histogram" else name
                for (sample, labels), value in read.samples.items():
                    if sample == wanted and value > 0:
                        self.moved.add((name, labels))

    def has(self, wanted: Row) -> bool:
        """Tell whether any sample of a metric with these labels moved."""
        name = wanted.name if wanted.name.startswith("process_") else f"{PREFIX}{wanted.name}"
        return any(
            found == name and set(wanted.labels) <= set(labels) for found, labels in self.moved
        )

    async def until(self, *texts: str) -> None:
        """Wait until these have moved."""
        for text in texts:
            await until(partial(self.has, row(text)), f"{text} moves")


Scene = Any


class Play(NamedTuple):
    """What is done, on one server or on several, and what that must move."""

    act: Callable[[Scene, Watch], Awaitable[None]]
    moves: tuple[Row, ...]
    names: str
    settings: dict[str, Any]

    @property
    def title(self) -> str:
        return self.act.__name__.removeprefix("play_")


PLAYS: list[Play] = []
# They need a supervisor with workers that die: tests/stress/test_workers.py.
OF_WORKERS = {"workers", "workers_replaced_total"}


def moves(*texts: str, names: str = "", **settings: Any) -> Callable[[Any], Any]:
    """Note a play with what it moves; `names`: on instances of these names."""

    def note(act: Any) -> Any:
        PLAYS.append(Play(act, tuple(row(text) for text in texts), names, settings))
        return act

    return note


def wanted_rows() -> list[Row]:
    """Return every metric, by each combination of label values that is known from the start."""
    rows = []
    for metric in LiveMetrics().registry.metrics.values():
        known = {name: values for name, values in metric.labels.items() if values}
        for values in product(*known.values()):
            labels = tuple(sorted(zip(known, values, strict=True)))
            rows.append(Row(metric.name.removeprefix(PREFIX), labels))
    return rows


def test_no_metric_is_without_a_play() -> None:
    named = {moved for play in PLAYS for moved in play.moves}
    missing = {str(wanted) for wanted in wanted_rows() if wanted not in named}
    assert missing == OF_WORKERS


def test_no_play_names_what_is_not_counted() -> None:
    rows = set(wanted_rows())
    assert [str(moved) for play in PLAYS for moved in play.moves if moved not in rows] == []


# Plays on one server.


async def get(stage: Stage, path: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{stage.server.url}{path}") as answer:
        await answer.read()
        return answer.status


def timed(**stages: float) -> dict[str, Any]:
    return {"extra": {"service_timings": stages}}


@moves(
    "connections kind=session", "connections kind=node", "closes_total",
    "messages_total socket=session", "messages_total socket=node", "sessions",
    "audio_bytes_total", "audio_chunks_total", "utterances_total",
    "web_task_finalized_total reason=send", "web_task_pause_ms", "jobs_total outcome=completed",
    "reserve_attempt_total result=success", "pool_selected_total outcome=hit",
    "dispatch_latency_seconds", "accept_to_assign_seconds", "nodes status=ready",
    "slots state=taken", "slots state=free", "stage_seconds stage=asr", "stage_seconds stage=nmt",
    "stage_seconds stage=tts", "order_wait_seconds", "result_to_deliver_seconds",
    "end_to_end_seconds", "coverage_ms_total fate=delivered", "loop_lag_seconds",
    "store_call_seconds", "instances state=alive", "process_cpu_seconds_total",
    "process_resident_memory_bytes", "process_open_fds",
)  # fmt: skip
async def play_somebody_is_translated(stage: Stage, watch: Watch) -> None:
    node = await stage.node()
    client = await stage.client()
    await client.say(opus(600), is_final=True)
    job = await node.job()
    await watch.until("slots state=taken")
    await node.answer(job, **timed(asr_ms=5.0, nmt_ms=3.0, tts_ms=2.0))
    await client.result(0)
    await client.bye()
    await watch.until("closes_total", "loop_lag_seconds")


@moves("connections kind=http", "connections_refused_total")
async def play_somebody_asks_over_http(stage: Stage, watch: Watch) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{stage.server.url}/livez") as answer:
            await answer.read()
        await watch.until("connections kind=http")
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
    writer.write(b"nonsense\r\n\r\n")
    await reader.read()
    writer.close()
    await watch.until("connections_refused_total")


@moves("invalid_messages_total socket=session", "invalid_messages_total socket=node")
async def play_nonsense_is_sent(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    await client.send("unheard_of")
    await node.send("unheard_of")
    await watch.until("invalid_messages_total socket=session", "invalid_messages_total socket=node")


@moves("web_task_finalized_total reason=timeout", "web_task_finalized_total reason=close")
async def play_a_pause_and_a_farewell_cut(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    node.work()
    await client.say(opus(600))
    await client.result(0)
    await client.say(opus(600))
    await client.bye()
    await watch.until("web_task_finalized_total reason=close")


@moves(
    "streams", "streams_opened_total", "streams_ended_total reason=cut",
    "partial_results_total receiver=speaker", "partial_results_total receiver=listener",
)  # fmt: skip
async def play_a_node_listens_to_a_room(stage: Stage, watch: Watch) -> None:
    node = await listener(stage)
    speaker, _ = await in_room(stage, "zh", "en")
    await speak(speaker, 1000)
    stream, _ = await heard_of(node)
    await node.send("stream_partial", **text_so_far(stream, 1))
    await watch.until("streams", "partial_results_total receiver=listener")
    await fall_silent(speaker)
    await node.job()
    await watch.until("streams_ended_total reason=cut")


@moves(
    "stream_refusals_total", "streams_ended_total reason=lost",
    "streams_ended_total reason=dropped", segmentation__pause_ms=0,
)  # fmt: skip
async def play_nobody_listens_any_more(stage: Stage, watch: Watch) -> None:
    client = await stage.client(**STREAMING)
    await speak(client, 1000)
    await watch.until("stream_refusals_total")
    first, second = await listener(stage), await stage.client(**STREAMING, trace_id="b")
    third = await stage.client(**STREAMING, tgt_langs=("ja", "en"))
    await speak(third, 1000)
    stream, _ = await heard_of(first)
    await first.send("stream_closed", stream_id=stream["stream_id"])
    await watch.until("streams_ended_total reason=lost")
    speaks = asyncio.create_task(keep_speaking(second))
    try:
        await heard_of(first)
    finally:
        speaks.cancel()
    second.drop()
    await watch.until("streams_ended_total reason=dropped")


@moves("web_task_finalized_total reason=sentence", segmentation__pause_ms=0)
async def play_a_sentence_ends(stage: Stage, watch: Watch) -> None:
    node = await listener(stage)
    client = await stage.client(**STREAMING)
    await speak(client, 4000)
    stream, _ = await heard_of(node)
    await node.send("stream_partial", **text_so_far(stream, 1, sentence_end_ms=2500))
    await watch.until("web_task_finalized_total reason=sentence")


@moves("web_task_finalized_total reason=max_duration", segmentation__max_duration_ms=500)
async def play_long_speech_is_sliced(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    node.work()
    for _ in range(12):
        await client.say(opus(100))
    await watch.until("web_task_finalized_total reason=max_duration")


@moves("web_task_finalized_total reason=max_bytes", segmentation__max_bytes=2048)
async def play_much_audio_is_sliced(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    node.work()
    for _ in range(4):
        await client.say(opus(500))
    await watch.until("web_task_finalized_total reason=max_bytes")


@moves("empty_finalize_total")
async def play_the_end_of_nothing(stage: Stage, watch: Watch) -> None:
    client = await stage.client()
    await client.say(b"", is_final=True)
    await watch.until("empty_finalize_total")


@moves(
    "jobs_total outcome=completed_no_text", "jobs_total outcome=failed",
    "coverage_ms_total fate=silent", "coverage_ms_total fate=failed",
)  # fmt: skip
async def play_silence_and_failure(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    for index in range(2):
        await client.utter(index)
    silent, failed = await node.job(), await node.job()
    await node.answer(silent, text_asr="", text_translated="", tts_audio=b"")
    await node.fail(failed, "UNSUPPORTED_FEATURE")
    await client.bye()
    await watch.until("coverage_ms_total fate=failed")


@moves("jobs_total outcome=cancelled", "coverage_ms_total fate=skipped")
async def play_a_session_lapses(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    await client.utter(0)
    await node.job()
    instance = stage.server.instance
    home, effects = instance.sessions[client.id].record.home, instance.effects
    _, work = await effects.dispatcher.close_session(home, client.id, "lapsed")
    effects.perform(work)
    await client.expect("missing_result", reason="cancelled")
    await client.bye()
    await watch.until("coverage_ms_total fate=skipped")


@moves(
    "jobs_total outcome=expired", "queue_depth", "reserve_attempt_total result=fail",
    "no_available_node_total selector=submit", "pool_selected_total outcome=miss",
    jobs__pending_ms=3000,
)  # fmt: skip
async def play_nobody_is_there(stage: Stage, watch: Watch) -> None:
    client = await stage.client()
    await client.utter(0)
    await watch.until("queue_depth")
    await client.expect("missing_result", reason="expired")
    await watch.until("jobs_total outcome=expired")


@moves("jobs_total outcome=missing", "result_gap_timeout_total", jobs__gap_ms=200)
async def play_an_utterance_never_comes(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    node.work()
    for index in (0, 2):
        await client.utter(index)
    await client.expect("missing_result", utterance_index=1, reason="gap_timeout")
    await watch.until("result_gap_timeout_total")


@moves("duplicate_job_blocked_total")
async def play_a_request_comes_twice(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    await client.utter(0, request_id="r-1")
    await client.utter(0, request_id="r-1")
    await node.answer(await node.job())
    await watch.until("duplicate_job_blocked_total")


@moves("queue_wait_seconds", "backpressure_total", sessions__utterances_per_s_max=2)
async def play_a_job_waits_and_too_much_is_said(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(max_jobs=1), await stage.client()
    await client.utter(0)
    job = await node.job()
    await client.utter(1)
    await until(lambda: stage.leases() == 2, "both are there")
    await node.answer(job)
    await node.answer(await node.job())
    for index in range(2, 8):
        await client.utter(index)
    await client.expect("error", code="RATE_LIMITED")
    await watch.until("queue_wait_seconds", "backpressure_total")


# Nodes that cannot.


async def refused_by(stage: Stage, code: str, **details: str) -> tuple[Node, Node]:
    """One node gives a job back, another one gets it."""
    first, client = await stage.node(), await stage.client()
    await client.utter(0)
    job = await first.job()
    second = await stage.node()
    await first.fail(job, code, **details)
    await second.answer(await second.job())
    await client.result(0)
    return first, second


@moves("failovers_total", "node_overload_reject_total reason=full")
async def play_a_node_is_full(stage: Stage, watch: Watch) -> None:
    await refused_by(stage, "NODE_OVERLOADED")
    await watch.until("node_overload_reject_total reason=full", "failovers_total")


@moves("node_overload_reject_total reason=not_ready")
async def play_a_node_is_not_ready(stage: Stage, watch: Watch) -> None:
    await refused_by(stage, "NODE_UNAVAILABLE")
    await watch.until("node_overload_reject_total reason=not_ready")


@moves(
    "node_overload_reject_total reason=other", "model_na_received_total", "model_na_marked_total",
    "model_na_rate_limited_total", models__rate_max=1,
)  # fmt: skip
async def play_a_node_lacks_its_model(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    for index in range(2):
        await client.utter(index)
    jobs = [await node.job(), await node.job()]
    for number, job in enumerate(jobs):
        await node.fail(job, "MODEL_NOT_AVAILABLE", service_id=("nmt-1", "tts-1")[number])
    await watch.until(
        "node_overload_reject_total reason=other", "model_na_marked_total",
        "model_na_rate_limited_total",
    )  # fmt: skip


@moves("no_available_node_total selector=failover")
async def play_nobody_else_can(stage: Stage, watch: Watch) -> None:
    node, client = await stage.node(), await stage.client()
    await client.utter(0)
    await node.fail(await node.job(), "PROCESSING_ERROR")
    await watch.until("no_available_node_total selector=failover")


@moves("pool_selected_total outcome=fallback")
async def play_specialists_are_full(stage: Stage, watch: Watch) -> None:
    narrow = await stage.node("narrow", max_jobs=1, **registration(("zh",), ("en",)))
    broad = await stage.node("broad", **registration(("zh", "en", "fr"), ("en", "fr", "de", "it")))
    client = await stage.client()
    for index in range(2):
        await client.utter(index)
    await narrow.job()
    await broad.job()
    await watch.until("pool_selected_total outcome=fallback")


@moves("redispatch_seconds")
async def play_a_node_is_lost_with_its_job(stage: Stage, watch: Watch) -> None:
    first, client = await stage.node(), await stage.client()
    await client.utter(0)
    await first.job()
    second = await stage.node()
    first.drop()
    await second.job()
    await watch.until("redispatch_seconds")


@moves("ack_timeout_total", "cancels_acknowledged_total", "results_stale_total", jobs__ack_ms=200)
async def play_a_node_does_not_acknowledge(stage: Stage, watch: Watch) -> None:
    first, client = await stage.node(sends_acks=True), await stage.client()
    await client.utter(0)
    job = await first.job()
    second = await stage.node()
    await second.job()
    await first.expect("job_cancel")
    await first.about("job_cancel_ack", job, attempt_id=job["attempt_id"], accepted=True)
    await first.answer(job)
    await watch.until("ack_timeout_total", "cancels_acknowledged_total", "results_stale_total")


@moves(
    "nodes status=registering", "nodes status=degraded", "nodes status=draining",
    "nodes status=offline", nodes__bad_beats=1,
)  # fmt: skip
async def play_nodes_come_and_go(stage: Stage, watch: Watch) -> None:
    await (await stage.socket("/ws/node", live_server.JSON)).send(
        "node_register", node_id="new", boot_id="b", **registration()
    )
    await watch.until("nodes status=registering")
    node = await stage.node("n1")
    stopped = [{**service, "status": "stopped"} for service in registration()["installed_services"]]
    await node.beat(installed_services=stopped, capability_by_type=[])
    await watch.until("nodes status=degraded")
    await node.send("node_drain", node_id=node.id, draining=True)
    await watch.until("nodes status=draining")
    node.drop()
    await watch.until("nodes status=offline")


@moves("rooms")
async def play_a_room_is_opened(stage: Stage, watch: Watch) -> None:
    client = await stage.client()
    await client.send("room_create", client_ts=1, preferred_lang="zh")
    await client.expect("room_create_ack")
    await watch.until("rooms")


@moves("internal_errors_total")
async def play_a_mistake_of_ours(stage: Stage, watch: Watch) -> None:
    async def mistaken() -> None:
        raise LookupError

    stage.server.instance.tasks.start(mistaken())
    await watch.until("internal_errors_total")
    # It was meant: nobody else's play may have any.
    stage.server.instance.metrics.instance.internal_errors_total.value = 0


# Plays on several.


@moves("letters_total result=applied", "sessions_resumed_total origin=here",
       "sessions_resumed_total origin=elsewhere", "sessions_handed_over_total",
       "resumes_rejected_total", names="AB")  # fmt: skip
async def play_somebody_travels(company: Company, watch: Watch) -> None:
    node = await company["A"].node()
    node.work()
    client = await Traveller.at(company, "B")
    await client.say(opus(600), is_final=True)
    await client.socket.result(0)
    client.socket.drop()
    await client.come_back("B")
    client.socket.drop()
    await client.come_back("A")
    await client.refused("A", resume_token="x" * 32)
    await watch.until("sessions_handed_over_total", "letters_total result=applied")


@moves("instances state=dead", "instances_adopted_total", "letters_adopted_total", names="AB")
async def play_an_instance_dies(company: Company, watch: Watch) -> None:
    await company.until_met()
    node = await company["A"].node("n1")
    await company["A"].fall_silent()
    client = await company["B"].client()
    await client.utter(0)
    await until(lambda: company.ask("XLEN", company.inbox("A")), "a letter waits")
    await company["A"].crash()
    await watch.until("instances_adopted_total", "letters_adopted_total")
    assert node.id == "n1"


@moves(
    "letters_total result=failed", "letters_total result=retried", "letters_total result=buried",
    names="AB", instances__deliveries_max=2,
)  # fmt: skip
async def play_a_letter_cannot_be_applied(company: Company, watch: Watch) -> None:
    await company["A"].node("n1")
    await company["B"].server.instance.effects.peers.send(
        "A", PushJob("job-1", 1, "n1", "no-such-cell")
    )
    await watch.until("letters_total result=retried", "letters_total result=buried")


@moves("epochs_restarted_total", names="A")
async def play_the_store_is_emptied(company: Company, watch: Watch) -> None:
    client = await company["A"].client()
    company.ask("FLUSHALL")
    await client.expect("session_reset")
    await watch.until("epochs_restarted_total")


@moves("reserve_attempt_total result=error", "slow_path_total", names="A")
async def play_the_store_is_slow_and_away(company: Company, watch: Watch) -> None:
    node, client = await company["A"].node(), await company["A"].client()
    node.work()
    company.store.pause()
    try:
        await client.utter(0)
        await watch.until("reserve_attempt_total result=error")
    finally:
        company.store.resume()
    await client.result(0)
    await watch.until("slow_path_total")


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.title)
def test_what_a_play_names_moves(play: Play) -> None:
    async def watched(scene: Any) -> None:
        watch = Watch(lambda: served(scene))
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(watch.run())
            await play.act(scene, watch)
            watch.look()
            looking.cancel()
        assert [str(moved) for moved in play.moves if not watch.has(moved)] == []

    if play.names:
        many_servers.play(watched, play.names, **play.settings)
    else:
        live_server.play(watched, **play.settings)


def served(scene: Any) -> list[Stage]:
    """Return the instances of a scene that serve now."""
    if isinstance(scene, Stage):
        return [scene]
    return [member for member in scene._instances.values() if member.is_serving]


# What must not move, and what must add up.


def value(stage: Stage, text: str) -> float:
    """Return the sum of a metric's samples with these labels, as a scrape shows it."""
    wanted = row(text)
    name = f"{PREFIX}{wanted.name}"
    read = parsed(stage.server.instance.metrics.render()).get(name)
    if read is None:
        return 0
    sample = f"{name}_count" if read.type == "histogram" else name
    return sum(
        value
        for (found, labels), value in read.samples.items()
        if found == sample and set(wanted.labels) <= set(labels)
    )


def test_an_idle_node_that_is_lost_leaves_nothing_to_dispatch_again() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.drop()
        await until(lambda: value(stage, "nodes status=offline") == 1, "it is offline")
        assert value(stage, "redispatch_seconds") == 0
        assert value(stage, "nodes status=ready") == value(stage, "slots state=free") == 0

    live_server.play(scenario)


def test_a_job_that_waited_in_vain_has_left_no_node() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.utter(0)
        await client.expect("missing_result", reason="expired")
        assert value(stage, "jobs_total outcome=expired") == 1
        assert value(stage, "failovers_total") == 0

    live_server.play(scenario, jobs__pending_ms=200)


def holders(nodes: Iterable[Node], attempt: int) -> list[Node]:
    return [node for node in nodes if any(j["attempt_id"] == attempt for j in node.jobs)]


def test_a_job_that_nobody_may_try_again_has_moved_as_often_as_it_went_elsewhere() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.node(), await stage.node()]
        client = await stage.client()
        await client.utter(0)
        for attempt in (1, 2):
            await until(partial(holders, nodes, attempt), "it is assigned")
            (holder,) = holders(nodes, attempt)
            await holder.fail(holder.jobs[-1], "PROCESSING_ERROR")
        await client.expect("missing_result", reason="failed")
        assert value(stage, "failovers_total") == 1

    live_server.play(scenario, jobs__attempts_max=2)


def test_slots_of_a_node_that_takes_no_work_are_not_free() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1", max_jobs=3)
        client = await stage.client()
        assert value(stage, "slots state=free") == 3
        await client.utter(0)
        await node.job()
        assert (value(stage, "slots state=taken"), value(stage, "slots state=free")) == (1, 2)
        await node.beat(resource_usage={"cpu_percent": 99.9, "mem_percent": 1.0, "running_jobs": 1})
        await until(lambda: value(stage, "slots state=free") == 0, "its machine is too busy")
        await node.beat(resource_usage={"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 1})
        await until(lambda: value(stage, "slots state=free") == 2, "it takes work again")
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{stage.server.url}/api/v1/nodes/n1/drain", json={"draining": True}) as told,
        ):
            assert told.status == 200
        assert (value(stage, "slots state=taken"), value(stage, "slots state=free")) == (1, 0)
        assert (value(stage, "nodes status=ready"), value(stage, "nodes status=draining")) == (0, 1)

    live_server.play(scenario)


def test_a_node_that_is_drained_from_elsewhere_is_told_apart_after_its_next_beat() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("n1")
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{company['B'].server.url}/api/v1/nodes/n1/drain", json={"draining": True}
            ) as told,
        ):
            assert told.status == 200
        await node.beat()
        await until(lambda: value(company["A"], "nodes status=draining") == 1, "it is known")
        assert value(company["A"], "slots state=free") == 0

    many_servers.play(scenario)


def test_what_is_counted_of_whole_cells_adds_up_over_the_instances() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        lost = [await company[name].node(f"n-{name}") for name in "ABC"]
        for node in lost:
            node.drop()
        clients = [await company[name].client() for name in "ABCAB"]
        for client in clients:
            await client.utter(0)

        def total(text: str) -> float:
            return sum(value(company[name], text) for name in "ABC")

        await until(lambda: total("queue_depth") == 5, "each waiting job is told once")
        await until(lambda: total("nodes status=offline") == 3, "each lost node is told once")
        for _ in range(20):
            assert (total("queue_depth"), total("nodes status=offline")) == (5, 3)
            await asyncio.sleep(0.05)
        await company["B"].crash()
        others = ("A", "C")
        await until(
            lambda: sum(value(company[name], "queue_depth") for name in others) == 5,
            "the others tell what B told",
        )

    many_servers.play(scenario, "ABC", cells=4, jobs__pending_ms=30_000, jobs__binding_ms=60_000)
