import pytest

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.history.events import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    DriverExited,
    DriverStarted,
    Member,
    WorkerStarted,
)
from shaketable.chaos.injection import targets
from shaketable.chaos.injection.targets import ResolvedTarget, TargetKind, TargetMissed
from shaketable.clusters.fake_slices import hosts_of, place_of
from shaketable.clusters.slice_states import slice_name
from shaketable.suites.tests.rigs.own_job_rig import configured

NODES = {"a": 1, "b": 2, "c": 3}


def started(rank: int, node: str, pid: int, attempt: int = 1) -> WorkerStarted:
    return WorkerStarted(term=1, attempt=attempt, rank=rank, world_size=2, node_id=node, pid=pid, resume=None)


GROUP: list[AnyEvent] = [started(0, "b", 70), started(1, "c", 71)]


def resolve(target: dict[str, int], target_kind: TargetKind, events: list[AnyEvent], seed: int = 0) -> ResolvedTarget:
    return targets.resolve(target, target_kind, events, NODES, str(seed))


def test_a_rank_is_its_worker_for_a_fault_of_workers() -> None:
    assert resolve({"rank": 1}, "worker", GROUP) == ResolvedTarget((71,), (), (1,), 1, 1, ("c",))


def test_a_rank_is_its_node_for_a_fault_of_nodes() -> None:
    assert resolve({"rank": 1}, "node", GROUP) == ResolvedTarget((), (3,), (1,), 1, 1)


def test_a_node_is_the_worker_on_it_for_a_fault_of_workers() -> None:
    assert resolve({"node": 2}, "worker", GROUP).pids == (70,)


def test_a_node_without_a_worker_can_be_hit_as_well() -> None:
    assert resolve({"node": 1}, "node", GROUP) == ResolvedTarget((), (1,), (), 1, 1)


HOSTS = {(0, 0): 2, (0, 1): 1, (1, 0): 3}


def resolve_slice(target: dict[str, int], target_kind: TargetKind) -> ResolvedTarget:
    return targets.resolve(target, target_kind, GROUP, NODES, "0", HOSTS)


def test_a_host_of_a_slice_is_its_node_or_the_worker_on_it() -> None:
    assert resolve_slice({"slice": 0, "host": 0}, "node") == ResolvedTarget((), (2,), (0,), 1, 1)
    assert resolve_slice({"slice": 1, "host": 0}, "worker") == ResolvedTarget((71,), (), (1,), 1, 1, ("c",))


def test_a_slice_is_all_of_its_hosts_that_are_alive() -> None:
    assert resolve_slice({"slice": 0}, "node") == ResolvedTarget((), (2, 1), (0,), 1, 1)
    assert resolve_slice({"slice": 1}, "node").nodes == (3,)


@pytest.mark.parametrize("gone", [{"slice": 1, "host": 1}, {"slice": 2}])
def test_a_slice_or_host_that_is_not_there_is_missed_with_those_that_are(gone: dict[str, int]) -> None:
    with pytest.raises(TargetMissed, match=r"there are \{slice: 0, host: 0\}, \{slice: 0, host: 1\}, \{sl"):
        resolve_slice(gone, "node")
    with pytest.raises(TargetMissed, match="there are no slices"):
        resolve(gone, "node", GROUP)


def test_slices_are_numbered_as_they_were_added_whatever_their_labels_say() -> None:
    host = hosts_of("v6e", "4x4", slice_name(1))[2].but({"worker": "0"})
    assert place_of(host, 2) == (1, 2)
    assert place_of(hosts_of("v6e", "4x4", "by-name")[2], 2) is None


def test_the_newest_attempt_counts() -> None:
    again = [started(0, "a", 80, attempt=2), started(1, "b", 81, attempt=2)]
    assert resolve({"rank": 1}, "worker", [*GROUP, *again]) == ResolvedTarget((81,), (), (1,), 1, 2, ("b",))


def test_a_random_choice_is_distinct_and_the_same_for_the_same_seed() -> None:
    drawn = [resolve({"random": 2}, "node", GROUP, seed=7).nodes for _ in range(3)]
    assert len(set(drawn)) == 1 and len(set(drawn[0])) == 2
    assert len({resolve({"random": 2}, "node", GROUP, seed=seed).nodes for seed in range(20)}) > 1


def test_a_worker_that_has_not_entered_yet_has_no_pid_to_hit() -> None:
    members = [Member(rank=0, node_id="a", pid=5)]
    begun = AttemptStarted(term=1, attempt=2, world_size=1, members=members, resume=None, resume_index=None)
    with pytest.raises(TargetMissed, match="has not entered"):
        resolve({"rank": 0}, "worker", [*GROUP, begun])
    assert resolve({"rank": 0}, "node", [*GROUP, begun]).nodes == (1,)


def test_after_its_end_an_attempt_has_no_workers() -> None:
    over = AttemptEnded(term=1, attempt=1, cause="worker_death", account="max_failures")
    with pytest.raises(TargetMissed, match="no attempt is running"):
        resolve({"rank": 1}, "worker", [*GROUP, over])


def test_the_driver_is_the_one_that_runs() -> None:
    first, second = DriverStarted(launch=0, pid=10), DriverStarted(launch=1, pid=11)
    gone = DriverExited(launch=0, code=137)
    assert resolve({}, "driver", [first, gone, second, *GROUP]) == ResolvedTarget((11,), (), (), 1, 1)
    with pytest.raises(TargetMissed, match="no driver is running"):
        resolve({}, "driver", [first, gone])


def test_of_a_script_behind_a_shell_both_are_the_driver() -> None:
    shell = DriverStarted(launch=0, pid=10)
    assert resolve({}, "driver", [shell, configured(pid=12), *GROUP]).pids == (10, 12)
    assert resolve({}, "driver", [shell, configured(pid=10), *GROUP]).pids == (10,)
    relaunched: list[AnyEvent] = [
        shell,
        configured(pid=12),
        DriverExited(launch=0, code=137),
        DriverStarted(launch=1, pid=11),
    ]
    assert resolve({}, "driver", relaunched).pids == (11,)


@pytest.mark.parametrize(
    ("wrong", "target_kind", "says"),
    [
        ({"rnk": 1}, "worker", "did you mean 'rank'?"),
        ({"rank": -1}, "worker", "rank must be a whole number from 0"),
        ({"random": 0}, "node", "random must be a whole number from 1"),
        ({"rank": 1, "node": 1}, "node", "a target is written like {rank: 1}"),
        ({"slice": -1}, "node", "slice must be a whole number from 0"),
        ({"slice": 1, "hots": 1}, "node", "did you mean 'host'?"),
        ({"slice": 1, "host": 4}, "node", "a slice has hosts 0 to 3, not 4; the nearest is 3"),
        ({"slice": 1}, "worker", "name one of the slice's hosts: {slice: 1, host: 0}"),
        ({"host": 1}, "node", "no target is called 'host'"),
        (None, "node", "a target is written like {rank: 1}"),
        ({"rank": 1}, "driver", "takes no target"),
    ],
)
def test_a_wrong_target_is_an_error_that_says_what_to_write(wrong: object, target_kind: TargetKind, says: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        targets.parse(wrong, target_kind, "fault 0", hosts=4)
    assert says in str(caught.value)


def test_slices_are_targets_only_where_there_are_some() -> None:
    assert targets.parse({"slice": 1, "host": 3}, "worker", "fault 0", hosts=4) == {"slice": 1, "host": 3}
    with pytest.raises(ExperimentError, match="fault 0: there are no TPU slices without topology"):
        targets.parse({"slice": 1}, "node", "fault 0")
