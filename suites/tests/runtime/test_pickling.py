"""What cannot travel to the workers is refused before anything is started, by the name that its author knows."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from typing import Any

import pytest
from ray import ObjectRef

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.driver.pickling import pickled
from shaketable.runtime.errors import ConfigurationError

LOCK = threading.Lock()


class Nowhere:
    """It can be pickled, and never loaded."""

    def __reduce__(self) -> Any:
        return (_fails, ())


def _fails() -> None:
    raise LookupError("not in this process")


def ref() -> Any:
    return ObjectRef(os.urandom(28))


def refused(function: Any, config: Any = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        pickled(Backend(), function, config)
    return str(error.value)


def test_a_reference_to_rays_objects_is_refused_by_the_name_of_the_variable() -> None:
    handle, harmless = ref(), 1

    def train() -> object:
        return handle, harmless

    said = refused(train)
    assert "train (or its train_loop_config) cannot be sent" in said
    assert "the variable 'handle' of the enclosing function: a ObjectRef works in Ray workers only" in said


def test_what_can_be_pickled_and_not_loaded_is_refused_by_its_key() -> None:
    def train(config: Any) -> None: ...

    said = refused(train, {"lr": 0.1, "data": Nowhere()})
    assert "train_loop_config['data']: LookupError: not in this process" in said


def test_a_global_a_partial_s_argument_and_an_attribute_of_self_are_named() -> None:
    def train(*_: object) -> object:
        return LOCK

    # pickled by value, as a script's is
    train.__module__ = "__main__"
    assert "the global 'LOCK': TypeError: cannot pickle '_thread.lock' object" in refused(train)

    def plain(*_: object, **__: object) -> None: ...

    assert "the argument 'data' of the partial" in refused(functools.partial(plain, data=Nowhere()))

    class Trainer:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def train(self) -> None: ...

    assert "the attribute 'lock' of self" in refused(Trainer().train)


def test_what_can_travel_does() -> None:
    offset = 41

    def train(more: int) -> int:
        return offset + more

    backend, function, config = pickle.loads(pickled(Backend(), train, {"a": 1}))
    assert (backend, function(1), config) == (Backend(), 42, {"a": 1})
