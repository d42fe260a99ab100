"""The course that ray-project/ray#61299 asks of an elastic TPU run, as one experiment: what can be observed of it, in
simulation and on fake slices of a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from shaketable.chaos import toolkit
from shaketable.chaos.history.events import FaultInjected, NodeJoined, StateChanged, read_events
from shaketable.suites.gate.catalogue import select
from shaketable.suites.tests.rigs.slices_seen import sizes, starts, used

LOCAL = pytest.param("local", marks=(pytest.mark.tpu, pytest.mark.on_demand, pytest.mark.xdist_group("tpu")))


@pytest.mark.parametrize("cluster", ["simulated", LOCAL])
def test_it_waits_for_a_whole_slice_grows_to_two_loses_one_and_finishes(cluster: str, tmp_path: Path) -> None:
    [entry] = select(["slice-lifecycle"])
    judgement = toolkit.run_file(entry.path, variables={"cluster": cluster}, folder=tmp_path)
    assert judgement.verdict == "PASS", judgement.reason
    events = read_events(tmp_path / "history.jsonl")
    assert sizes(events) == [2, 4, 2]
    assert used(events) == [["s00"], ["s00", "s01"], ["s00"]]

    waiting = next(e for e in events if isinstance(e, StateChanged) and e.state == "WAITING")
    first, second, *added = [e for e in events if isinstance(e, NodeJoined)]
    assert (first.slice, second.slice, [e.slice for e in added]) == ("s00", "s00", ["s01", "s01"])
    begun, grown, shrunk = (start.at_s for start in starts(events))
    [lost] = [e for e in events if isinstance(e, FaultInjected) and e.name == "sigkill_node"]
    # The half slice started nothing, and the whole one did; the same for the second.
    assert waiting.at_s < second.at_s < begun < max(e.at_s for e in added) < grown < lost.at_s < shrunk
