"""An experiment as somebody would write it: the plain Chaos Toolkit file of a plan, short enough to be read. Pure.

(`experiment_file.dump` is for machines: it resolves every key.) Only what differs from the defaults of the less usual
keys is written, and each action fits on few lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import yaml

from shaketable.chaos.errors import shown
from shaketable.chaos.plan import Configuration, FaultPlan, Plan

MODULE = "shaketable.chaos.toolkit"
WIDTH = 112
USUAL = ("subject", "cluster", "seed", "job", "job_config", "nodes", "num_workers", "max_failures")
HEAD = """controls:
- {{name: shaketable, provider: {{type: python, module: {module}}}}}
runtime: {{hypothesis: {{strategy: after-method-only}}, rollbacks: {{strategy: always}}}}
"""
ACTION = """- type: action
  name: {name}
  provider: {provider}
"""
TAIL = """steady-state-hypothesis:
  title: {title}
  probes:
  - type: probe
    name: verdict
    tolerance: {{type: regex, pattern: "^PASS"}}
    provider: {provider}
"""


def text(plan: Plan, description: str, tags: Sequence[str]) -> str:
    """The file. Loading it gives `plan` again."""
    return "".join(
        (
            f"title: {_flow(plan.title)}\n",
            _folded("description", description),
            f"tags: {_flow(list(tags))}\n",
            HEAD.format(module=MODULE),
            "configuration:\n",
            *(f"  {key}: {_flow(value)}\n" for key, value in _configuration(plan.configuration).items()),
            "method:\n" if plan.faults else "method: []\n",
            *(ACTION.format(name=_flow(named(fault)), provider=_action(fault)) for fault in plan.faults),
            TAIL.format(title=_flow(expected(plan)), provider=_verdict(plan)),
        )
    )


def named(fault: FaultPlan) -> str:
    """`SIGKILL worker {rank: 1} at {step: 12}`"""
    signal, _, target_kind = fault.name.partition("_")
    verb = signal.upper() if signal.startswith("sig") else signal.capitalize()
    target = f" {shown(fault.target)}" if fault.target else ""
    return f"{verb} {target_kind.replace('_', ' ')}{target} at {shown(fault.at)}"


def expected(plan: Plan) -> str:
    charged = ", ".join(f"{count} charged to {account}" for account, count in plan.expect.charged.items())
    return f"{plan.expect.outcome.capitalize()}, {charged or 'nothing charged'}"


def _configuration(configuration: Configuration) -> dict[str, Any]:
    values, defaults = asdict(configuration), asdict(Configuration())
    kept = {key: value for key, value in values.items() if key in USUAL or value != defaults[key]}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}


def _action(fault: FaultPlan) -> str:
    arguments = {"target": fault.target} if fault.target else {}
    return _provider(fault.name, {**arguments, "at": fault.at, **fault.arguments})


def _verdict(plan: Plan) -> str:
    expect = {key: value for key, value in asdict(plan.expect).items() if value is not None}
    return _provider("verdict", expect)


def _provider(function: str, arguments: dict[str, Any]) -> str:
    start = f"{{type: python, module: {MODULE}, func: {function},"
    return f"{start}\n             arguments: {_flow(arguments)}}}"


def _flow(value: Any) -> str:
    """On one line, however long."""
    dumped: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True)
    return dumped.removesuffix("...\n").rstrip("\n")


def _folded(key: str, value: str) -> str:
    lines = textwrap.wrap(" ".join(value.split()), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return f"{key}: >-\n" + "".join(f"  {line}\n" for line in lines)
