"""The adapters of the older protocol: which messages its clients and nodes are sent, and how."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lingua_scheduler.edge.old_protocol import (
    OLD_NODE,
    ClientChoices,
    OldNodeOutlet,
    outlet_for,
)
from lingua_scheduler.runtime.node import NodeTraits
from lingua_wire.from_client import SessionInit
from lingua_wire.from_node import NodeRegister
from lingua_wire.shared import Term
from lingua_wire.to_node import (
    JobAssign,
    JobCancel,
    JobResultAck,
    NodeRegisterAck,
    NodeStatusMessage,
    NodeTokenExpiring,
    ToNode,
)
from runtime.stand_ins import NodeSocket, Scene

pytestmark = pytest.mark.unit


def old() -> tuple[OldNodeOutlet, NodeSocket]:
    socket = NodeSocket()
    return OldNodeOutlet(socket), socket


def assignment() -> JobAssign:
    terms = (Term(term="Hangzhou", translations={"en": "Hangzhou"}),)
    return msgspec.structs.replace(Scene().job(0).assign, glossary=terms, deadline_ms=900)


# Nodes.


def test_a_node_without_a_boot_id_is_of_the_older_protocol() -> None:
    socket = NodeSocket()
    assert isinstance(outlet_for(NodeRegister(), socket), OldNodeOutlet)
    assert outlet_for(NodeRegister(boot_id="b1"), socket) is socket


def test_an_old_node_cannot_resume_and_buffers_slices() -> None:
    outlet, _ = old()
    assert outlet.traits == OLD_NODE == NodeTraits(resumes=False, buffers_slices=True)
    assert NodeTraits() == NodeTraits(resumes=True, buffers_slices=False)


@pytest.mark.parametrize(
    "message",
    [
        JobResultAck(job_id="j", attempt_id=1, status="accepted"),
        NodeStatusMessage(node_id="n1", status="ready", timestamp=0),
        NodeTokenExpiring(expires_in_ms=1000),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_old_node_is_not_sent_what_it_does_not_know(message: ToNode) -> None:
    outlet, socket = old()
    socket.is_dead = True
    # Left out, not lost: the caller must not take the socket for a dead one.
    assert outlet.send(message)
    assert socket.sent == []


def test_an_old_node_is_acknowledged_without_our_limits() -> None:
    outlet, socket = old()
    ack = NodeRegisterAck(
        node_id="n1", message="registered", status="registering", max_jobs=4, heartbeat_ms=2000
    )
    assert outlet.send(ack)
    (sent,) = socket.sent
    assert sent == msgspec.structs.replace(ack, max_jobs=None, heartbeat_ms=None)


def test_an_old_node_is_sent_other_messages_unchanged() -> None:
    outlet, socket = old()
    cancel = JobCancel(job_id="j", reason="cancelled", attempt_id=1)
    assert outlet.send(cancel)
    assert socket.sent == [cancel]


def test_a_job_is_sent_to_an_old_node_without_glossary_and_deadline() -> None:
    outlet, socket = old()
    message = assignment()
    assert outlet.assign(message, "")
    assert socket.sent == [msgspec.structs.replace(message, glossary=(), deadline_ms=None)]


def test_each_language_of_an_utterance_is_a_session_of_its_own_to_an_old_node() -> None:
    outlet, socket = old()
    message = assignment()
    assert outlet.assign(message, "de")
    (sent,) = socket.sent
    assert isinstance(sent, JobAssign)
    assert (sent.session_id, sent.turn_id) == ("s1~de", f"{message.turn_id}~de")
    assert (sent.job_id, sent.glossary, sent.deadline_ms) == (message.job_id, (), None)


def test_a_dead_socket_of_an_old_node_is_reported_and_closing_is_passed_on() -> None:
    outlet, socket = old()
    socket.is_dead = True
    assert not outlet.send(JobCancel(job_id="j", reason="cancelled", attempt_id=1))
    assert not outlet.assign(assignment(), "de")
    outlet.close(4000, "bye")
    assert socket.closed_with == 4000


def test_a_status_that_an_old_node_is_not_sent_is_noted_all_the_same() -> None:
    scene = Scene()
    node, socket = scene.node(boot_id=None)
    node.report_status("ready", 0)
    assert (node.status, node.takes_work, socket.sent) == ("ready", True, [])


# Clients.


@pytest.mark.parametrize(
    ("subprotocol", "choices"),
    [
        (None, ClientChoices(speaks_additions=False, wants_events=True)),
        ("lingua.v1", ClientChoices(speaks_additions=True, wants_events=False)),
    ],
)
def test_a_client_without_a_subprotocol_is_of_the_older_protocol(
    subprotocol: str | None, choices: ClientChoices
) -> None:
    assert ClientChoices.at_first(subprotocol) == choices


@pytest.mark.parametrize(
    ("given", "speaks_additions"),
    [
        ({}, False),
        ({"audio_format": "pcm16"}, True),
        ({"tgt_langs": ("en", "de")}, True),
        ({"sample_rate": 8000}, True),
        ({"trace_id": "t"}, False),
    ],
    ids=str,
)
def test_a_client_that_uses_an_addition_knows_them(
    given: dict[str, Any], speaks_additions: bool
) -> None:
    init = SessionInit(src_lang="zh", tgt_lang="en", **given)
    assert ClientChoices.at_first(None).after(init).speaks_additions is speaks_additions
    assert ClientChoices.at_first("lingua.v1").after(init).speaks_additions


@pytest.mark.parametrize("subprotocol", [None, "lingua.v1"])
@pytest.mark.parametrize("ui_events", [None, True, False])
def test_a_client_may_choose_whether_it_gets_events(
    subprotocol: str | None, ui_events: bool | None
) -> None:
    init = SessionInit(src_lang="zh", tgt_lang="en", ui_events=ui_events)
    wants_events = ClientChoices.at_first(subprotocol).after(init).wants_events
    assert wants_events is (subprotocol is None if ui_events is None else ui_events)
