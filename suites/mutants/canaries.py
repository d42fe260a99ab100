"""The mutant that a gate has to catch besides its experiments, drawn from the seed: gates of many days catch many.

Each of these fails its experiment of the gate by the first invariant that it names, with every seed that was tried
(`suites/tests/suites/test_canaries.py`). Those of processes and of local Ray were seen there, each alone. What hangs
is given the mutant's own `within_s`: a gate takes minutes.
"""

from __future__ import annotations

import random

# where nobody has tried the others
CANARY = "resume-from-scratch"
# local Ray finds nodes by other code, and waits a minute to see that nothing grows
NOT_ON_RAY = ("growth-never", "new-nodes-not-looked-for")
CANARIES = {
    "simulated": (
        "attempt-number-reused",
        "budget-kept-by-a-reopened-run",
        "budget-off-by-one",
        "budget-one-too-small",
        "budgets-recorded-as-0",
        "charged-twice",
        "commit-before-upload",
        "commits-with-the-metrics-before",
        "culprit-is-always-rank-0",
        "driver-lost-charged",
        "early-reclaim-charged",
        "error-names-another-budget",
        "error-names-another-culprit",
        "error-not-charged",
        "failure-not-recorded",
        "fence-ignored",
        "growth-never",
        "interrupt-called-a-failure",
        "interrupt-charged",
        "left-without-a-hold",
        "live-checkpoints-collected",
        "lost-member-not-noticed",
        "node-loss-not-charged",
        "open-attempt-forgotten",
        "preemption-charged",
        "rank-order-stale",
        "resize-charged",
        "resume-from-an-older-commit",
        "resume-not-passed-on",
        "stop-not-noticed",
        "success-on-failure",
        "term-not-raised",
        "tier-never-left",
        "uploads-never-collected",
        "world-above-max",
        "world-below-min",
    ),
    "processes": (
        "attempt-number-reused",
        "budget-kept-by-a-reopened-run",
        "budget-off-by-one",
        "budget-one-too-small",
        "budgets-recorded-as-0",
        "charged-twice",
        "checkpoint-taken-for-a-plain-report",
        "checkpoints-not-handed-over",
        "commit-before-upload",
        "commits-with-the-metrics-before",
        "culprit-is-always-rank-0",
        "driver-lost-charged",
        "early-reclaim-charged",
        "error-called-a-death",
        "error-called-an-end",
        "error-names-another-budget",
        "error-names-another-culprit",
        "error-not-charged",
        "every-word-is-rank-0-s",
        "failure-not-recorded",
        "finished-without-a-word",
        "forked-without-the-checkpoint",
        "growth-never",
        "interrupt-called-a-failure",
        "interrupt-charged",
        "last-file-left-out",
        "left-without-a-hold",
        "live-checkpoints-collected",
        "metrics-of-the-report-before",
        "new-nodes-not-looked-for",
        "no-checkpoint-is-ever-requested",
        "node-loss-not-charged",
        "open-attempt-forgotten",
        "preemption-charged",
        "rank-order-stale",
        "ranks-given-backwards",
        "reports-numbered-from-1",
        "resize-asks-for-no-checkpoint",
        "resize-charged",
        "restored-with-an-error-called-none",
        "resume-from-an-older-commit",
        "resume-from-scratch",
        "resume-not-passed-on",
        "size-of-something-else",
        "stop-not-noticed",
        "term-not-raised",
        "tier-never-left",
        "uploaded-under-another-name",
        "uploads-never-collected",
        "uploads-never-heard-of",
        "voted-before-the-upload",
        "workers-not-killed",
        "world-above-max",
        "world-below-min",
        "world-told-too-large",
    ),
}
CANARIES["local"] = tuple(name for name in CANARIES["processes"] if name not in NOT_ON_RAY)


def canary(cluster: str, seed: int) -> str:
    """Of as many seeds, one after the other, as there are canaries each has another one."""
    names = list(CANARIES.get(cluster or "local", (CANARY,)))
    random.Random("canaries").shuffle(names)
    return names[seed % len(names)]
