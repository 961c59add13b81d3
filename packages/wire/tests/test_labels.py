"""Labels of nodes: which are valid, and their order."""

import pytest

from lingua_scheduler.nodes.capability import Capability, Declared, capability, read_descriptor
from lingua_wire.errors import InvalidLabel
from lingua_wire.labels import LABELS_MAX, checked_labels

pytestmark = pytest.mark.unit


def test_labels_have_one_order_and_are_there_once() -> None:
    assert checked_labels(["gpu-a", "eu", "eu", "A.1_b"]) == ("A.1_b", "eu", "gpu-a")
    assert checked_labels(()) == ()


@pytest.mark.parametrize(
    "label", ["", "-a", ".a", "a b", "a,b", "a|b", "a:b", "é", "a\n", "x" * 64, "{a}"]
)
def test_an_invalid_label_is_refused(label: str) -> None:
    with pytest.raises(InvalidLabel):
        checked_labels([label])


def test_labels_are_not_many() -> None:
    assert len(checked_labels(f"l{n}" for n in range(LABELS_MAX))) == LABELS_MAX
    with pytest.raises(InvalidLabel, match="more than"):
        checked_labels(f"l{n}" for n in range(LABELS_MAX + 1))


def test_labels_are_part_of_what_a_node_can_do() -> None:
    bare = capability(Declared(services={}))
    named = capability(Declared(services={}, labels=("gpu", "eu")))
    assert named.labels == ("eu", "gpu")
    assert bare != named
    assert bare.packed() != named.packed()


def test_a_pool_that_an_older_instance_wrote_has_no_labels() -> None:
    can, _ = read_descriptor(b'{"any":true,"services":[],"features":[],"owner":""}')
    assert can == Capability({})
    assert can.labels == ()
