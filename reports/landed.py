"""One line for each fault that landed, in words: `SIGKILL driver pid 4121 at step 12, gone after 8 ms`.

Built from the history alone, so that a judgement made elsewhere prints the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaketable.chaos.history.events import AnyEvent, ControlFailed, FaultInjected, FaultObserved, FaultTriggered


def landed(events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """Every fault with the evidence for it, in the order of the experiment's method."""
    triggered = {e.fault: e for e in events if isinstance(e, FaultTriggered)}
    observed = {e.fault: e for e in events if isinstance(e, FaultObserved)}
    injected = sorted((e for e in events if isinstance(e, FaultInjected)), key=lambda e: e.fault)
    return tuple(_line(e, triggered.get(e.fault), observed.get(e.fault)) for e in injected)


def output(events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """What a job printed last that does not work without faults, and where all of it is."""
    failed = [event for event in events if isinstance(event, ControlFailed)]
    return (*failed[-1].output, f"full output: {failed[-1].log}") if failed else ()


def _line(fault: FaultInjected, trigger: FaultTriggered | None, seen: FaultObserved | None) -> str:
    evidence = f", {seen.evidence} after {milliseconds(seen.after_ms)}" if seen else ", no evidence"
    return f"{what(fault)}{at_step(trigger)}{evidence}"


def what(fault: FaultInjected) -> str:
    """`sigkill_worker` with its target becomes `SIGKILL worker rank 1 pid 77`."""
    verb, _, target_kind = fault.name.partition("_")
    verb = verb.upper() if verb.startswith("sig") else verb
    words = f"{verb} {target_kind}".strip().replace("_", " ")
    return " ".join([words + ("s" if len(fault.nodes) > 1 and target_kind == "node" else ""), *_target(fault)])


def _target(fault: FaultInjected) -> list[str]:
    words = []
    if fault.nodes:
        words.append(_named("", fault.nodes))
    if fault.ranks:
        words.append(("of " if fault.nodes else "") + _named("rank ", fault.ranks))
    # a node has a dozen processes: nobody wants to read them
    if fault.pids and not fault.nodes:
        words.append(_named("pid ", fault.pids))
    return words


def _named(word: str, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:4])) + (" ..." if len(numbers) > 4 else "")
    return f"{word.strip()}s {shown}" if word and len(numbers) > 1 else f"{word}{shown}"


def at_step(trigger: FaultTriggered | None) -> str:
    if trigger is None:
        return ""
    if trigger.step is not None:
        return f" at step {trigger.step}"
    return " at " + ", ".join(f"{key} {value}" for key, value in trigger.trigger.items())


def milliseconds(value: float) -> str:
    """`0.4 ms`, `8 ms`, `13.6 s`."""
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 1 else f"{value:.1f} ms"
