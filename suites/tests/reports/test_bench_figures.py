from __future__ import annotations

import json
from pathlib import Path

import pytest

from shaketable.chaos.history.events import AnyEvent, AttemptStarted, Resumed, StateChanged, Stepped, WorkerStarted
from shaketable.suites.bench.figures import NAMES, Sample, as_json, summarise, unit_of
from shaketable.suites.bench.reading import recovery
from shaketable.suites.bench.scenarios import SCENARIOS, chosen
from shaketable.suites.bench.table import BEGIN, END, markdown, write_markdown


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


def test_subjects_and_profiles_are_never_mixed_in_one_figure() -> None:
    figures = summarise([sample(1.0), sample(9.0, subject="ray-train"), sample(2.0)])
    assert [(figure.subject, figure.median) for figure in figures] == [("bundled", 1.5), ("ray-train", 9.0)]


def test_the_parts_of_a_recovery_are_in_the_table_and_not_in_the_json() -> None:
    samples = [sample(1.0), sample(0.25, part="detect")]
    assert [figure.name for figure in summarise(samples)] == ["grow_s"]
    assert "| &emsp;detect |  | s | 0.25 (0.25 to 0.25), 1 |" in markdown(samples, ["bundled"], "title")


def test_a_peers_own_settings_do_not_keep_it_out_of_our_row() -> None:
    ours, theirs = (
        Sample("grow_s", "bundled", "4 workers", 4.0),
        Sample("grow_s", "ray-train", "4 workers; stock", 23.0),
    )
    text = markdown([ours, theirs], ["bundled", "ray-train"], "title")
    assert "| grow_s | 4 workers | s | 4 (4 to 4), 1 | 23 (23 to 23), 1 |" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_unit_and_a_scenario_that_measures_it(name: str) -> None:
    assert unit_of(name)
    assert [scenario for scenario in SCENARIOS if name in scenario.names]


def test_the_peer_is_measured_where_it_is_asked_for_and_quick_enough() -> None:
    of_peer = {
        name
        for scenario, subject in chosen([], ["bundled", "ray-train"])
        if subject != "bundled"
        for name in scenario.names
    }
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
    document.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_markdown(document, "new\n")
    assert document.read_text() == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"


def test_a_document_without_marks_is_left_as_it_is(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("nothing to replace\n")
    with pytest.raises(ValueError, match="has no place for the table"):
        write_markdown(document, "new\n")
    assert document.read_text() == "nothing to replace\n"


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
