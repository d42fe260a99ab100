"""Metrics come back as they were reported, or are refused by their name."""

from __future__ import annotations

import datetime
import enum
import math
from typing import Any

import numpy as np
import pytest

from shaketable.runtime.checkpoints.retention import Score, expired
from shaketable.runtime.log.metrics import decode, encode, restored
from shaketable.runtime.log.records import CheckpointCommitted


class Kind(enum.StrEnum):
    TRAIN = "train"


def back(metrics: dict[str, Any]) -> Any:
    return restored(decode(encode(metrics)))


@pytest.mark.parametrize(
    "value",
    [0, -1, -(2**63), 2**63, 1.5, True, None, "", "naïve", [1, [2.5, "x"]], {"a": {"b": [None]}}, math.inf, -math.inf],
)
def test_what_json_can_say_and_infinity_come_back(value: Any) -> None:
    assert back({"value": value}) == {"value": value}


def test_nan_comes_back_wherever_it_is() -> None:
    given = {"a": math.nan, "b": [{"c": math.nan}]}
    assert repr(back(given)) == repr(given)


def test_numbers_in_disguise_become_numbers() -> None:
    given = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.array(2.0), "e": Kind.TRAIN}
    found = back(given)
    assert found == {"a": 0.5, "b": 3, "c": True, "d": 2.0, "e": "train"}
    assert type(found["e"]) is str and type(found["a"]) is float and math.isnan(back({"a": np.float32("nan")})["a"])


class Scalar:
    """Of a library that knows no dimensions."""

    def item(self) -> float:
        return 0.25


def test_what_has_an_item_and_no_dimensions_is_a_number() -> None:
    assert back({"a": Scalar()}) == {"a": 0.25}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (None, "metrics must be a dict, not None"),
        ([1, 2], "metrics must be a dict, not a list"),
        ([["a", 1]], "metrics must be a dict, not a list"),
        ({"a": b"x"}, r"metrics\['a'\] is a bytes"),
        ({"a": [0, {"b": {1, 2}}]}, r"metrics\['a'\]\[1\]\['b'\] is a set"),
        ({"a": {1: 2}}, r"metrics\['a'\] is a dict with the key 1 \(int\)"),
        ({"a": 2**64}, r"metrics\['a'\] is an int of more than 64 bits"),
        ({"a": "\udcff"}, r"metrics\['a'\] is a string that is not UTF-8"),
        ({"a": np.zeros(2)}, r"metrics\['a'\] is a ndarray"),
        ({"a": datetime.date(2026, 1, 1)}, r"metrics\['a'\] is a date"),
        ({"a": {"$float": "nan"}}, r"metrics\['a'\] is a dict with the key '\$float'"),
    ],
)
def test_what_would_not_come_back_is_refused_by_its_name(metrics: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"report: {said}"):
        encode(metrics)


def test_the_best_checkpoints_are_told_by_infinite_scores_too_and_nan_is_the_worst() -> None:
    def commit(index: int, loss: float) -> CheckpointCommitted:
        metrics = decode(encode({"loss": loss}))
        return CheckpointCommitted(term=1, attempt=1, index=index, checkpoint=str(index), files=[], metrics=metrics)

    commits = [commit(1, math.nan), commit(2, -math.inf), commit(3, 0.5), commit(4, 0.0)]
    assert expired(commits, 2, Score("loss", "min")) == ["1", "3"]
