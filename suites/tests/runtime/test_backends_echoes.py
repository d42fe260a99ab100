"""What may only be the echo of a peer's end: each backend knows the exceptions of its framework."""

from __future__ import annotations

import pytest

from shaketable.runtime.backends.base import Backend
from shaketable.runtime.backends.jax import JaxBackend
from shaketable.runtime.backends.torch import TorchBackend


def named(name: str) -> Exception:
    error: Exception = type(name, (Exception,), {})("of a framework")
    return error


@pytest.mark.parametrize("name", ["DistBackendError", "DistNetworkError", "DistStoreError"])
def test_torchs_own_errors_are_known_to_torchs_backend_alone(name: str) -> None:
    assert TorchBackend().may_be_echo(named(name))
    assert not JaxBackend().may_be_echo(named(name)) and not Backend().may_be_echo(named(name))


@pytest.mark.parametrize("name", ["XlaRuntimeError", "JaxRuntimeError"])
def test_jaxs_own_errors_are_known_to_jaxs_backend_alone(name: str) -> None:
    assert JaxBackend().may_be_echo(named(name))
    assert not TorchBackend().may_be_echo(named(name)) and not Backend().may_be_echo(named(name))


@pytest.mark.parametrize(
    ("error", "echo"),
    [
        (ConnectionResetError(), True),
        (RuntimeError("[gloo/pair.cc] Connection closed by peer"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("Connection closed by peer"), False),
    ],
)
def test_a_broken_connection_is_known_to_all(error: Exception, echo: bool) -> None:
    assert [backend.may_be_echo(error) for backend in (Backend(), TorchBackend(), JaxBackend())] == [echo] * 3


def test_what_was_raised_from_an_echo_is_one_and_a_circle_of_causes_ends() -> None:
    error = ValueError("the batch is incomplete")
    error.__cause__ = ConnectionResetError()
    assert Backend().may_be_echo(error)
    error.__cause__ = other = ValueError()
    other.__cause__ = error
    assert not Backend().may_be_echo(error)


def test_an_error_that_cannot_say_itself_is_no_echo() -> None:
    class Mute(RuntimeError):
        def __str__(self) -> str:
            raise OSError("Connection reset")

    assert not Backend().may_be_echo(Mute())
