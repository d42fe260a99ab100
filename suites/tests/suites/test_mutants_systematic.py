"""Places of the runtime that are changed by chance: which are drawn, what counts as a change, what the table says."""

from __future__ import annotations

import pytest

from shaketable.suites.mutants import systematic
from shaketable.suites.mutants.systematic import ROOMS, ROOT, Change, KilledBy, Tried


def test_every_room_has_its_files_and_its_tests() -> None:
    for name, room in ROOMS.items():
        for pattern in room.files:
            assert list(ROOT.glob(pattern)), f"{name}: {pattern}"
        for pattern in room.tests:
            assert list((ROOT / systematic.TESTS).glob(pattern)), f"{name}: {pattern}"


def test_a_change_that_is_never_executed_is_none() -> None:
    before = "def f(a: int | None = 1) -> int | None:\n    b: int | None = a\n    return b\n"
    assert systematic._executed(before) == systematic._executed(before.replace("|", "+"))
    decorated = "@dataclass(frozen=True)\nclass C:\n    a: int = 1\n"
    assert systematic._executed(decorated) == systematic._executed(decorated.replace("True", "False"))
    assert systematic._executed(before) != systematic._executed(before.replace("= 1", "= 2"))
    assert systematic._executed(before) != systematic._executed(before.replace("return b", "return -b"))


def test_a_seed_draws_the_same_places_each_with_a_bug() -> None:
    pytest.importorskip("cosmic_ray", reason="nox -s mutation has it")
    changes = systematic.drawn("session", 20, 1)
    assert changes == systematic.drawn("session", 20, 1) and changes != systematic.drawn("session", 20, 2)
    assert len({(each.file, each.line, each.operator, each.text) for each in changes}) == 20
    for each in changes:
        assert each.shown() and (ROOT / each.file).read_text() != each.text
        assert not each.operator.endswith(("Eq_Is", "Is_Eq"))


def test_the_table_counts_by_room_who_noticed() -> None:
    def tried(room: str, *by: KilledBy) -> list[Tried]:
        return [Tried(Change(room, "f.py", 1, "AddNot", ""), each) for each in by]

    said = list(systematic.lines(tried("log", "tests", "tests", "schedules", "") + tried("agent", "time", "tests")))
    assert said[2:] == ["| log | 4 | 2 | 1 | 0 | 1 | 75% | 90% |", "| agent | 2 | 1 | 0 | 1 | 0 | 100% | 80% |"]
