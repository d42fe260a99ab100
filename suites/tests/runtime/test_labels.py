"""What is asked of a node's labels, with Ray's operators."""

from __future__ import annotations

import pytest

from shaketable.runtime.tpu.labels import lacking

SPOT = {"kind": "spot", "zone": "a"}


@pytest.mark.parametrize("wanted", ["spot", "in(spot)", "in(spare, spot)", "in(spare,spot)", "!spare", "!in(spare, x)"])
def test_a_node_with_the_label_fulfils_this(wanted: str) -> None:
    assert lacking(SPOT, (("kind", wanted),)) == ""


@pytest.mark.parametrize("wanted", ["spare", "in(spare, x)", "!spot", "!in(spare, spot)", "spo", "in(spotty)"])
def test_a_node_with_the_label_does_not_fulfil_this(wanted: str) -> None:
    assert lacking(SPOT, (("kind", wanted),)) == f"kind={wanted}"


def test_a_node_without_the_label_has_none_of_its_values() -> None:
    assert lacking({}, (("kind", "spot"),)) == "kind=spot"
    assert lacking({}, (("kind", "in(spot, spare)"),)) == "kind=in(spot, spare)"
    assert lacking({}, (("kind", "!spot"), ("kind", "!in(spot, spare)"))) == ""


def test_every_condition_has_to_be_fulfilled_and_the_first_that_is_not_is_named() -> None:
    assert lacking(SPOT, (("kind", "spot"), ("zone", "b"), ("rack", "1"))) == "zone=b"
    assert lacking(SPOT, ()) == ""
