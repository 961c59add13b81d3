"""The jobs of an instance: by id, by session in order, and those that listeners received lately."""

from __future__ import annotations

import pytest

from lingua_scheduler.runtime.job_table import STORE_LOSES_MS
from runtime.stand_ins import KeepingOutlet, Scene

pytestmark = pytest.mark.unit


def test_a_job_that_is_here_stays_when_it_is_added_again() -> None:
    scene = Scene()
    first, again = scene.job(0), scene.job(0)
    assert first.id == again.id
    assert scene.jobs.get(first.id) is first
    assert (len(scene.jobs), first.id in scene.jobs) == (1, True)


def test_only_this_very_job_is_removed() -> None:
    scene = Scene()
    first, again = scene.job(0), scene.job(0)
    assert not scene.jobs.remove(again)
    assert scene.jobs.remove(first)
    assert not scene.jobs.remove(first)
    assert scene.jobs.pop(first.id) is None


def test_the_jobs_of_a_session_are_in_the_order_of_its_utterances() -> None:
    scene = Scene()
    later, first = scene.job(7), scene.job(2)
    own, scene.session = scene.session, scene.enter("s2", KeepingOutlet())
    other = scene.job(0)
    assert scene.jobs.of("s1") == [first, later]
    assert scene.jobs.of("s2") == [other]
    scene.jobs.remove_all_of(own)
    assert list(scene.jobs) == [other]


def test_a_session_of_the_same_id_that_resumed_meanwhile_keeps_its_jobs() -> None:
    scene = Scene()
    scene.job(0)
    former, scene.session = scene.session, scene.enter("s1", KeepingOutlet())
    job = scene.job(1)
    scene.jobs.remove_all_of(former)
    assert list(scene.jobs) == [job]


def test_a_job_that_listeners_received_is_kept_while_the_store_may_lose_that() -> None:
    scene = Scene()
    later, first = scene.job(1), scene.job(0)
    for job in (later, first):
        assert scene.jobs.pop(job.id) is job
        scene.jobs.keep_passed(job)
    assert scene.jobs.passed_of("s1") == [first, later]
    assert scene.jobs.passed_of("s2") == []
    scene.clock.at_ms += STORE_LOSES_MS
    assert scene.jobs.passed_of("s1") == [first, later]
    scene.clock.at_ms += 1
    assert scene.jobs.passed_of("s1") == []
    scene.jobs.keep_passed(scene.job(2))
    assert len(scene.jobs._passed) == 1, "older ones are forgotten"
