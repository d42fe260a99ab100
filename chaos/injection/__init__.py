"""From a planned fault to a landed one: triggers, targets, and the life of a fault."""
