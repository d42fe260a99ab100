"""What is looked at once the run has ended: what it left behind, what its log says, whether its checkpoints read back.

Nothing here decides anything: every finding goes into the history, and the judge reads it there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from shaketable.chaos import procfs
from shaketable.chaos.history.collector import Collector
from shaketable.chaos.history.events import AnyEvent, LeakCheck, WorkerStarted
from shaketable.chaos.subjects.protocol import Subject
from shaketable.clusters.protocol import Cluster

LEAKS_GONE_WITHIN_S = 10.0
LOOK_EVERY_S = 0.1


def inspect(
    subject: Subject, cluster: Cluster, collector: Collector, drivers: Sequence[int], storage: str, name: str
) -> None:
    """Files first: whoever opens the run's log or reads a checkpoint may tidy up."""
    collector.emit(check_leaks(subject, cluster, collector, drivers, storage, name))
    for record in subject.log_records(storage, name):
        collector.emit(record)
    for probe in subject.probe_checkpoints(collector.snapshot(), storage, name):
        collector.emit(probe)


def check_leaks(
    subject: Subject, cluster: Cluster, collector: Collector, drivers: Sequence[int], storage: str, name: str
) -> LeakCheck:
    """Wait until nothing of the run is left, at most LEAKS_GONE_WITHIN_S. Processes that stay longer have had their
    chance: they are on record, and the harness ends them."""
    began_s = time.monotonic()
    while True:
        events = collector.snapshot() if cluster.sees_processes else []
        alive = run_processes(events, collector.config.directory, drivers) + orphans(cluster)
        left = cluster.leftovers()
        waited_s = time.monotonic() - began_s
        if not (alive or left) or waited_s > LEAKS_GONE_WITHIN_S:
            lines = [procfs.line(pid) for pid in alive]
            procfs.end(alive)
            files = subject.files_left(storage, name)
            return LeakCheck(processes=lines, cluster=left, files=files, waited_s=round(waited_s, 3))
        time.sleep(LOOK_EVERY_S)


def orphans(cluster: Cluster) -> list[int]:
    """Processes of live nodes whose parent is no longer one of them: nobody would ever end these."""
    found = []
    for node in cluster.nodes():
        pids = set(cluster.pids(node.number))
        # whoever started the first of them is its parent
        below = sorted(pids - {cluster.first_pid(node.number)})
        found += [pid for pid in below if procfs.parent(pid) not in {None, *pids}]
    return found


def run_processes(events: Sequence[AnyEvent], mark: str, drivers: Sequence[int]) -> list[int]:
    """Drivers and workers of this run, and what they have started: whoever carries the witnesses' directory in its
    environment, or is in the session of a driver or of a worker. `events`: none where workers are on other machines,
    whose numbers name processes of their own."""
    workers = {event.pid for event in events if isinstance(event, WorkerStarted)}
    return procfs.survivors(mark, workers | set(drivers))
