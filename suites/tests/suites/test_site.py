"""The documentation site: where links of the repository lead on it, what it has besides docs/, and that all pages are
in its navigation. (`nox -s docs` builds it.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from shaketable.suites.command.cli import application
from shaketable.suites.tools import site

README, TUTORIAL = site.ROOT / "README.md", site.DOCS / "first-red-gate.md"


@pytest.mark.parametrize(
    ("markdown", "source", "page", "led"),
    [
        ("[a](docs/report.md#how)", README, "index.md", "[a](report.md#how)"),
        ("![a](docs/report.png)", README, "index.md", "![a](report.png)"),
        ("[a](CONTRIBUTING.md)", README, "index.md", "[a](contributing.md)"),
        ("[a](../README.md#words)", TUTORIAL, "first-red-gate.md", "[a](index.md#words)"),
        ("[a](schema/)", TUTORIAL, "first-red-gate.md", "a"),
        ("[a](../runtime/config.py)", TUTORIAL, "first-red-gate.md", "[a](source/runtime/config.py.md)"),
        ("[a](https://docs.ray.io/x.md)", README, "index.md", "[a](https://docs.ray.io/x.md)"),
        ("```\n[a](docs/report.md)\n```", README, "index.md", "```\n[a](docs/report.md)\n```"),
        ("[a](docs/gone.md)", README, "index.md", "[a](docs/gone.md)"),
    ],
)
def test_a_link_of_the_repository_leads_to_the_same_thing_on_the_site(
    markdown: str, source: Path, page: str, led: str
) -> None:
    assert site.linked(markdown, source, page) == led


def test_every_source_that_a_page_links_to_is_on_the_site_too() -> None:
    assert site.ROOT / "runtime" / "controller" / "handlers" / "starting.py" in site.linked_sources()
    assert not [path for path in site.linked_sources() if path.is_relative_to(site.DOCS)]


def test_every_page_stands_in_the_navigation_once() -> None:
    text = re.sub(r"!!python/\S+", "", (site.ROOT / "mkdocs.yml").read_text())
    named = re.findall(r"[\w/-]+\.md", "\n".join(map(str, yaml.safe_load(text)["nav"])))
    there = {
        *site.PAGES,
        *(path.name for path in site.DOCS.glob("*.md")),
        *map("reference/{}.md".format, site.reference()),
    }
    assert sorted(named) == sorted(there)


def test_the_reference_names_every_command_key_and_public_name() -> None:
    import typer

    from shaketable import runtime
    from shaketable.chaos.plan import Configuration, Expect

    pages = site.reference()
    commands = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    assert len(commands) > 10
    assert all(f"## shaketable {name}\n" in pages["commands"] for name in commands)
    assert "--max-slower" in pages["commands"]
    keys = {*Configuration.__dataclass_fields__, *Expect.__dataclass_fields__}
    assert all(f"| `{key}` |" in pages["experiment-file"] for key in keys)
    assert "`{step: …}`" in pages["experiment-file"]
    assert all(
        re.search(rf"^::: shaketable\.runtime\.[\w.]+\.{name}$", pages["runtime"], re.MULTILINE)
        for name in runtime.__all__
    )
    assert "::: shaketable.suites.gate.shake.shake\n" in pages["harness"]
    assert "| `back_s` |" in pages["results"]
