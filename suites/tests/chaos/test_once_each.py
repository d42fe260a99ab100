"""What a run of one experiment costs besides the run: its file is parsed once, its plan built once, its faults armed
once, its history indexed once for the verdict and once for the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COUNTING = """
import collections, json, sys
from pathlib import Path
from shaketable.chaos import plan
from shaketable.chaos.experiment import documents
from shaketable.chaos.injection import life_cycle
from shaketable.chaos.history.view import History

counted = collections.Counter()

def counting(name, function, when=lambda *a, **k: True):
    def counted_call(*arguments, **keywords):
        counted[name] += bool(when(*arguments, **keywords))
        return function(*arguments, **keywords)
    return counted_call

documents.parsed = counting("parsed", documents.parsed, lambda text: "steady-state-hypothesis" in str(text))
history_read = lambda path: Path(path).name == "history.jsonl"
Path.read_bytes = counting("read", Path.read_bytes, history_read)
History.__init__ = counting("indexed", History.__init__, lambda self, events: len(events) > 0)
plan.Plan.__init__ = counting("planned", plan.Plan.__init__)
life_cycle.Armed.__init__ = counting("armed", life_cycle.Armed.__init__)
"""
RUN = """
import io
from shaketable.suites.gate import runner
request = runner.Request(("worker-crash",), variables={"cluster": "simulated"}, results=Path("r"))
run = runner.run(request, io.StringIO())
assert [result.verdict for result in run.results] == ["PASS"], run
print(json.dumps(counted))
"""
SHAKE = """
from shaketable import rank, shake, sigkill_worker, step
shaken = shake("shaketable.workloads:hash_chain", cluster="simulated", storage_path="r", max_failures=1,
               faults=[sigkill_worker(rank(1), at=step(12))], charged={"max_failures": 1})
assert shaken.result.verdict == "PASS" and Path("r/result.json").exists()
print(json.dumps(counted))
"""
PYTEST = """
import pytest
from shaketable.suites.gate import catalogue
arguments = ["-p", "no:cacheprovider", "-q", "--shaketable", "--shaketable-var=cluster=simulated",
             "--shaketable-results=r", str(catalogue.FOLDER / "worker-crash.yaml")]
assert pytest.main(arguments) == 0
print(json.dumps(counted))
"""
ONCE = {"parsed": 1, "planned": 1, "armed": 1, "indexed": 1}
# the page of the report is drawn from the file, by whichever process has all results
PAGE = {"read": 1, "indexed": 2}


@pytest.mark.parametrize(
    ("program", "expected"),
    [(RUN, ONCE | PAGE), (SHAKE, {"planned": 1, "armed": 1, "indexed": 2, "read": 2}), (PYTEST, ONCE)],
    ids=["run", "shake", "pytest"],
)
def test_each_is_done_once(program: str, expected: dict[str, int], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTING + program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    assert {name: count for name, count in counted.items() if count} == expected
