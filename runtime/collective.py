"""`ray.train.collective`, with its import changed."""

from __future__ import annotations

from shaketable.runtime.session import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
