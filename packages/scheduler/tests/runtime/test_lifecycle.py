"""The state of an instance: it drains once, and never runs again."""

from __future__ import annotations

import pytest

from lingua_scheduler.runtime.lifecycle import InstanceState, Lifecycle
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.transitions import IllegalTransition
from lingua_wire.to_client import ErrorMessage, Gap
from runtime.stand_ins import Scene

pytestmark = pytest.mark.unit


def test_an_instance_runs_until_it_drains() -> None:
    lifecycle = Lifecycle()
    assert (lifecycle.state, lifecycle.is_draining) == (InstanceState.RUNNING, False)
    lifecycle.drain()
    assert (lifecycle.state, lifecycle.is_draining) == (InstanceState.DRAINING, True)


def test_an_instance_drains_once() -> None:
    lifecycle = Lifecycle()
    lifecycle.drain()
    with pytest.raises(IllegalTransition) as problem:
        lifecycle.drain()
    assert problem.value.machine == "instance"
    assert lifecycle.is_draining


@pytest.mark.parametrize("hands_over", [True, False])
def test_an_instance_that_drains_may_hand_its_clients_over(hands_over: bool) -> None:
    lifecycle = Lifecycle()
    assert not lifecycle.hands_over
    lifecycle.drain(hands_over=hands_over)
    assert (lifecycle.is_draining, lifecycle.hands_over) == (True, hands_over)


@pytest.mark.parametrize(
    ("hands_over", "state"), [(True, SessionState.MOVING), (False, SessionState.CONNECTED)]
)
def test_a_client_that_resumes_meanwhile_is_on_its_way_if_there_is_another_instance(
    hands_over: bool, state: SessionState
) -> None:
    scene = Scene(token="secret")
    scene.session.notifier.detach()
    scene.session.record.move(SessionState.DISCONNECTED)
    scene.instance.lifecycle.drain(hands_over=hands_over)
    scene.session.attach(scene.outlet)
    assert scene.session.record.state is state


def test_all_parts_of_an_instance_ask_the_same_state() -> None:
    scene = Scene(audio_format="pcm16")
    scene.instance.lifecycle.drain()
    scene.session.input.audio(b"\1\0" * 1600, seq=0, is_final=False)
    (gap, error) = scene.outlet.take()
    assert isinstance(gap, Gap)
    assert gap.reason == "shutdown"
    assert isinstance(error, ErrorMessage)
    assert error.code == "BUSY"
