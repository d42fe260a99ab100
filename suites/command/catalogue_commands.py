"""`shaketable list` and `shaketable show`: what there is to run, and the words that experiment files are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from shaketable.reports import results
from shaketable.suites.command.commands import Json, Tags, check_json, command, encoded, experiment_names, write
from shaketable.suites.gate.catalogue import INCIDENTS, Entry, UsageError, catalogue, nearest, select, shipped, tagged
from shaketable.suites.gate.catalogue import incidents as all_incidents
from shaketable.suites.gate.incidents import incident_of

# trigger -> how it is written, and when it comes true; docs/writing-experiments.md has more
TRIGGERS = {
    "step": ("{step: 12}", "any rank has recorded step 12 or a later one"),
    "event": ("{event: upload_started, nth: 3}", "there is a third event of that kind in the history"),
    "state": ("{state: holding}", "the controller is in that state"),
    "after": ("{after: 0}", "there is evidence that action 0 of the method has landed"),
}
ACTION = """method:
- type: action
  name: {title}
  provider:
    type: python
    module: shaketable.chaos.toolkit
    func: {name}
    arguments: {arguments}"""


@command(
    examples="""
shaketable list                                  all experiments
shaketable list --tag gate --json catalogue.json
shaketable list --incidents                      what has happened elsewhere
shaketable list --faults                         what can go wrong
shaketable list --triggers                       when it happens
shaketable list --invariants                     what is judged
"""
)
def list_(
    tag: Tags = None,
    incidents: Annotated[bool, typer.Option("--incidents", help="List the incidents instead.")] = False,
    faults: Annotated[bool, typer.Option("--faults", help="List the faults instead.")] = False,
    triggers: Annotated[bool, typer.Option("--triggers", help="List the triggers instead.")] = False,
    invariants: Annotated[bool, typer.Option("--invariants", help="List the invariants instead.")] = False,
    json: Json = None,
) -> int:
    """List experiments, incidents, faults or invariants.

    `shaketable show NAME` says more of one."""
    asked = {"faults": faults, "triggers": triggers, "invariants": invariants}
    kinds = [kind for kind, wanted in asked.items() if wanted]
    if len(kinds) + bool(tag) + incidents > 1:
        raise UsageError("give --tag, --incidents, --faults, --triggers or --invariants: only one of them")
    check_json(json)
    entries = all_incidents() if incidents else tagged(tag) if tag else catalogue()
    rows = list(WORDS[kinds[0]]()) if kinds else [_row(entry) for entry in entries]
    width = max((len(row[0]) for row in rows), default=0)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")
    said = {kinds[0]: [{"name": n, "text": t} for n, t in rows]} if kinds else _listed(entries, incidents)
    write(json, encoded(said))
    return results.EXIT_PASS


@command(
    examples="""
shaketable show worker-crash          an experiment: what happens, and what is expected
shaketable show two-jobs-for-one      an incident: the same, and its source
shaketable show sigkill_worker        a fault: its arguments, and how it is written in a file
shaketable show step                  a trigger
shaketable show failure-budget        an invariant
"""
)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment, an incident, a fault, a trigger or an invariant.",
            autocompletion=experiment_names,
        ),
    ],
) -> int:
    """Explain an experiment, fault, trigger or invariant."""
    known: dict[str, Callable[[str], Iterator[str]]] = {
        word.partition("(")[0]: SHOWN[kind] for kind, words in WORDS.items() for word, _ in words()
    }
    if name not in known:
        known = {entry.name: _experiment for entry in shipped()} | known
    if name not in known:
        raise UsageError(f"nothing is called {name!r}{nearest(name, known)}; shaketable list names them all")
    for line in known[name](name):
        print(line)
    return results.EXIT_PASS


def _row(entry: Entry) -> tuple[str, str]:
    return entry.name, f"{entry.title} [{', '.join(entry.tags)}]"


def _listed(entries: Sequence[Entry], incidents: bool) -> dict[str, object]:
    return {
        "incidents" if incidents else "experiments": [
            {"name": e.name, "title": e.title, "tags": e.tags, "path": str(e.path), "configuration": e.configuration}
            | ({"source": incident_of(e).source} if incidents else {})
            for e in entries
        ]
    }


# ---- words ----


def _faults() -> Iterator[tuple[str, str]]:
    from shaketable.chaos.experiment.vocabulary import signature_of
    from shaketable.chaos.faults import FAULTS

    for name, fault in FAULTS.items():
        yield f"{name}({', '.join(signature_of(fault).parameters)})", _first_sentence(fault)


def _triggers() -> Iterator[tuple[str, str]]:
    yield from ((name, f"{written}: {text}") for name, (written, text) in TRIGGERS.items())


def _invariants() -> Iterator[tuple[str, str]]:
    from shaketable.chaos.invariants import INVARIANTS

    yield from ((name, invariant.says) for name, invariant in INVARIANTS.items())


def _first_sentence(what: object) -> str:
    return " ".join((inspect.getdoc(what) or "").partition("\n\n")[0].split())


# ---- one of them ----


def _fault(name: str) -> Iterator[str]:
    from shaketable.chaos.experiment.vocabulary import signature_of
    from shaketable.chaos.faults import FAULTS

    fault = FAULTS[name]
    parameters = signature_of(fault).parameters
    yield f"{name}: {inspect.getdoc(fault)}"
    yield f"charged to: {fault.charged_to or 'nothing'}"
    yield f"arguments: {', '.join(str(parameter) for parameter in parameters.values())}"
    arguments = "{target: {rank: 1}, at: {step: 12}}" if "target" in parameters else "{at: {step: 12}}"
    yield ACTION.format(title=f"{name} at step 12", name=name, arguments=arguments)


def _trigger(name: str) -> Iterator[str]:
    from shaketable.chaos.injection.triggers import BESIDES, KINDS, STATES

    written, text = TRIGGERS[name]
    yield f"{name}: true when {text}"
    yield f"written: at: {written}"
    yield f"beside it: {', '.join(sorted(BESIDES.get(name, {'any other trigger'})))}"
    known = {"event": KINDS, "state": STATES}.get(name, ())
    if known:
        yield f"{name}s: {', '.join(sorted(known))}"


def _invariant(name: str) -> Iterator[str]:
    from shaketable.chaos.invariants import INVARIANTS

    yield f"{name}: {INVARIANTS[name].says}"
    yield inspect.getdoc(INVARIANTS[name].check) or ""


def _experiment(name: str) -> Iterator[str]:
    (entry,) = select([name])
    yield f"{entry.name}: {entry.title}"
    yield str(entry.document.get("description", ""))
    yield f"tags: {', '.join(entry.tags)}"
    if entry.path.parent == INCIDENTS:
        yield from _incident(entry)
    for action in entry.document.get("method", ()):
        yield f"action: {action['name']}"
    probes = (entry.document.get("steady-state-hypothesis") or {}).get("probes", ())
    yield from (f"expects: {probe['provider'].get('arguments', {})}" for probe in probes)
    yield f"file: {entry.path}"
    yield f"run it: shaketable run {entry.name}"


def _incident(entry: Entry) -> Iterator[str]:
    incident = incident_of(entry)
    yield f"source: {incident.source}"
    if incident.mutant:
        yield f"fails with: --mutant {incident.mutant}"
    else:
        yield f"known gap: {incident.gap}"


WORDS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "faults": _faults,
    "triggers": _triggers,
    "invariants": _invariants,
}
SHOWN = {"faults": _fault, "triggers": _trigger, "invariants": _invariant}
