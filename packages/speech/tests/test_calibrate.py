"""How many jobs at once: the decision, the rounds, and the results of earlier starts."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_node import run
from lingua_node import Job, JobFailed, Result
from lingua_speech import calibrate
from lingua_speech.calibrate import Calibration, Round, Sample, next_round, slots_of, streams_of
from lingua_speech.engine import Sound

pytestmark = pytest.mark.unit

SAMPLE = Sample(Sound(b"\1\0" * 1600, 16_000), "en", "es", speaks=True)


def rounds(*pairs: tuple[int, float]) -> list[Round]:
    return [Round(jobs, rtf) for jobs, rtf in pairs]


@pytest.mark.parametrize(
    ("measured", "slots"),
    [
        ([], 1),
        ([(1, 0.9)], 1),
        ([(1, 0.1)], 1),
        ([(1, 0.1), (2, 0.2), (4, 0.5), (8, 0.51)], 4),
        ([(1, 0.1), (2, 0.2), (4, 0.4), (8, 0.9), (6, 0.45)], 6),
        # A round that was slow by chance counts: too few jobs are better than too many.
        ([(1, 0.1), (2, 0.6), (4, 0.4)], 1),
    ],
)
def test_slots_are_the_most_that_kept_up(measured: list[tuple[int, float]], slots: int) -> None:
    assert slots_of(rounds(*measured), 0.5) == slots


@pytest.mark.parametrize(
    ("measured", "recognisers", "streams"),
    [
        ([], 1, 0),
        # A job of 5 s that takes 0.3 s alone.
        ([(1, 0.06), (2, 0.1)], 1, 2),
        ([(1, 0.06)], 2, 4),
        ([(1, 0.2)], 1, 0),
        ([(1, 0.0)], 8, calibrate.STREAMS_MAX),
    ],
)
def test_as_many_speakers_are_heard_as_the_recogniser_can_follow(
    measured: list[tuple[int, float]], recognisers: int, streams: int
) -> None:
    assert streams_of(rounds(*measured), 5.0, recognisers) == streams


def test_rounds_double_until_one_falls_behind_and_then_look_between() -> None:
    assert next_round([], 0.5) == 1
    assert next_round(rounds((1, 0.1)), 0.5) == 2
    assert next_round(rounds((1, 0.1), (2, 0.2), (4, 0.3)), 0.5) == 8
    assert next_round(rounds((1, 0.1), (2, 0.2), (4, 0.3), (8, 0.7)), 0.5) == 6
    assert next_round(rounds((1, 0.1), (2, 0.2), (4, 0.3), (8, 0.7), (6, 0.6)), 0.5) == 5
    assert next_round(rounds((1, 0.1), (2, 0.6)), 0.5) is None
    assert next_round(rounds((1, 0.7)), 0.5) is None


@given(per_job=st.floats(0.001, 2.0), max_rtf=st.floats(0.05, 2.0))
def test_a_machine_that_works_one_by_one_gets_what_it_can_do(
    per_job: float, max_rtf: float
) -> None:
    done: list[Round] = []
    while (jobs := next_round(done, max_rtf)) is not None:
        assert len(done) < 20
        done.append(Round(jobs, jobs * per_job))
    slots = slots_of(done, max_rtf)
    fits = [n for n in range(1, calibrate.CONCURRENCY_MAX + 1) if n * per_job <= max_rtf]
    assert slots == (max(fits) if fits else 1)


def test_rounds_are_real_jobs_each_of_another_session() -> None:
    seen: list[str] = []

    async def handle(job: Job) -> Result:
        seen.append(job.session_id)
        await asyncio.sleep(0)
        return Result(text_asr="heard")

    async def scenario() -> None:
        found = await calibrate.measure(handle, SAMPLE, max_rtf=10)
        assert len(set(seen)) == len(seen) == sum(one.jobs for one in found.rounds)
        assert found.slots == found.rounds[-1].jobs
        assert found.audio_s == 0.1

    run(scenario())


def test_a_sample_that_is_not_understood_is_an_error() -> None:
    async def handle(job: Job) -> Result:
        return Result.empty()

    async def scenario() -> None:
        with pytest.raises(JobFailed):
            await calibrate.warm_up(handle, SAMPLE)
        with pytest.raises(JobFailed):
            await calibrate.measure(handle, SAMPLE)

    run(scenario())


def test_what_was_measured_is_kept_for_the_same_engines_only(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    key = calibrate.key_of(["asr=a"], 4.0, 0.5)
    assert calibrate.load(folder, key) is None
    calibrate.store(folder, key, Calibration(3, (Round(1, 0.1),), 4.0))
    found = calibrate.load(folder, key)
    assert found == Calibration(3, (Round(1, 0.1),), 4.0, is_kept=True)
    others = [(["asr=b"], 4.0, 0.5), (["asr=a"], 9.0, 0.5), (["asr=a"], 4.0, 0.4)]
    assert all(calibrate.load(folder, calibrate.key_of(*other)) is None for other in others)


def test_what_is_kept_is_bounded_and_damage_is_only_measured_again(tmp_path: Path) -> None:
    for number in range(calibrate.STORED_MAX + 5):
        calibrate.store(tmp_path, str(number), Calibration(number + 1, (), 1.0))
    assert calibrate.load(tmp_path, "0") is None
    assert calibrate.load(tmp_path, str(calibrate.STORED_MAX + 4)) is not None
    for damage in (b"{", b'{"\xff":1}', b'{"3":{"slots":0,"rounds":[],"audio_s":1}}'):
        (tmp_path / calibrate.FILE).write_bytes(damage)
        assert calibrate.load(tmp_path, "3") is None
    calibrate.store(tmp_path, "3", Calibration(2, (), 1.0))
    assert calibrate.load(tmp_path, "3") is not None
    nowhere = tmp_path / calibrate.FILE / "no-folder"
    assert not calibrate.store(nowhere, "3", Calibration(2, (), 1.0))


def test_several_nodes_that_share_a_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    def keep(number: int) -> bool:
        return calibrate.store(tmp_path, f"{number % 4}", Calibration(2, (), 1.0))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(keep, range(400)))
    assert [path.name for path in tmp_path.iterdir()] == [calibrate.FILE]
