"""Hangs: nobody has died, and nobody gets any further. Who is late is asked for its stack, named and ended. Pure.

Progress is that of the slowest rank, by its reports. What is waited for on purpose is not counted: a checkpoint under
way (the storage may be slow), a hold that is over before its workers can be told, a pause of our own loop.
"""

from __future__ import annotations

from collections import Counter

from shaketable.runtime.controller import events as ev
from shaketable.runtime.controller.attempt import Attempt, Hang
from shaketable.runtime.controller.handlers import endings, starting
from shaketable.runtime.controller.model import Model, StoodStill

# so long for the stacks of all ranks
STACKS_S = 3.0
# ranks
_SHOWN = 8


def on_paused(m: Model, event: ev.LoopPaused) -> None:
    if event.silent and event.seconds >= m.settings.config.driver_lease_s:
        m.stood_still = StoodStill(event.seconds, m.now + m.settings.config.heartbeat_timeout_s, event.agents)
    attempt = m.attempt
    if attempt is None:
        return
    attempt.moved_s = min(m.now, attempt.moved_s + event.seconds)
    # what was asked then has not had its time either
    if attempt.hang is not None:
        attempt.hang = None
        starting.watch(m)


def on_time(m: Model) -> None:
    attempt = m.live
    if attempt.signs or attempt.all_finished:
        # it is ending already
        return
    if attempt.hang is not None:
        _conclude(m, attempt.hang)
        return
    due_s = attempt.moved_s + starting.allowed_s(m)
    if any(candidate.uploading for candidate in attempt.candidates.values()):
        due_s = m.now + starting.allowed_s(m)
    if m.now < due_s:
        m.timer("hang", due_s)
        return
    late = sorted(attempt.entering) or attempt.progress.behind()
    attempt.hang = Hang(late, attempt.progress.lowest, m.now - attempt.moved_s, attempt.moved_s)
    m.do(ev.TakeStacks(attempt.number))
    m.timer("hang", m.now + STACKS_S)


def on_stacks(m: Model, event: ev.StacksTaken) -> None:
    attempt = m.live
    hang = attempt.hang
    if hang is None or attempt.signs:
        return
    hang.where[event.rank] = event.where
    if attempt.there <= hang.where.keys():
        _conclude(m, hang)


def _conclude(m: Model, hang: Hang) -> None:
    attempt = m.live
    attempt.hang = None
    if attempt.moved_s != hang.moved_s:
        m.do(ev.Warn("the attempt was slow, not hung: it has got further while its stacks were taken"))
        starting.watch(m)
        return
    detail = _described(attempt, hang)
    attempt.signs.extend(endings.sign(m, "hung", rank, detail) for rank in _culprits(hang))
    endings.stop(m)


def _culprits(hang: Hang) -> list[int]:
    """Of the ranks that are late those that stand elsewhere than most: these wait for them in a collective. Where there
    is no such place, those that do not even answer."""
    counted = Counter(hang.where.get(rank, "") for rank in hang.late)
    place, count = counted.most_common(1)[0]
    if place and 2 * count > len(hang.late) > count:
        return [rank for rank in hang.late if hang.where.get(rank, "") != place]
    return [rank for rank in hang.late if not hang.where.get(rank)] or hang.late


def _described(attempt: Attempt, hang: Hang) -> str:
    culprits = _culprits(hang)
    shown = ", ".join(f"{rank} {_place(hang, rank)}" for rank in culprits[:_SHOWN])
    more = f" and {len(culprits) - _SHOWN} more" if len(culprits) > _SHOWN else ""
    what = "not in the training function" if attempt.entering else f"no report after {hang.lowest}"
    return f"{what} for {hang.silent_s:.1f} s; late: rank {shown}{more}"


def _place(hang: Hang, rank: int) -> str:
    where = hang.where.get(rank, "")
    return f"(in {where})" if where else "(does not answer)"
