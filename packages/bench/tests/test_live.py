"""The live benchmark: its arithmetic, its checks shown to reject, and one short real run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import uvloop

from lingua_bench import live_nodes, live_report
from lingua_bench.commands.bench_live import (
    live_json_lines,
    live_page,
    paced_sentence,
    plan_of,
)
from lingua_bench.live import (
    FULL,
    GROWTH,
    QUICK,
    LiveBench,
    LivePlan,
    frame_us,
    measure_live,
    next_try,
)
from lingua_bench.live_clients import overhead_of, percentile
from lingua_bench.live_metrics import PeerTraffic, traffic_in
from lingua_bench.live_orders import (
    ClosedLoop,
    MemoryOrder,
    OpenLoop,
    Order,
    OrderResult,
    Paced,
    decode_order,
    encode,
)
from lingua_bench.live_processes import (
    STORE_NAMES,
    LoadProcess,
    running_system,
    url_in,
    workers_option,
)
from lingua_bench.live_report import (
    LiveReport,
    LiveSummary,
    PacedRow,
    best_of,
    closed_row,
    paced_row,
)
from lingua_bench.live_speaker import BenchmarkSession, LoadFailed, Parts, SpeakerMessage, Tally
from lingua_bench.live_speech import FRAMES, speech_frames
from lingua_bench.live_usage import ProcessGone, children_of, descendants_of, usage_of
from lingua_cli.interpreter import this_interpreter
from lingua_cli.main import build_parser
from lingua_scheduler.session.voice import EnergyDetector

pytestmark = pytest.mark.stress

SUMMARY_KEYS = [
    "utterances_per_s_64",
    "utterances_per_s_256",
    "round_trip_p50_ms",
    "round_trip_p99_ms",
    "cpu_us_per_utterance",
    "cpu_us_per_frame",
    "paced_sessions",
    "paced_p99_ms",
    "rss_kb_per_session",
    "lost",
    "duplicates",
    "inversions",
    "cpu_us_all",
    "cpu_us_store",
    "workers",
    "letters_per_outcome",
    "frame_us_streamed",
    "frame_streamed_ratio",
]
TINY = LivePlan(
    slice_s=0.4,
    slices=1,
    single_s=0.4,
    frames_s=0.6,
    memory=MemoryOrder(idle=40, speaking=10, frames=3),
    paced_first=20,
    paced_most=40,
    paced_s=1.5,
    paced_tries=2,
    paced_chances=1,
    limit_s=20.0,
    growth=(32, 64),
    streaming=True,
)


def report_of(rows: Sequence[PacedRow]) -> LiveReport:
    nothing = dict.fromkeys(SUMMARY_KEYS, 0)
    best = best_of(rows)
    summary = LiveSummary(**nothing | {"paced_sessions": best.sessions if best else None})
    return LiveReport(
        closed=[],
        paced=rows,
        growth=[],
        relay_ratio=1.0,
        rss_kb_per_speaking_session=0.0,
        missing=0,
        errors={},
        summary=summary,
    )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    uvloop.run(scenario)


def row(sessions: int, p99_ms: float, *, load_limited: bool = False, errors: int = 0) -> PacedRow:
    return PacedRow(
        sessions=sessions,
        utterances=100,
        p50_ms=1.0,
        p99_ms=p99_ms,
        timeline_p99_ms=p99_ms,
        scheduler_cpu_percent=50.0,
        late_p99_ms=1.0,
        load_limited=load_limited,
        errors=errors,
    )


class LoadThatAnswers(LoadProcess):
    """A load whose paced sessions are as slow as the test says; nothing runs."""

    def __init__(self, p99_ms: Callable[[int], float]) -> None:
        self._p99_ms = p99_ms
        self.tried: list[int] = []
        self._told = 0

    async def follow(self, order: Order, limit_s: float) -> OrderResult:
        assert isinstance(order, Paced)
        self.tried.append(order.sessions)
        p99_ms = self._p99_ms(order.sessions)
        self._told += 904 if p99_ms > 100 else 0
        return OrderResult(
            seconds=order.seconds,
            frames=int(order.sessions * 10 * order.seconds),
            utterances=100,
            p99_ms=p99_ms,
            timeline_p99_ms=p99_ms,
            errors={"SLOW": self._told},
        )


def outcome(index: int, kind: str = "translation_result") -> SpeakerMessage:
    return SpeakerMessage(type=kind, utterance_index=index)


def test_a_run_measures_everything_and_ends_with_the_numbers_to_quote() -> None:
    told: list[str] = []

    async def scenario() -> None:
        report = await measure_live(TINY, lambda what, _: told.append(what))
        lines = live_json_lines(report).splitlines()
        summary = msgspec.json.decode(lines[-1])
        assert list(summary) == SUMMARY_KEYS
        assert (summary["lost"], summary["duplicates"], summary["inversions"]) == (0, 0, 0)
        positive = ("utterances_per_s_64", "utterances_per_s_256", "round_trip_p50_ms")
        assert all(summary[name] > 0 for name in (*positive, "cpu_us_per_frame"))
        assert summary["round_trip_p50_ms"] <= summary["round_trip_p99_ms"]
        assert report.relay_ratio > 1, "a scheduler does more than a relay"
        assert summary["frame_us_streamed"] > 0
        assert summary["frame_streamed_ratio"] > 0
        assert "that a node hears" in live_page(report)
        assert report.missing == 0
        assert summary["cpu_us_all"] > summary["cpu_us_store"] > 0
        assert (summary["workers"], summary["letters_per_outcome"]) == (1, 0), "one instance"
        assert [found.case for found in report.growth] == ["32 sessions", "64 sessions"]
        assert msgspec.json.decode(lines[-2])["growth_of_sessions"] > 0
        assert {found.sessions for found in report.paced} >= {20}
        assert all(found.utterances > 0 for found in report.paced)
        page = live_page(report)
        assert "64 in flight" in page
        assert str(this_interpreter()) in page.splitlines()[-1]

    run(scenario())
    assert "paced: 20 sessions" in told


def test_everything_that_was_started_is_gone_afterwards() -> None:
    async def scenario() -> None:
        before = set(children_of(os.getpid()))
        async with running_system() as load:
            found = await load.follow(OpenLoop(rate=50, seconds=0.4), 30)
            assert found.utterances == 20
            assert set(children_of(os.getpid())) > before
        assert set(children_of(os.getpid())) == before

    run(scenario())


def test_a_load_process_that_ends_is_told_as_such() -> None:
    async def scenario() -> None:
        async with running_system() as load:
            load.process.kill()
            await load.process.wait()
            with pytest.raises(LoadFailed, match="the load process ended before"):
                await load.follow(ClosedLoop(sessions=1, each=1, seconds=0.1), 10)

    run(scenario())


def test_each_utterance_must_come_back_once_and_in_order() -> None:
    async def scenario() -> None:
        tally = Tally()
        speaker = BenchmarkSession(tally)
        for index in range(4):
            speaker.pending[index] = 0.0
            tally.sent += 1
        speaker._take(outcome(0))
        assert (tally.lost, tally.duplicates, tally.inversions) == (3, 0, 0)
        speaker._take(outcome(2))
        assert (tally.lost, tally.duplicates, tally.inversions) == (2, 0, 1)
        speaker._take(outcome(1))
        speaker._take(outcome(1))
        assert (tally.lost, tally.duplicates, tally.inversions) == (1, 1, 1)
        speaker._take(outcome(3, "missing_result"))
        assert (tally.lost, tally.outcomes["missing_result"]) == (0, 1)
        speaker._take(SpeakerMessage(type="error", code="BUSY"))
        assert tally.errors == {"BUSY": 1}

    asyncio.run(scenario())


def test_orders_travel_as_lines() -> None:
    for order in (Paced(sessions=3, seconds=1.5), QUICK.memory, OpenLoop(rate=100, seconds=2)):
        line = encode(order)
        assert b"\n" not in line
        assert decode_order(line) == order


def test_the_search_doubles_then_halves_and_gives_second_chances() -> None:
    plan = replace(QUICK, paced_first=1000, paced_most=4000, paced_chances=2)
    assert next_try([], plan) == 1000
    assert next_try([row(1000, 5)], plan) == 2000
    assert next_try([row(1000, 5), row(2000, 30)], plan) == 2000
    failed_twice = [row(1000, 5), row(2000, 30), row(2000, 31)]
    assert next_try(failed_twice, plan) == 1500
    assert next_try([*failed_twice, row(1500, 19)], plan) == 1750
    assert next_try([row(4000, 5)], plan) is None
    assert next_try([row(1000, 30), row(1000, 30)], plan) == 500
    near = [row(1000, 5), row(1060, 30), row(1060, 30)]
    assert next_try(near, plan) is None


def tried_by(plan: LivePlan, p99_ms: Callable[[int], float]) -> tuple[list[int], list[PacedRow]]:
    """Return the numbers of sessions that a search tries, and what it finds."""
    load = LoadThatAnswers(p99_ms)

    async def scenario() -> list[PacedRow]:
        bench = LiveBench(plan, load, lambda *_: None)
        bench._found.append(OrderResult())
        return await bench._paced()

    return load.tried, asyncio.run(scenario())


def test_a_busy_machine_gets_half_the_sessions_until_a_load_fits() -> None:
    tried, rows = tried_by(QUICK, lambda sessions: 5.0 if sessions <= 70 else 500.0)
    assert tried == [1000, 500, 250, 125, 62]
    best = best_of(rows)
    assert best is not None
    assert (best.sessions, best.errors) == (62, 0)
    assert rows[0].errors == 904, "what was told in a try that was too much stays with that try"


def test_a_search_ends_at_the_fewest_sessions_and_says_that_nothing_fitted() -> None:
    tried, rows = tried_by(QUICK, lambda _: 50.0)
    assert tried == [1000, 500, 250, 125, 62, 31, 25]
    assert best_of(rows) is None
    said = paced_sentence(report_of(rows))
    assert said.startswith("No result for sessions with p99 within 20 ms: with 25, the fewest")
    assert "p99 50 ms" in said


def test_a_fixed_number_of_sessions_is_tried_once() -> None:
    arguments = build_parser(("bench",)).parse_args(["bench", "live", "--sessions", "700"])
    for p99_ms in (5.0, 50.0):
        tried, _ = tried_by(plan_of(arguments), lambda _, found=p99_ms: found)
        assert tried == [700]


def test_the_command_line_is_a_plan() -> None:
    parse = build_parser(("bench",)).parse_args
    assert plan_of(parse(["bench", "live"])) == FULL
    assert plan_of(parse(["bench", "live", "--quick"])) == QUICK
    more = plan_of(parse(["bench", "live", "--quick", "--workers", "2", "--growth"]))
    assert more == replace(QUICK, workers=2, growth=GROWTH)
    assert plan_of(parse(["bench", "live", "--streaming"])) == replace(FULL, streaming=True)
    assert (workers_option(1), workers_option(2)) == ((), ("--workers", "2"))
    for wrong in (["--workers", "0"], ["--sessions", "many"]):
        with pytest.raises(SystemExit):
            parse(["bench", "live", *wrong])


def test_without_streams_there_is_no_figure_and_a_frame_is_the_median_of_its_slices() -> None:
    report = report_of([row(25, 5.0)])
    plain = replace(report.summary, frame_us_streamed=None, frame_streamed_ratio=None)
    assert "that a node hears" not in live_page(replace(report, summary=plain))
    slices = [OrderResult(frames=10, scheduler_cpu_s=cpu_s) for cpu_s in (1e-4, 9e-4, 3e-4)]
    assert frame_us(slices) == pytest.approx(30.0)


def test_messages_between_instances_are_counted_per_outcome() -> None:
    page = """# TYPE scheduler_letters_total counter
scheduler_letters_total{result="applied"} 30
scheduler_letters_total{result="retried"} 5
scheduler_jobs_total{outcome="completed"} 90
scheduler_jobs_total{outcome="failed"} 10
scheduler_sessions 4
"""
    found = traffic_in(page)
    assert found == PeerTraffic(letters=30, outcomes=100)
    assert found.per_outcome_since(PeerTraffic(letters=10, outcomes=60)) == 0.5
    assert traffic_in("").per_outcome_since(traffic_in("")) == 0


def test_the_processes_of_a_service_are_told_from_its_store() -> None:
    async def scenario() -> None:
        async with running_system() as load:
            found = await load.follow(OpenLoop(rate=50, seconds=0.2), 30)
            assert found.scheduler_cpu_s > 0
            assert found.store_cpu_s > 0
            below = descendants_of(os.getpid())
        assert sum(name.startswith(STORE_NAMES) for name in below.values()) == 1

    run(scenario())


def test_a_number_of_sessions_counts_only_if_the_load_kept_up() -> None:
    rows = [row(500, 10), row(1000, 19.9), row(2000, 5, load_limited=True), row(4000, 25)]
    best = best_of(rows)
    assert best is not None
    assert best.sessions == 1000
    assert best_of([row(500, 21)]) is None
    assert best_of([row(500, 5, errors=3)]) is None, "clients were told to slow down"
    assert not row(500, 0.0).is_within, "no utterance came back: nothing was shown"


def test_a_load_that_is_late_or_sends_too_little_is_the_limit() -> None:
    found = OrderResult(seconds=4.0, frames=4000, utterances=130, p99_ms=3.0, late_p99_ms=2.0)
    assert not paced_row(100, found).load_limited
    found.late_p99_ms = live_report.LATE_MS_MAX + 1
    assert paced_row(100, found).load_limited
    found.late_p99_ms, found.frames = 2.0, 3800
    assert paced_row(100, found).load_limited


def test_a_row_is_the_median_of_its_slices() -> None:
    slices = [
        OrderResult(seconds=2.0, utterances=n, scheduler_cpu_s=n * 1e-4, relay_cpu_s=n * 1e-5)
        for n in (1000, 3000, 2000)
    ]
    assert closed_row("x", slices).per_s == 1000
    assert closed_row("x", slices).scheduler_cpu_us == pytest.approx(100)
    for part in slices:
        part.store_cpu_s = part.utterances * 3e-5
    assert closed_row("x", slices).all_cpu_us == pytest.approx(130)
    slices[0].rewrites_cpu_s = 0.06
    rewritten = closed_row("x", slices)
    assert rewritten.store_cpu_us == pytest.approx(30), "a rewrite in one slice of three"
    assert (rewritten.rewrites_cpu_us, rewritten.all_cpu_us) == pytest.approx((10, 140))
    assert closed_row("x", slices, relayed=True).all_cpu_us == pytest.approx(10)
    assert closed_row("x", slices, relayed=True).scheduler_cpu_us == pytest.approx(10)


def test_percentiles_and_overheads_are_read_as_meant() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values[::-1], 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([], 0.99) == 0
    parts = Parts(place_ms=1, queue_ms=2, push_ms=4, settle_ms=8)
    assert overhead_of(SpeakerMessage(type="translation_result", timeline=parts)) == 15
    assert live_nodes.read_stamp(live_nodes.stamp(12.5, 13.25)) == (12.5, 13.25)


def test_the_frames_sound_like_speech_with_dips() -> None:
    detector = EnergyDetector(16_000)
    frames = speech_frames()
    assert [len(frame) for frame in frames] == [3200] * FRAMES
    heard = [detector.is_voice(frame) for frame in frames * 4]
    assert 0.6 < sum(heard) / len(heard) < 0.95
    longest_silence = max(len(run) for run in "".join("sv"[voice] for voice in heard).split("v"))
    assert longest_silence < 4, "400 ms of silence would end an utterance"


def test_usage_grows_with_work_and_a_dead_process_has_none() -> None:
    before = usage_of(os.getpid())
    while usage_of(os.getpid()).cpu_s == before.cpu_s:
        sum(range(10_000))
    assert before.rss_kb > 1000
    with pytest.raises(ProcessGone):
        usage_of(2**22 + 1)


def test_the_address_is_found_in_the_greeting() -> None:
    assert url_in("lingua 0.1.0 listens on http://127.0.0.1:5010 (x)") == "http://127.0.0.1:5010"
    with pytest.raises(LoadFailed):
        url_in("nothing of the kind")
