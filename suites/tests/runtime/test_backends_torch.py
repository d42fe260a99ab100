"""The rendezvous store of torch.distributed listens where it is told to, and nowhere else; what is imported before the
fork is all that a step needs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.xdist_group("torch-here"),
]


def listening(port: int) -> list[str]:
    """The addresses on which somebody listens at `port`, as the kernel writes them."""
    found = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]]
        found += [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
    return found


def test_the_store_listens_on_the_address_of_its_node_only() -> None:
    from shaketable.runtime.backends.torch import store_of_rank_zero

    store = store_of_rank_zero("127.0.0.1", 2, timedelta(seconds=10))
    assert listening(store.port) == [f"0100007F:{store.port:04X}"]


def test_a_peer_finds_the_store() -> None:
    from torch._C._distributed_c10d import TCPStore

    from shaketable.runtime.backends.torch import store_of_rank_zero

    store = store_of_rank_zero("127.0.0.1", 2, timedelta(seconds=10))
    peer = TCPStore("127.0.0.1", store.port, 2, False, timedelta(seconds=10), wait_for_workers=False)
    peer.set("key", "value")
    assert store.get("key") == b"value"


FIRST_STEP = """
import importlib, os, sys
from shaketable.runtime.backends.torch import TorchBackend
for name in TorchBackend().preload:
    importlib.import_module(name)
threads = len(os.listdir("/proc/self/task"))
before = set(sys.modules)
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
print(threads, *sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
"""


def test_a_first_step_imports_next_to_nothing_more_of_torch_and_there_is_one_thread_to_fork() -> None:
    """An optimizer imports torch's compiler when it is made: a thousand modules, seconds, in each worker of each
    attempt."""
    command = [sys.executable, "-c", FIRST_STEP]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=alone)
    threads, *imported = done.stdout.split()
    assert threads == "1" and len(imported) < 10, imported


def test_gloo_gets_the_interface_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    from shaketable.runtime.backends.torch import GLOO_INTERFACE, bind_gloo, interface_of

    # given back afterwards
    monkeypatch.setenv(GLOO_INTERFACE, "")
    monkeypatch.delenv(GLOO_INTERFACE)
    bind_gloo("127.0.0.1")
    assert os.environ[GLOO_INTERFACE] == "lo"
    monkeypatch.setenv(GLOO_INTERFACE, "mine")
    bind_gloo("127.0.0.1")
    assert os.environ[GLOO_INTERFACE] == "mine", "what somebody has named stays"
    assert interface_of("198.51.100.1") == interface_of("::1") == ""
