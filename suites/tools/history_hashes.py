"""Proof that a refactoring changes nothing: a digest of every simulated history.

`python -m shaketable.suites.tools.history_hashes > before` on the old commit, the same `> after` on the new one, then
`diff before after`: each line that differs names an experiment of the catalogue or a schedule of `explore`. A whole
history enters its digest, byte for byte as it would be written to `history.jsonl`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from shaketable.chaos.experiment.file import load
from shaketable.chaos.exploration.draw import draw
from shaketable.chaos.faults.arming import arm
from shaketable.chaos.history.events import AnyEvent, encode
from shaketable.chaos.simulation import player
from shaketable.suites.gate.catalogue import catalogue

# schedules on one line
CHUNK = 50


def digest(events: Iterable[AnyEvent]) -> str:
    """sha256 of the history as it would be written, in hex."""
    whole = hashlib.sha256()
    for event in events:
        whole.update(encode(event))
    return whole.hexdigest()


def of_catalogue() -> Iterator[str]:
    """One line for each experiment of the catalogue that can be simulated."""
    for entry in catalogue():
        plan = load(Path(entry.path), {"cluster": "simulated"}).plan
        if not player.not_simulated(plan):
            yield f"{digest(player.play(plan, arm(plan)).events)} {entry.name}"


def of_schedules(seed: int, first: int) -> str:
    """One line for `CHUNK` schedules of `explore --seed`, from number `first` on."""
    whole = hashlib.sha256()
    for number in range(first, first + CHUNK):
        schedule = draw(seed, number)
        whole.update(digest(player.play(schedule.plan, arm(schedule.plan), schedule.disturbances).events).encode())
    return f"{whole.hexdigest()} schedules {first} to {first + CHUNK - 1} of seed {seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=2000, help="how many schedules of explore, in steps of 50")
    parser.add_argument("--seed", type=int, default=1, help="seed of the schedules")
    given = parser.parse_args()
    for line in of_catalogue():
        print(line)
    with ProcessPoolExecutor() as pool:
        for line in pool.map(partial(of_schedules, given.seed), range(0, given.schedules, CHUNK)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
