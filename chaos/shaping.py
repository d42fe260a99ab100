"""The cluster that a configuration asks for."""

from __future__ import annotations

from shaketable.chaos.plan import Configuration, tier_of
from shaketable.clusters.protocol import Shape
from shaketable.clusters.slice_states import Slices, SliceState


def shape_of(configuration: Configuration) -> Shape:
    """With slices: all whole where it does not say what they are."""
    if not configuration.topology:
        numbers = range(1, configuration.nodes + 1) if configuration.tiers else ()
        return Shape(configuration.nodes, tiers=tuple(tier_of(configuration.tiers, n) for n in numbers))
    whole: SliceState = "whole"
    states = configuration.slices or (whole,) * (configuration.nodes // configuration.hosts_per_slice)
    generation = configuration.accelerator_type.lower().removeprefix("tpu-")
    slices = Slices(generation, configuration.topology, configuration.chips_per_host, states)
    return Shape(configuration.nodes, slices=slices)
