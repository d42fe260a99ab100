"""The pages for users: their links lead somewhere, and every promise has an id and says what checks it."""

from __future__ import annotations

import functools
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaketable.chaos.invariants import INVARIANTS

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FLOORS = ("runtime", "chaos", "clusters", "reports", "suites")
SEMANTICS = ROOT / "docs" / "semantics.md"
NAMING = [page for page in PAGES if page.name != "CHANGELOG.md"]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
PROMISE = re.compile(
    r'^<a id="(?P<anchor>[a-z]+-\d+)"></a>\*\*(?P<id>[a-z]+-\d+)\. (?P<text>[^*]+)\*\* \[(?P<checks>[^\]]*)\]$',
    re.MULTILINE,
)

# What pages name in backticks that is the reader's own, or lies in the directory of a run.
ELSEWHERE = {"train.py", "job.py", "tests/chaos/test_faults.py", "shaketable-recording/", "log/", "snapshots/"}
# What docstrings and comments name that is not ours: a user's script, files of Ray and of XPK.
NOT_OURS = {"train.py", "test_config.py", "system_characteristics.py"}
MODULE = re.compile(r"(?<![\w./*-])(?!\S*_private/)(?:[\w-]+/)*\w+\.py\b")
# in backticks: a Python file, or a folder
POINTER = re.compile(r"`((?:[\w.-]+/)*(?:[\w-]+\.py|[\w.-]+/))`")


def named(page: Path) -> list[str]:
    names = POINTER.findall(FENCED.sub("", page.read_text()))
    return [name for name in names if name not in ELSEWHERE]


def there(name: str, page: Path) -> bool:
    if (ROOT / name).exists() or (page.parent / name).exists():
        return True
    return not name.endswith("/") and sum(path.endswith(f"/{name}") for path in sources()) == 1


@functools.cache
def sources() -> list[str]:
    return [path.as_posix() for folder in (*FLOORS, "docs") for path in (ROOT / folder).rglob("*.py")]


def anchors(page: Path) -> set[str]:
    """Those of its headings, as GitHub makes them, and those that it sets itself."""
    text = FENCED.sub("", page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}: no such heading"


def test_every_promise_has_an_id_of_its_own_and_names_what_checks_it() -> None:
    promises = list(PROMISE.finditer(SEMANTICS.read_text()))
    ids = [promise["id"] for promise in promises]
    assert len(set(ids)) == len(ids) == SEMANTICS.read_text().count("<a id=")
    assert [promise["anchor"] for promise in promises] == ids
    for promise in promises:
        assert {*promise["checks"].split(", ")} <= {*INVARIANTS, "tests"}, promise["id"]


def test_the_promises_of_a_topic_are_counted_from_one() -> None:
    ids = [promise["id"].rpartition("-") for promise in PROMISE.finditer(SEMANTICS.read_text())]
    for topic, group in itertools.groupby(ids, key=lambda parts: parts[0]):
        assert [int(number) for _, _, number in group] == list(range(1, sum(i[0] == topic for i in ids) + 1)), topic


def test_every_file_and_folder_named_on_a_page_exists() -> None:
    """By its path from the root or from the page's folder, or by a name that only one file has."""
    dangling = [f"{page.name}: {name}" for page in NAMING for name in named(page) if not there(name, page)]
    assert not dangling


@pytest.mark.parametrize("floor", FLOORS)
def test_every_file_that_a_docstring_or_a_comment_names_exists(floor: str) -> None:
    """Beside the file that names it, below its room, or by a path that only one file ends with."""
    gone = []
    for path in product(floor):
        for line, text in said_in(path):
            names = (name for name in MODULE.findall(text) if name not in NOT_OURS)
            gone += [f"{path.relative_to(ROOT)}:{line} {name}" for name in names if not known(name, path)]
    assert not gone


def product(floor: str) -> list[Path]:
    return [path for path in sorted((ROOT / floor).rglob("*.py")) if not path.is_relative_to(ROOT / "suites" / "tests")]


def said_in(path: Path) -> Iterator[tuple[int, str]]:
    """Comments, and strings that are expressions of their own."""
    with path.open("rb") as source:
        new = True
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and new):
                yield token.start[0], token.string
            if token.type != tokenize.COMMENT:
                new = token.type in (tokenize.ENCODING, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def known(name: str, path: Path) -> bool:
    beside = (folder / name for folder in path.parents if folder.is_relative_to(ROOT))
    return any(file.exists() for file in beside) or sum(file.endswith(f"/{name}") for file in sources()) == 1


def test_every_path_of_what_to_change_exists() -> None:
    """Also where the table names a folder or a page; each row leads somewhere."""
    table = (ROOT / "docs" / "architecture.md").read_text().partition("### I want to change")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| what | go to |")]
    assert len(rows) > 50
    for row in rows:
        paths = re.findall(r"`((?:[\w.-]+/)+[\w.*-]*)`", row)
        assert paths and all(list(ROOT.glob(path)) for path in paths), row


def test_a_file_that_is_gone_or_a_name_that_two_files_have_is_no_pointer() -> None:
    assert there("runtime/controller/table.py", SEMANTICS)
    assert there("run_state.py", SEMANTICS)
    assert not there("runtime/gone.py", SEMANTICS)
    assert not there("gone/", SEMANTICS)
    assert not there("__init__.py", SEMANTICS)
