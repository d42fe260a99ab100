from __future__ import annotations

import json
from pathlib import Path

import pytest

from shaketable.chaos.history.events import AnyEvent, AttemptStarted, Resumed, StateChanged, Stepped, WorkerStarted
from shaketable.chaos.plan import Configuration
from shaketable.clusters.processes.cluster import ProcessCluster
from shaketable.clusters.protocol import Shape
from shaketable.suites.bench.figures import NAMES, Sample, as_json, summarise, unit_of
from shaketable.suites.bench.reading import Wasted, recovery, wasted
from shaketable.suites.bench.rig import Bed, BenchError
from shaketable.suites.bench.scenarios import SCENARIOS, chosen
from shaketable.suites.bench.table import BEGIN, END, column_of, markdown, read, table, write_markdown

DRIVER_ENDS_WITHIN_S = 60.0


def sample(value: float, name: str = "grow_s", subject: str = "bundled", part: str | None = None) -> Sample:
    return Sample(name, subject, "3 to 4 workers", value, part)


def test_a_figure_is_the_median_with_the_lowest_the_highest_and_the_count() -> None:
    (figure,) = summarise([sample(3.0), sample(1.0), sample(8.0)])
    assert as_json([figure]) == [
        {
            "name": "grow_s",
            "subject": "bundled",
            "profile": "3 to 4 workers",
            "unit": "s",
            "median": 3.0,
            "low": 1.0,
            "high": 8.0,
            "n": 3,
        }
    ]
    assert json.dumps(as_json([figure]))


def test_a_wait_ends_with_the_driver_and_says_so(tmp_path: Path) -> None:
    """It cannot load its job. A bench that waits for eight minutes all the same has less time for the rest."""
    with ProcessCluster(Shape(nodes=1)) as cluster, Bed(cluster, Configuration(job="nowhere:train"), tmp_path) as bed:
        bed.launch()
        with pytest.raises(BenchError, match="a step: the driver ended with code 2 before; see"):
            bed.wait(Stepped, lambda event: True, "a step", timeout_s=DRIVER_ENDS_WITHIN_S)


def test_subjects_and_profiles_are_never_mixed_in_one_figure() -> None:
    figures = summarise([sample(1.0), sample(9.0, subject="ray-train"), sample(2.0)])
    assert [(figure.subject, figure.median) for figure in figures] == [("bundled", 1.5), ("ray-train", 9.0)]


def test_the_parts_of_a_recovery_are_in_the_table_and_not_in_the_json() -> None:
    samples = [sample(1.0), sample(0.25, part="detect")]
    assert [figure.name for figure in summarise(samples)] == ["grow_s"]
    assert "| &emsp;detect |  | s | 0.25 (0.25 to 0.25), 1 |" in markdown(table(samples, ["bundled"]), "title")


COLUMNS = ["bundled", "ray-train, stock", "ray-train, tuned"]


def test_a_peers_settings_are_columns_beside_ours_of_one_row() -> None:
    samples = [
        Sample("grow_s", "bundled", "4 workers", 4.0),
        Sample("grow_s", "ray-train", "4 workers; stock settings", 23.0),
        Sample("grow_s", "ray-train", "4 workers; tuned settings", 9.0),
    ]
    text = markdown(table(samples, COLUMNS), "title")
    assert "| grow_s | 4 workers | s | 4 (4 to 4), 1 | 23 (23 to 23), 1 | 9 (9 to 9), 1 |" in text
    assert column_of("ray-train", "4 workers; tuned settings") == "ray-train, tuned"


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_unit_and_a_scenario_that_measures_it(name: str) -> None:
    assert unit_of(name)
    assert [scenario for scenario in SCENARIOS if name in scenario.names]


def test_the_peer_is_measured_where_it_is_asked_for_and_quick_enough() -> None:
    of_peer = {name for scenario, column in chosen([], COLUMNS) if column != "bundled" for name in scenario.names}
    assert {"recovery_worker_crash_s", "recovery_node_sigkill_s"} <= of_peer
    assert "recovery_driver_s" not in of_peer
    assert [subject for _, subject in chosen(["recovery_driver_s"], ["bundled", "ray-train"])] == [
        "bundled",
        "ray-train",
    ]


def test_what_watching_a_script_costs_is_measured_on_ray_train_alone() -> None:
    everything = [(scenario.names, subject) for scenario, subject in chosen([], ["bundled", "ray-train"])]
    assert [subject for names, subject in everything if "event_cost_percent" in names] == ["ray-train"]


def test_the_parts_of_a_recovery_add_up_to_it() -> None:
    found = recovery(HISTORY, before=(1, 1), hurt_at_s=10.0, first=first_step())
    assert found.seconds == pytest.approx(0.5)
    assert found.parts == pytest.approx(
        {"detect": 0.1, "decide": 0.1, "start": 0.15, "restore": 0.05, "first step": 0.1}
    )


def test_steps_done_twice_are_lost_and_the_pause_is_counted_between_steps() -> None:
    found = recovery(HISTORY, before=(1, 1), hurt_at_s=10.0, first=first_step())
    assert found.steps_lost == 2
    assert found.pause_s == pytest.approx(0.7)


def test_what_a_frozen_worker_does_after_its_thaw_counts_for_nothing() -> None:
    zombie = step(at_s=99.0, attempt=1, number=31)
    assert recovery([*HISTORY, zombie], (1, 1), 10.0, first_step()).steps_lost == 2


def test_the_table_goes_between_the_marks_of_a_document(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"above\n{BEGIN}\n{END}\nbelow\n")
    made = table([sample(1.0)], ["bundled"])
    write_markdown(document, made, "title")
    assert document.read_text() == f"above\n{BEGIN}\n{markdown(made, 'title')}{END}\nbelow\n"


def test_what_a_run_has_not_measured_stays_in_the_document(tmp_path: Path) -> None:
    """A row, a column and the parts of a figure; what it has measured is replaced, parts that are gone included."""
    document = tmp_path / "performance.md"
    stock = Sample("grow_s", "ray-train", "3 to 4 workers; stock settings", 23.0)
    before = [sample(1.0), sample(0.5, part="detect"), sample(0.4, part="start"), sample(3.0, name="report_ms"), stock]
    document.write_text(f"{BEGIN}\n{END}\n")
    write_markdown(document, table(before, COLUMNS[:2]), "before")
    tuned = Sample("grow_s", "ray-train", "3 to 4 workers; tuned settings", 9.0)
    write_markdown(document, table([sample(2.0), sample(0.7, part="start"), tuned], COLUMNS), "after")
    lines = document.read_text().splitlines()
    assert lines[1] == "after"
    assert lines[5:-1] == [
        "| grow_s | 3 to 4 workers | s | 2 (2 to 2), 1 | 23 (23 to 23), 1 | 9 (9 to 9), 1 |",
        "| &emsp;start |  | s | 0.7 (0.7 to 0.7), 1 | - | - |",
        "| report_ms | 3 to 4 workers | ms | 3 (3 to 3), 1 | - | - |",
    ]


def test_the_table_of_the_page_is_read_as_it_was_written() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "performance.md").read_text()
    title, _, rows = text.partition(f"{BEGIN}\n")[2].partition(END)[0].partition("\n\n")
    assert markdown(read(rows.splitlines()), title) == f"{title}\n\n{rows}"


def test_a_document_without_marks_is_left_as_it_is(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("nothing to replace\n")
    with pytest.raises(ValueError, match="has no place for the table"):
        write_markdown(document, table([sample(1.0)], ["bundled"]), "title")
    assert document.read_text() == "nothing to replace\n"


def test_what_was_done_twice_is_counted_as_in_rays_own_benchmark() -> None:
    """Steps 2 and 3 again, in steps of 0.5 s, by 8 workers; the pause between two attempts is no step."""
    before: list[AnyEvent] = [step(0.5 * n, 1, n) for n in (1, 2, 3)]
    after: list[AnyEvent] = [step(9.0 + 0.5 * n, 2, n) for n in (2, 3, 4)]
    assert wasted([*before, *after], 8) == Wasted(2, 8.0)
    assert wasted(before, 8) == Wasted(0, 0.0)


def step(at_s: float, attempt: int, number: int) -> Stepped:
    return Stepped(at_s=at_s, term=1, attempt=attempt, rank=0, step=number, world_size=1)


def first_step() -> Stepped:
    return step(at_s=10.5, attempt=2, number=29)


HISTORY: list[AnyEvent] = [
    step(at_s=9.7, attempt=1, number=29),
    step(at_s=9.8, attempt=1, number=30),
    StateChanged(at_s=10.1, term=1, state="STOPPING"),
    AttemptStarted(at_s=10.2, term=1, attempt=2, world_size=1, members=[], resume="c28", resume_index=28),
    WorkerStarted(at_s=10.35, term=1, attempt=2, rank=0, world_size=1, node_id="n", pid=1, resume="c28"),
    Resumed(at_s=10.4, term=1, attempt=2, rank=0, step=28, digest=None),
    step(at_s=10.5, attempt=2, number=29),
]
