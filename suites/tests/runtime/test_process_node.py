"""A node of a cluster of processes: what it says of itself in the registry."""

from __future__ import annotations

from pathlib import Path

from shaketable.runtime.agent.node import Node, NodeSpec
from shaketable.runtime.transport import node_words as words


def test_a_signal_in_the_midst_of_anything_changes_nothing_before_the_loop_obeys(tmp_path: Path) -> None:
    """Its handler once wrote the entry that the node was just writing: torn, and without the drain."""
    registry = tmp_path / "registry"
    registry.mkdir()
    node = Node(NodeSpec("n", 1, "127.0.0.1", str(registry), str(tmp_path), {"CPU": 1.0}, {}, {}))
    node._register()
    before = (registry / "n.json").read_bytes()
    node._on_term()
    assert (registry / "n.json").read_bytes() == before
    node._obey()
    [(entry, alive)] = words.read_entries(registry)
    assert entry.draining and alive and entry.deadline_wall_s > 0
    deadline_s = entry.deadline_wall_s
    node._on_term()
    node._obey()
    assert words.read_entries(registry)[0][0].deadline_wall_s == deadline_s
