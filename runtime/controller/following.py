"""What follows from a state, whatever led to it: for each condition of the second table, when it holds and what is
done on the way to the next state. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shaketable.runtime.controller.handlers import endings, leasing, starting
from shaketable.runtime.controller.model import Model
from shaketable.runtime.controller.table import Condition


class Follows(NamedTuple):
    """`then` is called in the new state, and may not change it."""

    holds: Callable[[Model], bool]
    then: Callable[[Model], None]


FOLLOWING: Mapping[Condition, Follows] = {
    # ---- an attempt is over
    "only echoes": Follows(endings.only_echoes, endings.begin_stop),
    "all returned": Follows(endings.all_returned, endings.finish),
    "nothing left": Follows(endings.nothing_left, endings.decide_cause),
    # ---- its end is recorded, or there was none yet
    "run finished": Follows(
        lambda m: m.run.outcome == "finished", lambda m: leasing.finish(m, "finished", metrics=m.run.metrics)
    ),
    "over budget": Follows(lambda m: bool(m.failure), lambda m: leasing.fail(m, m.failure)),
    "storage out": Follows(endings.storage_out, lambda m: leasing.fail(m, endings.outage_error(m))),
    "all corrupt": Follows(lambda m: m.run.all_corrupt, lambda m: leasing.fail(m, endings.corrupt_error(m))),
    "interrupted": Follows(
        lambda m: m.interrupted != 0, lambda m: leasing.finish(m, "interrupted", m.ended.detail if m.ended else None)
    ),
    "pause due": Follows(lambda m: endings.pause_s(m) > 0, endings.back_off),
    "otherwise": Follows(lambda m: True, endings.go_on),
    # ---- no attempt
    "given up": Follows(lambda m: bool(m.failure), lambda m: leasing.fail(m, m.failure)),
    "enough units": Follows(starting.enough_units, starting.start),
}
