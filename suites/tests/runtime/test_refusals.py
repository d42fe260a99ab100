"""What Ray Train has and the runtime has not is refused by its name, with what to do instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow.fs
import pytest

import shaketable.runtime
from shaketable.runtime import (
    CheckpointConfig,
    ConfigurationError,
    FailureConfig,
    JaxTrainer,
    RunConfig,
    ScalingConfig,
    TorchTrainer,
    UserCallback,
    refusals,
)
from shaketable.runtime.session import get_dataset_shard
from shaketable.runtime.trainer import ElasticTrainer

CLASSES: dict[str, Any] = {
    each.__name__: each for each in (CheckpointConfig, ElasticTrainer, FailureConfig, JaxTrainer, RunConfig)
} | {each.__name__: each for each in (ScalingConfig, TorchTrainer)}
REFUSED = [(owner, name) for owner, names in refusals.ARGUMENTS.items() if owner in CLASSES for name in names]


def train() -> None:
    """Never called."""


@pytest.mark.parametrize(("owner", "name"), REFUSED)
def test_an_argument_of_ray_trains_is_refused_with_what_to_do(owner: str, name: str) -> None:
    given = (train,) if "Trainer" in owner else ()
    with pytest.raises(ConfigurationError) as refused:
        CLASSES[owner](*given, **{name: object()})
    assert str(refused.value).startswith(f"{owner}({name}=...) is Ray Train's and not supported: ")
    assert refusals.ARGUMENTS[owner][name].instead in str(refused.value)


def test_an_argument_that_asks_for_nothing_passes() -> None:
    assert FailureConfig(controller_failure_limit=-1, preemption_grace_s=0.0) == FailureConfig()  # type: ignore[call-arg]
    assert RunConfig(sync_config=None, logging_config=None) == RunConfig()  # type: ignore[call-arg]
    ElasticTrainer(train, datasets={}, metadata=None)  # type: ignore[call-arg]


def test_an_argument_that_nobody_knows_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_failurs'"):
        FailureConfig(max_failurs=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", refusals.NAMES)
def test_a_name_of_ray_trains_cannot_be_imported_and_says_why(name: str) -> None:
    with pytest.raises(ImportError, match="which is Ray Train's: ") as refused:
        exec(f"from shaketable.runtime import {name}", {})
    assert refusals.NAMES[name] in str(refused.value)


def test_a_name_that_nobody_knows_is_not_there() -> None:
    assert not hasattr(shaketable.runtime, "Checkpiont")


def test_a_data_set_shard_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"get_dataset_shard\('train'\): a worker is a forked process"):
        get_dataset_shard("train")


REFUSED_VALUES = [
    (RunConfig, {"worker_runtime_env": {"pip": ["x"]}}, "worker_runtime_env has pip: only env_vars"),
    (RunConfig, {"worker_runtime_env": {"env_vars": {"A": 1}}}, r"env_vars\['A'\] is 1"),
    (RunConfig, {"callbacks": [object()]}, "has a builtins.object: derive it from shaketable.runtime.UserCallback"),
    (RunConfig, {"failure_config": SimpleNamespace()}, "use shaketable.runtime.FailureConfig"),
    (ScalingConfig, {"label_selector": [{"a": "b"}]}, "label_selector is a list"),
    (ScalingConfig, {"placement_strategy": "SPREAD"}, "placement_strategy is 'SPREAD'"),
    (ScalingConfig, {"resources_per_worker": {"GPU": 1}}, "`use_gpu` is False but `GPU` was found"),
]


@pytest.mark.parametrize(("kind", "given", "said"), REFUSED_VALUES)
def test_a_value_that_is_not_supported_is_refused(kind: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kind(**given)


def test_ray_trains_own_objects_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"run_config is a types.SimpleNamespace: use shaketable.runtime.Run"):
        ElasticTrainer(train, run_config=SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"torch_config is a types.SimpleNamespace: use shaketable.runtime.tor"
    ):
        TorchTrainer(train, torch_config=SimpleNamespace())  # type: ignore[arg-type]


def test_a_file_system_that_is_not_local_is_refused_with_the_url_to_use() -> None:
    run = RunConfig(storage_path="bucket/runs", storage_filesystem=pyarrow.fs.S3FileSystem(anonymous=True, region="x"))
    with pytest.raises(ConfigurationError, match='storage_path="s3://bucket/runs" and the credentials'):
        ElasticTrainer(train, run_config=run)


def test_a_local_file_system_is_where_its_paths_are(tmp_path: Any) -> None:
    files = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    trainer = ElasticTrainer(train, run_config=RunConfig(storage_path="runs", storage_filesystem=files))
    assert trainer._run.storage_path == f"{tmp_path}/runs"


def test_a_run_config_has_all_that_ray_trains_has_by_default() -> None:
    nothing: Any = None
    run = RunConfig(nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    assert run == RunConfig()
    assert (run.storage_path, run.failure_config, run.callbacks) == ("~/ray_results", FailureConfig(), ())


def test_each_trainer_without_a_name_has_a_name_of_its_own() -> None:
    names = {ElasticTrainer(train, run_config=RunConfig())._run.name for _ in range(2)} | {
        ElasticTrainer(train)._run.name
    }
    assert len(names) == 3


def test_a_user_callback_may_be_given() -> None:
    assert RunConfig(callbacks=[UserCallback()]).callbacks
