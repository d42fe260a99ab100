"""`--kill-at-each`: real jobs that save for themselves, well and badly, killed at every file event of a checkpoint."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest

from shaketable.chaos import procfs
from shaketable.reports.results import Result, Run, exit_code
from shaketable.suites.gate.catalogue import UsageError
from shaketable.suites.saving import supervised
from shaketable.suites.saving.kill_at_each import Request, run
from shaketable.suites.saving.supervised import Job, Life, NotPermitted, live
from shaketable.suites.saving.trace import (
    MOST_POINTS,
    Event,
    FileEvent,
    Killed,
    Lines,
    NoCheckpoint,
    Point,
    Step,
    Watch,
    checkpoint_of,
    points,
    resumed_at,
)
from shaketable.suites.tests.rigs import calling

KINDS = ("write", "rename", "fsync")
JOB = """
import json, os, sys
step = 0
if os.path.exists("state.json"):
    with open("state.json") as file:
        step = json.load(file)["step"]
while step < 6:
    step += 1
    SAVE
    print("step", step)
"""
IN_PLACE = """
    with open("state.json", "w") as file:
        json.dump({"step": step, "weights": [0.5] * 3000}, file)
"""
ATOMIC = """
    with open("state.tmp", "w") as file:
        json.dump({"step": step, "weights": [0.5] * 3000}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace("state.tmp", "state.json")
"""
# the new one takes the place of the old one only after that is gone
GAP = ATOMIC.replace("    os.replace", "    if step > 1: os.rename('state.json', 'old.json')\n    os.replace")


@pytest.fixture(scope="module")
def permitted(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Some containers refuse the filter; a job is not run there at all."""
    there = tmp_path_factory.mktemp("permitted")
    try:
        live(Job(("true",), there, "step", 60.0), there / "log", Watch(None))
    except NotPermitted as error:
        pytest.skip(f"no seccomp filter with a listener here: {error}")


@pytest.fixture
def folder(permitted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the job is started."""
    there = tmp_path / "my-job"
    there.mkdir()
    monkeypatch.chdir(there)
    return there


def written(folder: Path, save: str, job: str = JOB) -> None:
    (folder / "train.py").write_text(job.replace("    SAVE\n", save.lstrip("\n")))


def tried(folder: Path, *kinds: str, command: tuple[str, ...] = ("python", "train.py"), word: str = "step") -> Run:
    return run(Request(command, kinds or KINDS, word, 60.0, folder.parent / "results"), io.StringIO())


def verdicts(of: Run) -> dict[str, str]:
    """Of the kills."""
    return {result.name: result.verdict for result in of.results[1:]}


def the(of: Run, name: str) -> Result:
    return next(result for result in of.results if result.name == name)


def test_a_save_in_place_is_lost_at_each_of_its_writes(folder: Path) -> None:
    written(folder, IN_PLACE)
    found = tried(folder)
    assert verdicts(found) == {"between-checkpoints": "PASS", "write-1": "FAIL", "write-2": "FAIL"}
    assert "could not be launched again, it ended with 1: json.decoder.JSONDecodeError" in the(found, "write-2").reason
    assert the(found, "write-2").landed == ("SIGKILL before write 2 (state.json) of the checkpoint after step 3",)
    assert exit_code(found) == 1
    told = json.loads((folder.parent / "results" / "results.json").read_text())
    assert [each["verdict"] for each in told["results"]] == ["PASS", "PASS", "FAIL", "FAIL"]
    assert told["results"][0]["reason"] == "ended at step 6; the checkpoint after step 3: 2 write"
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"], "nothing is saved in the user's own folder"


def test_a_save_beside_it_that_is_renamed_is_lost_at_no_event(folder: Path) -> None:
    written(folder, ATOMIC)
    found = tried(folder)
    names = ["between-checkpoints", "write-1", "write-2", "rename-1", "fsync-1"]
    assert verdicts(found) == dict.fromkeys(names, "PASS")
    assert exit_code(found) == 0


def test_a_job_that_silently_begins_again_has_lost_its_checkpoint(folder: Path) -> None:
    written(folder, GAP)
    found = tried(folder, "rename")
    assert verdicts(found) == {"between-checkpoints": "PASS", "rename-1": "PASS", "rename-2": "FAIL"}
    assert "lost: resumed at step 1, and the last complete checkpoint goes on at 4" in the(found, "rename-2").reason


def test_a_job_that_never_resumes_is_said_to_before_any_file_event(folder: Path) -> None:
    written(folder, ATOMIC, JOB.replace('os.path.exists("state.json")', "False"))
    found = tried(folder, "rename")
    assert "lost: resumed at step 1" in the(found, "between-checkpoints").reason


def test_what_a_job_in_another_language_saves_is_seen_too(folder: Path) -> None:
    (folder / "train.sh").write_text(
        'step=0\nif [ -f state ]; then step=$(cat state); fi\n[ -n "$step" ] || exit 7\n'
        "while [ $step -lt 6 ]; do step=$((step + 1)); echo $step > state; echo epoch=$step; done\n"
    )
    found = tried(folder, "write", command=("sh", "train.sh"), word="epoch")
    assert verdicts(found) == {"between-checkpoints": "PASS", "write-1": "FAIL"}
    assert "could not be launched again, it ended with 7" in the(found, "write-1").reason


def test_nothing_of_the_job_is_left_behind(folder: Path, tmp_path: Path) -> None:
    left = "import subprocess\nsleeper = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    note = f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{sleeper.pid}}\\n')\n"
    written(folder, ATOMIC, left + note + JOB)
    tried(folder, "rename")
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    # one life without faults, two each of a kill
    assert len(pids) == 5
    assert all(procfs.gone(pid) for pid in pids)


def test_a_point_that_no_process_comes_to_is_invalid(folder: Path, tmp_path: Path) -> None:
    """It syncs in the run without faults only."""
    before = f"import os\nfirst = not os.path.exists({str(tmp_path / 'ran')!r})\nopen({str(tmp_path / 'ran')!r}, 'a')\n"
    written(folder, ATOMIC.replace("os.fsync", "first and os.fsync"), before + JOB)
    found = tried(folder, "fsync")
    assert verdicts(found) == {"between-checkpoints": "PASS", "fsync-1": "INVALID"}
    assert exit_code(found) == 3


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_job_that_prints_no_steps_is_told_what_it_has_to_do(folder: Path) -> None:
    written(folder, ATOMIC, JOB.replace('print("step", step)', 'print("loss", 1 / step)'))
    with pytest.raises(UsageError, match=r"to print its steps, such as `step 12`"):
        tried(folder)


def test_a_checkpoint_without_such_events_proves_nothing(folder: Path) -> None:
    written(folder, IN_PLACE)
    with pytest.raises(UsageError, match=r"the checkpoint after step 3 has no fsync to be killed at: 2 write"):
        tried(folder, "fsync")


def test_files_outside_of_its_folder_are_named(folder: Path, tmp_path: Path) -> None:
    written(folder, f'    with open("{tmp_path}/elsewhere.json", "w") as file: file.write(str(step))\n')
    with pytest.raises(UsageError, match=r"files elsewhere, which are not watched: \S+/elsewhere.json"):
        tried(folder)


def test_a_job_that_fails_without_faults_is_told_in_its_own_words(folder: Path) -> None:
    (folder / "train.py").write_text("raise SystemExit('no data')")
    with pytest.raises(UsageError, match=r"without faults, the job ended with 1: no data"):
        tried(folder)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kill-at-each", "write"), "write it after `--`"),
        (("--kill-at-each", "write", "--cluster", "local", "--", "python", "x.py"), "leave out --cluster"),
        (("worker-crash", "--kill-at-each", "write", "--", "python", "x.py"), "leave out EXPERIMENT"),
        (("--kill-at-each", "write", "--", "no-such-program"), "there is no program 'no-such-program'"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...], says: str, folder: Path) -> None:
    done = calling.called("run", *arguments, cwd=folder)
    assert done.exit_code == 2
    assert says in done.stderr


# ---- where the checkpoints are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"step 12 loss 0.5\n", 12),
        (b"Step: 12/100\n", 12),
        (b'{"loss": 1, "step": 12}\n', 12),
        (b"[step=12]\n", 12),
        (b"  Step [12/100]\n", 12),
    ],
)
def test_a_step_is_the_number_behind_its_word(text: bytes, number: int) -> None:
    assert Lines("step").steps(1, text) == [Step(1, number)]


def test_a_line_counts_when_it_ends_and_only_with_the_whole_word() -> None:
    lines = Lines("step")
    assert lines.steps(1, b"footstep 3\nste") == []
    assert lines.steps(2, b"step 9") == []
    assert lines.steps(1, b"p 4") == []
    assert lines.steps(1, b"2\nstep ") == [Step(1, 42)]


def course(*steps: str, process: int = 1) -> list[Event]:
    """`w` and `r` behind each step that is printed."""
    kinds = {"w": "write", "r": "rename", "f": "fsync"}
    events: list[Event] = []
    for number, saves in enumerate(steps, 1):
        events += [Step(process, number), *(FileEvent(process, kinds[letter], f"{letter}.bin") for letter in saves)]
    return events


def test_a_checkpoint_is_taken_from_the_middle_and_from_among_the_usual_ones() -> None:
    found = checkpoint_of(course("w", "", "wwr", "", "w", "", "wwr", "", "wwr", "", "ww"))
    assert (found.step, found.before) == (7, 5)
    assert [event.kind for event in found.events] == ["write", "write", "rename"]


def test_it_takes_one_checkpoint_before_and_one_after() -> None:
    assert checkpoint_of(course("w", "w", "w")).step == 2
    with pytest.raises(NoCheckpoint, match="2 of the 3 steps"):
        checkpoint_of(course("w", "w", ""))
    with pytest.raises(NoCheckpoint, match="0 of the 0 steps"):
        checkpoint_of([])


def test_the_process_that_saves_most_is_killed() -> None:
    assert checkpoint_of([*course("w", "w", "w"), *course("ww", "ww", "ww", process=2)]).events[0].process == 2


def test_of_very_many_points_some_are_tried_with_the_first_and_the_last() -> None:
    many = points(checkpoint_of(course("w", "w" * 1000, "w")), ["write"])
    assert len(many) == 1 + MOST_POINTS
    assert (many[1].nth, many[-1].nth) == (1, 1000)


def test_a_kernel_that_refuses_the_filter_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "live", refused)
    with pytest.raises(UsageError, match="not permitted here: Operation not permitted"):
        tried(folder)


def refused(*_: object) -> Life:
    raise NotPermitted(errno.EPERM, os.strerror(errno.EPERM))


def test_a_point_is_reached_once_by_who_has_printed_its_step() -> None:
    watch = Watch(Point(2, "write", 2))
    reached = [watch.reached(event) for event in [*course("ww", process=2), *course("ww", "rwwww")]]
    assert [number for number, yes in enumerate(reached) if yes] == [9]


def test_it_resumes_where_a_process_goes_on_that_began_after_the_kill_and_saves() -> None:
    old, echo = course("w", "w"), [Step(9, 77)]
    other: list[Event] = [Step(2, 1), FileEvent(2, "write", "w.bin"), Step(2, 9)]
    new: list[Event] = [Step(3, 2), FileEvent(3, "write", "w.bin")]
    assert resumed_at([*other, *old, Killed(1), *other, *echo, *new]) == 2
    assert resumed_at([*old, Killed(1), *echo]) is None


def test_this_interpreter_is_the_one_of_the_job(folder: Path) -> None:
    written(folder, ATOMIC, f"import sys\nassert sys.executable == {sys.executable!r}, sys.executable\n" + JOB)
    assert exit_code(tried(folder, "fsync")) == 0
