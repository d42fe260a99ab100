"""What the documentation site has besides docs/: README, CONTRIBUTING and CHANGELOG, and a reference made from command
help, schemas and docstrings. mkdocs calls the two functions `on_...` (mkdocs.yml names this file as a hook).

docs/ itself stays what it is in the repository: plain Markdown whose links lead to files.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from shaketable.suites.command.cli import application
from shaketable.suites.command.schema_command import SCHEMAS
from shaketable.suites.gate import shake
from shaketable.suites.tools import experiment_schema

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# page of the site -> file of the repository
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
HELP_WIDTH = 100
# what the toolkit calls its verdict's arguments
VERDICT = "steady-state-hypothesis"


# ---- mkdocs


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    made = {
        **{page: (ROOT / source).read_text() for page, source in PAGES.items()},
        **{f"reference/{name}.md": text for name, text in reference().items()},
    }
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for path in linked_sources():
        files.append(File.generated(config, _source_page(path), content=_as_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    source = ROOT / PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return linked(markdown, source, page.file.src_uri)


# ---- links


def linked(markdown: str, source: Path, page: str) -> str:
    """Links of a file in the repository, as they lead on the site. A folder is no page: it keeps its name alone."""

    def leads(found: re.Match[str]) -> str:
        picture, text, path, anchor = found[1], found[2], found[3], found[4] or ""
        target = (source.parent / path).resolve()
        if not target.exists() or target.is_dir():
            return text if target.is_dir() else found[0]
        return f"{picture}[{text}]({os.path.relpath(_page_of(target), Path(page).parent)}{anchor})"

    parts = FENCED.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(leads, part) for part in parts)


def linked_sources() -> list[Path]:
    """Files outside docs/ that pages link to."""
    found = {
        target
        for source in (*DOCS.glob("*.md"), *(ROOT / name for name in PAGES.values()))
        for _, _, path, _ in LINK.findall("".join(FENCED.split(source.read_text())[::2]))
        if (target := (source.parent / path).resolve()).is_file() and _page_of(target).startswith("source/")
    }
    return sorted(found)


def _page_of(target: Path) -> str:
    inside = target.relative_to(ROOT).as_posix()
    pages = {source: page for page, source in PAGES.items()}
    if inside in pages:
        return pages[inside]
    return inside.removeprefix("docs/") if inside.startswith("docs/") else _source_page(target)


def _source_page(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _as_page(path: Path) -> str:
    language = path.suffix.removeprefix(".")
    hidden = "---\nsearch: {exclude: true}\n---\n"
    return f"{hidden}# {path.relative_to(ROOT).as_posix()}\n\n````{language}\n{path.read_text()}\n````\n"


# ---- the reference


def reference() -> dict[str, str]:
    """Name of the page -> its Markdown."""
    return {
        "commands": "\n".join(_commands()),
        "experiment-file": "\n".join(_experiment_file()),
        "results": "\n".join(_results()),
        "harness": "\n".join(_harness()),
        "runtime": "\n".join(_runtime()),
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n\nWhat `--help` says. Exit codes are on [the first page](../index.md#what-the-gate-prints).\n"
    group: Any = typer.main.get_command(application())
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=f"shaketable {name}", terminal_width=HELP_WIDTH)
        yield f"## shaketable {name}\n\n```text\n{command.get_help(context)}\n```\n"


def _experiment_file() -> Iterator[str]:
    schema = experiment_schema.schema()
    keys = schema["properties"]
    probe = keys[VERDICT]["properties"]["probes"]["items"]["properties"]
    yield (
        "# The experiment file\n\nAll keys, from the types that they are checked with. [Writing experiments]"
        "(../writing-experiments.md) explains them. `shaketable schema experiment` prints the same for editors.\n"
    )
    yield from _table("configuration", keys["configuration"]["properties"])
    yield from _table("Arguments of verdict", probe["provider"]["properties"]["arguments"]["properties"])
    for kind, name in (("Targets", "target"), ("Triggers", "trigger")):
        yield f"## {kind}\n\n{schema['$defs'][name]['description']}\n"
        yield from (f"* {_form(one)}" for one in schema["$defs"][name]["oneOf"])
        yield ""
    yield "## Faults\n\n[Faults and invariants](../faults-and-invariants.md) has all of them with their arguments.\n"


def _form(one: Mapping[str, Any]) -> str:
    """`{step: N, nth: N}`, what is needed first."""
    optional = [name for name in one["properties"] if name not in one["required"]]
    said = f"`{{{', '.join(f'{name}: …' for name in one['required'])}}}`"
    return said + (f", with {', '.join(f'`{name}`' for name in optional)}" if optional else "")


def _results() -> Iterator[str]:
    yield (
        "# What is written as JSON\n\n`results.json`, `result.json`, and what `--json` writes. The schemas themselves:"
        " `shaketable schema NAME`. [Figures and comparing](../comparing.md) explains the figures.\n"
    )
    for name in ("results", "result", "compare"):
        schema = SCHEMAS[name]()
        defs = schema["$defs"]
        yield f"## shaketable schema {name}\n"
        for kind in defs:
            yield from _table(kind, defs[kind].get("properties", {}), level=3)


def _harness() -> Iterator[str]:
    yield (
        "# In Python: the harness\n\n`from shaketable import ...`. Faults are functions of the same names and arguments"
        " as in an experiment file ([all of them](../faults-and-invariants.md)).\n"
    )
    for name in ("shake", "Shaken", "ShakeFailed", "ShakeInvalid"):
        yield f"::: {shake.__name__}.{name}\n"


def _runtime() -> Iterator[str]:
    yield (
        "# In Python: the runtime\n\n`from shaketable.runtime import ...`. What it promises is in"
        " [semantics](../semantics.md), what differs from Ray Train in [coming from Ray Train](../ray-train.md).\n"
    )
    homes: dict[str, list[str]] = {}
    for name, home in _public_names().items():
        homes.setdefault(home, []).append(name)
    for home, names in homes.items():
        yield f"## {home}\n"
        yield from (f"::: shaketable.runtime.{home}.{name}\n" for name in sorted(names))


def _public_names() -> dict[str, str]:
    """Name -> module, as runtime/__init__.py has it; read, for nothing but a subject imports the runtime."""
    for node in ast.parse((ROOT / "runtime" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME":
            names: dict[str, str] = ast.literal_eval(node.value)
            return names
    raise LookupError("runtime/__init__.py has no _HOME")


def _table(title: str, keys: Mapping[str, Any], level: int = 2) -> Iterator[str]:
    if not keys:
        return
    yield f"{'#' * level} {title}\n\n| key | what it may be | default |\n|---|---|---|"
    for name, key in keys.items():
        default = f"`{json.dumps(key['default'])}`" if "default" in key else ""
        yield f"| `{name}` | {_said(key).replace('|', chr(92) + '|')} | {default} |"
    yield ""


def _said(key: Mapping[str, Any]) -> str:
    """In the words that errors use, where there are some."""
    if "description" in key:
        return str(key["description"])
    if "enum" in key:
        return ", ".join(f"`{json.dumps(value)}`" for value in key["enum"])
    if "$ref" in key:
        return f"`{key['$ref'].rpartition('/')[2]}`"
    if "anyOf" in key:
        return " or ".join(_said(one) for one in key["anyOf"])
    if key.get("type") == "array":
        return f"a list of {_said(key['items'])}" if isinstance(key.get("items"), Mapping) else "a list"
    return str(key.get("type", "anything"))
