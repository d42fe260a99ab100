import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.experiment import file as experiment_file
from shaketable.chaos.faults import arming
from shaketable.chaos.plan import Expect, FaultPlan

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
INCIDENTS = sorted((Path(__file__).parents[2] / "incidents").glob("*.yaml"))
FIFTEEN = {
    "worker-crash",
    "worker-exception",
    "worker-crash-beyond-budget",
    "node-sigterm",
    "node-sigkill",
    "node-frozen",
    "two-nodes",
    "below-min",
    "node-added",
    "grow-then-lose",
    "driver-sigkill",
    "driver-sigkill-upload",
    "driver-sigterm",
    "reopened",
    "torch-ddp-worker-crash",
}
NODE_SIGTERM = next(path for path in EXPERIMENTS if path.stem == "node-sigterm")


def changed(tmp_path: Path, **parts: Any) -> Path:
    """node-sigterm with some of its top-level parts replaced; None removes one."""
    document = yaml.safe_load(NODE_SIGTERM.read_text()) | parts
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
    return path


def configured(tmp_path: Path, **values: Any) -> Path:
    configuration = yaml.safe_load(NODE_SIGTERM.read_text())["configuration"]
    return changed(tmp_path, configuration=configuration | values)


def action(func: str, **arguments: Any) -> dict[str, Any]:
    provider = {"type": "python", "module": "shaketable.chaos.toolkit", "func": func, "arguments": arguments}
    return {"type": "action", "name": func, "provider": provider}


def test_the_catalogue_has_the_fifteen() -> None:
    assert {path.stem for path in EXPERIMENTS} >= FIFTEEN


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_is_at_most_forty_lines_and_means_a_plan(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40
    file = experiment_file.load(path)
    # what a cluster does by itself needs no fault
    assert arming.arm(file.plan) or file.plan.expect.world_size
    assert {"gate", "torch", "jax", "budget", "storage", "driver", "tpu", "apart", "network", "elastic", "pods"} & set(
        file.document["tags"]
    )


NUMBERS = {"one": 1, "two": 2, "three": 3, "second": 2, "third": 3}
ACCOUNTS = {"failure": "max_failures", "preemption": "max_preemption_failures", "start": "max_start_failures"}
ANY = "(" + "|".join(NUMBERS) + ")"


def expected(title: str) -> Iterator[tuple[str, object]]:
    """What the title of a hypothesis says, as arguments of `verdict`."""
    if outcome := re.search(r"(?:^|then )(finished|failed)(?! first)", title.lower()):
        yield "outcome", outcome[1]
    if driver := re.search(rf"by the {ANY} driver", title):
        yield "driver", NUMBERS[driver[1]]
    if "nothing charged" in title:
        yield "charged", {}
    if "charged" in title and (counts := re.findall(rf"{ANY} (failure|preemption|start)s?\b", title)):
        yield "charged", {ACCOUNTS[what]: NUMBERS[count] for count, what in counts}
    if "no step lost" in title:
        yield "steps_lost", 0


@pytest.mark.parametrize("path", [*EXPERIMENTS, *INCIDENTS], ids=lambda path: path.stem)
def test_what_a_title_says_is_asserted(path: Path) -> None:
    file = experiment_file.load(path)
    said = dict(expected(file.document["steady-state-hypothesis"]["title"]))
    assert said, "a title says at least how the run ends"
    for argument, value in said.items():
        assert getattr(file.plan.expect, argument) == value, argument


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_dumped_plan_loads_to_the_same_plan(path: Path, tmp_path: Path) -> None:
    file = experiment_file.load(path, {"seed": "7"})
    again = tmp_path / "experiment.yaml"
    again.write_text(yaml.safe_dump(experiment_file.dump(file.plan, file.document)))
    assert experiment_file.load(again).plan == file.plan


def test_the_file_of_the_design_says_what_it_says() -> None:
    plan = experiment_file.load(NODE_SIGTERM).plan
    assert plan.faults == (FaultPlan("sigterm_node", {"rank": 1}, {"step": 12}),)
    assert plan.expect == Expect("finished", {"max_preemption_failures": 1}, 0, 300.0)
    assert (plan.configuration.num_workers, plan.configuration.nodes) == ((1, 3), 3)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("seed", "7", 7),
        ("subject", "ray-train", "ray-train"),
        ("num_workers", "[2, 4]", (2, 4)),
        ("num_workers", "2", 2),
        ("job_config", "{steps: 80}", {"steps": 80}),
        ("max_failures", "-1", -1),
    ],
)
def test_a_variable_is_text_and_becomes_what_its_key_is(key: str, text: str, value: object) -> None:
    assert getattr(experiment_file.load(NODE_SIGTERM, {key: text}).plan.configuration, key) == value


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("null", None)])
def test_how_many_checkpoints_are_kept_may_be_varied_where_the_file_says_it(
    text: str, value: int | None, tmp_path: Path
) -> None:
    path = configured(tmp_path, num_to_keep=3)
    assert experiment_file.load(path).plan.configuration.num_to_keep == 3
    assert experiment_file.load(path, {"num_to_keep": text}).plan.configuration.num_to_keep == value


def test_an_undeclared_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ExperimentError, match=r"--var sed: .* did you mean 'seed'\?"):
        experiment_file.load(NODE_SIGTERM, {"sed": "7"})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_worker": 3}, "did you mean 'num_workers'?"),
        ({"num_workers": [3, 1]}, "min 3 is above max 1"),
        ({"num_workers": [1, 2, 3]}, "must be a number or [min, max]"),
        ({"num_workers": 0}, "num_workers: must be a whole number from 1 to 2048, not 0"),
        ({"max_failures": -2}, "max_failures: must be 0, a count, or -1 for unlimited, not -2"),
        ({"num_to_keep": 0}, "num_to_keep: must be a count from 1, or null for all, not 0"),
        ({"num_to_keep": True}, "num_to_keep: must be a count from 1, or null for all, not True"),
        ({"nodes": 0}, "nodes: must be a whole number from 1 to 2048"),
        ({"nodes": 65}, "nodes: 65 are more than 64, which only cluster: simulated has"),
        ({"subject": "rai-train"}, "did you mean 'ray-train'?"),
        ({"cluster": "mars"}, "there are: containers, local"),
        ({"heartbeat_timeout_s": 0}, "heartbeat_timeout_s: must be seconds above 0"),
        ({"job": "my_job"}, "job must be written package.module:function"),
        ({"job": "no_such_package.job:train"}, "there is no module 'no_such_package.job'"),
        ({"job_config": 3}, "must be a mapping such as {steps: 40}"),
        ({"step_key": "epoch"}, "step_key 'epoch' is for a job of one's own; shaketable.workloads:hash_chain"),
        ({"job_config": {"stepz": 4}}, "job_config: no key is called 'stepz'; did you mean 'steps'?"),
        ({"job_config": {"steps": "many"}}, "job_config: steps: must be a whole number from 0, not 'many'"),
        ({"job_config": {"steps": 0}}, "job_config: hash_chain: job_config steps is 0, must be at least 1"),
        ({"job_config": {"fail_at": "6"}}, "job_config: fail_at: must be a whole number from 0 or null, not '6'"),
        ({"job_config": {"step_s": "fast"}}, "job_config: step_s: must be seconds"),
        ({"job_config": {"sharded": "yes"}}, "job_config: sharded: must be true or false, not 'yes'"),
        (
            {"job": "shaketable.workloads:jax_sharded", "job_config": {"stepz": 4}},
            "job_config: no key is called 'stepz'; did you mean 'steps'?",
        ),
    ],
)
def test_a_wrong_configuration_is_an_error_that_names_the_key(
    values: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment_file.load(configured(tmp_path, **values))
    assert says in str(caught.value) and "changed.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("activity", "says"),
    [
        (action("sigtern_node", target={"rank": 1}, at={"step": 1}), "did you mean 'sigterm_node'?"),
        (action("sigterm_node", targt={"rank": 1}, at={"step": 1}), "did you mean 'target'?"),
        (action("sigterm_node", at={"step": 1}), "sigterm_node has no `target`; write target: {rank: 1}"),
        (action("relaunch_driver", at={"after": 0}, changed={"max_failurs": 3}), "did you mean 'max_failures'?"),
        ({"type": "action", "name": "x", "provider": {"type": "process", "path": "rm"}}, "must be a python activity"),
    ],
)
def test_a_wrong_method_is_an_error_that_names_the_place(activity: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment_file.load(changed(tmp_path, method=[activity]))
    assert says in str(caught.value) and "method[0]" in str(caught.value)


def test_a_fault_that_cannot_be_undone_takes_no_until(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="takes no argument 'until'"):
        experiment_file.load(
            changed(tmp_path, method=[action("sigkill_node", target={"rank": 1}, at={"step": 1}, until={"step": 2})])
        )


def test_a_missing_control_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="without it nothing is judged"):
        experiment_file.load(changed(tmp_path, controls=None))


@pytest.mark.parametrize(
    ("text", "says"), [("title: [", "not YAML"), ("- 1", "is not an experiment"), ("x" * (1 << 21), "larger than")]
)
def test_a_file_that_is_no_experiment_is_an_error(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ExperimentError, match=says):
        experiment_file.load(tmp_path / "bad.yaml")
    with pytest.raises(ExperimentError, match="no such experiment file"):
        experiment_file.load(tmp_path / "none.yaml")


def test_a_value_may_be_filled_in_from_the_configuration(tmp_path: Path) -> None:
    path = changed(tmp_path, method=[action("sigkill_worker", target={"rank": "${seed}"}, at={"step": 1})])
    assert experiment_file.load(path, {}).plan.faults[0].target == {"rank": 0}
