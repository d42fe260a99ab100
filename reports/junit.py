"""JUnit XML for CI systems: FAIL is `failure`; INVALID and harness errors are `error`; nothing is ever `skipped`.
A KNOWN deviation is green, with the property `known-deviation` and its reason as output.

A skipped test is green in every CI system, and an experiment that proved nothing must not be.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from shaketable.reports import results
from shaketable.reports.results import Result, Run

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(run: Run) -> ET.Element:
    """The whole run as one suite, the canary as its last case."""
    cases = [case for result in run.results for case in (_case(result), *_limit(result))]
    cases += [_canary(run)] if run.canary or run.canary_expected else []
    cases += [_broken(f"harness-{number}", message) for number, message in enumerate(run.errors, 1)]
    suite = ET.Element(
        "testsuite",
        name="shaketable",
        tests=str(len(cases)),
        time=f"{run.seconds:.3f}",
        failures=str(_count(cases, "failure")),
        errors=str(_count(cases, "error")),
        skipped="0",
        timestamp=run.started[:19],
    )
    _properties(suite, {"shaketable": run.shaketable, "ray": run.ray, "seed": "" if run.seed is None else run.seed})
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    return root


def write_junit(run: Run, path: Path) -> None:
    tree = ET.ElementTree(junit(run))
    ET.indent(tree)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _case(result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_clean(f"shaketable.{result.cluster}.{result.subject}"),
        name=_clean(result.name),
        time=f"{result.seconds:.3f}",
    )
    history = f"{result.folder}/history.jsonl"
    described = {"seed": result.seed, "subject": result.subject, "cluster": result.cluster, "history": history}
    _properties(case, described | _figures(result))
    if result.deviations:
        _known(case, result)
    if result.verdict not in ("PASS", "KNOWN"):
        tag = "failure" if result.verdict == "FAIL" else "error"
        _problem(case, tag, result.verdict, result.reason, [*result.landed, f"reproduce: {result.reproduce}"])
    return case


def _limit(result: Result) -> Iterator[ET.Element]:
    """A limit of speed is a case of its own, where there is one that was exceeded: the verdict says nothing of it."""
    if result.exceeded and result.verdict in ("PASS", "KNOWN"):
        name = _clean(f"{result.name} limit of speed")
        case = ET.Element(
            "testcase", classname=f"shaketable.{result.cluster}.{result.subject}", name=name, time="0.000"
        )
        _problem(case, "failure", "LIMIT", result.exceeded[0], list(result.exceeded))
        yield case


def _figures(result: Result) -> dict[str, object]:
    """`fault.0.name`, `fault.0.back_s`, ...: what each fault cost, as far as it is known."""
    told = ((one.fault, name, value) for one in result.recoveries for name, value in asdict(one).items())
    return {f"fault.{number}.{name}": value for number, name, value in told if name != "fault" and value is not None}


def _known(case: ET.Element, result: Result) -> None:
    """A known deviation is green, and says so: as properties for programs, as output for whoever looks."""
    properties = case.find("properties")
    assert properties is not None
    for known in result.deviations:
        value = _clean(f"{known.invariant}: {known.reason} {known.issue}".strip())
        ET.SubElement(properties, "property", name="known-deviation", value=value)
    lines = [
        f"{result.verdict} {result.reason}",
        *(f"{one.invariant}: {one.reason} {one.issue}" for one in result.deviations),
    ]
    ET.SubElement(case, "system-out").text = _clean("\n".join(lines))


def _canary(run: Run) -> ET.Element:
    name = f"canary {run.canary.mutant}" if run.canary else "canary"
    case = ET.Element(
        "testcase",
        classname="shaketable.canary",
        name=_clean(name),
        time=f"{run.canary.seconds if run.canary else 0:.3f}",
    )
    problem = results.canary_problem(run)
    if problem:
        _problem(case, "error", "HARNESS", problem, [results.NOT_YOUR_JOB])
    return case


def _broken(name: str, message: str) -> ET.Element:
    case = ET.Element("testcase", classname="shaketable.harness", name=name, time="0.000")
    _problem(case, "error", "HARNESS", message.partition("\n")[0], [message, results.NOT_YOUR_JOB])
    return case


def _problem(case: ET.Element, tag: str, kind: str, message: str, lines: list[str]) -> None:
    problem = ET.SubElement(case, tag, type=kind, message=_clean(message))
    problem.text = _clean("\n".join(lines))


def _properties(parent: ET.Element, values: dict[str, object]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=name, value=_clean(str(value)))


def _count(cases: list[ET.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _clean(text: str) -> str:
    """XML has no way to write most control characters, and ElementTree writes them all the same."""
    return NOT_XML.sub("\ufffd", text)
