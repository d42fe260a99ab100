"""Doors: strangers, secrets, and who may speak for a worker."""

from __future__ import annotations

from typing import Any

from shaketable.suites.mutants.defining import defect, replace

DOOR = "runtime/test_doorkeeper.py::"
SECRETS = "runtime/test_redaction.py::"


@defect(
    "driver.agents.doorkeeper",
    tests=DOOR + "test_silent_strangers_hold_a_bounded_number_of_descriptors_and_keep_no_agent_out",
)
def strangers_are_kept_waiting(doorkeeper: Any) -> None:
    """a stranger that says nothing holds a descriptor of the driver for as long as it likes"""
    replace(doorkeeper.Doorkeeper, "_send_away", lambda original: lambda self, keep: None)


@defect(
    "driver.agents.doorkeeper",
    tests=DOOR + "test_a_driver_without_descriptors_says_so_and_accepts_again_when_there_are_some",
)
def accept_that_fails_is_not_told(doorkeeper: Any) -> None:
    """a driver that has no descriptors left asks for the next connection again at once, and says nothing"""

    def make(original: Any) -> Any:
        def accept(self: Any, listener: Any) -> str:
            original(self, listener)
            return ""

        return accept

    replace(doorkeeper.Doorkeeper, "accept", make)


@defect(
    "backends.torch", tests="runtime/test_backends_torch.py::test_the_store_listens_on_the_address_of_its_node_only"
)
def store_listens_everywhere(backend: Any) -> None:
    """the rendezvous store of torch listens on every address of the node"""

    def make(original: Any) -> Any:
        def store_of_rank_zero(address: str, world_size: int, timeout: Any) -> Any:
            from torch._C._distributed_c10d import TCPStore

            return TCPStore(address, 0, world_size, True, timeout, wait_for_workers=False)

        return store_of_rank_zero

    replace(backend, "store_of_rank_zero", make)


@defect("log.redaction", tests=SECRETS + "test_the_value_under_a_secret_s_name_is_not_recorded_at_any_depth")
def secrets_by_one_spelling(redaction: Any) -> None:
    """what is called a secret is recorded unless its name is spelled as we would spell it"""
    known = frozenset({"token", "password", "secret", "api_key"})
    replace(redaction, "secret_key", lambda original: lambda key: key in known)


@defect("log.redaction", tests=SECRETS + "test_what_looks_like_a_secret_is_not_recorded_whatever_it_is_called")
def secrets_by_name_only(redaction: Any) -> None:
    """what looks like a secret is recorded if it is not called one"""
    replace(redaction, "redacted", lambda original: lambda text: text)


@defect(
    "session",
    tests="runtime/test_session_reports.py::"
    "test_a_forked_child_knows_its_rank_and_cannot_report_and_the_worker_still_can",
)
def forked_child_keeps_the_connection(session: Any) -> None:
    """a forked child of the worker can speak in the worker's name"""
    replace(session.Session, "abandon", lambda original: lambda self: None)
