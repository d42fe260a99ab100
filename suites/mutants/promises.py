"""Which mutants break which promise of docs/semantics.md, by the promise's id. What must catch each of them it says
itself. `python -m shaketable.suites.tools.promises` joins the three, and fails where something is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

BROKEN_BY: Mapping[str, tuple[str, ...]] = {
    "start-1": ("starts-only-with-max", "world-below-min", "lost-unit-counted"),
    "start-2": ("what-cannot-be-loaded-is-tried-again",),
    "size-1": ("world-above-max", "world-below-min"),
    "size-2": ("topology-ignored", "head-only-match", "foreign-slice-counted", "rank-by-name-not-id"),
    "loss-1": ("resume-not-passed-on", "resume-from-an-older-commit", "lost-member-not-noticed"),
    "grow-1": ("growth-never", "grow-flapping"),
    "grow-2": ("resize-asks-for-no-checkpoint", "hold-left-with-an-older-commit", "resize-charged"),
    "samples-1": ("final-metrics-mangled", "restored-without-momentum"),
    "wait-1": ("held-for-ever", "unit-never-released", "given-back-and-asked-for-at-once"),
    "place-1": ("replacement-not-awaited", "released-while-in-use"),
    "demand-1": ("lost-unit-counted", "lost-agent-never-replaced"),
    "notice-1": ("left-without-a-hold", "notice-ignored"),
    "notice-2": ("replacement-not-awaited", "left-without-a-hold"),
    "notice-3": ("notice-window-ignored", "deadline-put-off-at-every-look"),
    "budget-1": ("charged-twice", "error-not-charged"),
    "budget-2": (
        "budget-off-by-one",
        "budget-one-too-small",
        "error-names-another-budget",
        "error-names-another-culprit",
    ),
    "budget-3": ("resize-charged", "driver-lost-charged", "interrupt-charged", "signal-makes-a-failure-free"),
    "budget-4": ("budget-reset-by-a-new-driver",),
    "budget-5": ("no-pause-before-a-retry", "pause-doubles-never", "pause-lasts-a-thousand-times-as-long"),
    "budget-6": (
        "budget-window-ignored",
        "budget-window-forgotten-by-a-new-driver",
        "charged-by-the-driver-s-own-clock",
    ),
    "budget-7": ("crash-loop-ignored", "crash-loop-forgotten-by-a-new-driver"),
    "budget-8": ("start-failures-never-end-a-row", "start-failures-forgotten-at-every-ending"),
    "budget-9": ("agents-that-do-not-start-uncounted",),
    "node-1": ("quarantine-ignored", "quarantine-one-too-late"),
    "node-2": ("quarantine-never-ends",),
    "node-3": ("quarantine-forgotten-by-a-new-driver",),
    "tier-1": ("tier-never-left", "empty-market-waited-for", "tier-not-asked-for"),
    "tier-2": ("tier-charges-carried-over", "preemption-limit-ignored"),
    "tier-3": ("ladder-begun-again", "error-names-another-budget", "failure-not-recorded"),
    "tier-4": ("tier-forgotten-by-a-new-driver", "tier-skipped"),
    "cause-1": ("a-hang-is-called-a-death", "start-failure-taken-for-an-error", "open-attempt-forgotten"),
    "cause-2": ("echo-taken-for-the-cause", "culprit-is-always-rank-0", "culprit-of-a-start-is-always-rank-0"),
    "cause-3": ("early-reclaim-charged", "unread-notice-forgotten"),
    "cause-4": ("bug-during-a-preemption-not-charged",),
    "hang-1": ("hang-ignored", "hang-not-charged"),
    "hang-2": ("those-that-wait-are-blamed-for-a-hang",),
    "hang-3": ("pause-taken-for-a-hang",),
    "commit-1": (
        "commit-before-upload",
        "commit-before-all-uploads",
        "commit-before-all-ranks-passed",
        "lost-answer-written-again",
    ),
    "commit-2": ("report-returns-before-its-upload",),
    "commit-3": ("live-checkpoints-collected", "upload-cut-off-counts"),
    "commit-4": (
        "num-to-keep-off-by-one",
        "one-checkpoint-too-many-kept",
        "latest-checkpoint-deleted",
        "newest-kept-instead-of-best",
        "worst-kept-instead-of-best",
    ),
    "commit-5": ("late-commit-of-an-ended-attempt",),
    "commit-6": ("file-below-a-file-committed",),
    "commit-7": ("a-refusal-is-no-vote",),
    "commit-8": ("refused-checkpoints-not-named",),
    "commit-9": ("permission-bits-lost",),
    "commit-10": ("error-told-before-the-last-reports",),
    "metrics-1": (
        "what-json-cannot-say-recorded-as-text",
        "metrics-of-any-rank",
        "commits-with-the-metrics-of-any-rank",
    ),
    "corrupt-1": (
        "no-checksum-on-restore",
        "quarantined-files-deleted",
        "quarantined-files-collected",
        "resume-from-an-older-commit",
    ),
    "corrupt-2": ("corruption-begins-from-scratch", "quarantine-is-final", "taken-back-unverified"),
    "corrupt-3": ("outage-at-a-restore-quarantines", "node-without-the-mount-believed"),
    "storage-1": ("objects-created-over-each-other",),
    "storage-2": ("any-store-is-good-enough",),
    "storage-3": ("local-reads-tried-once", "restore-tried-once", "storage-outage-charged"),
    "storage-4": ("outage-does-not-say-what-is-safe", "failure-not-recorded"),
    "storage-5": ("lost-answer-written-again", "lost-answer-taken-for-a-rival"),
    "storage-6": ("directories-not-synced",),
    "storage-7": ("snapshots-never-read",),
    "storage-8": ("lost-log-begins-from-scratch",),
    "storage-9": ("node-without-the-mount-believed", "ready-without-having-seen-the-run"),
    "storage-10": ("disk-of-a-node-never-given-up", "ready-with-a-full-disk"),
    "driver-1": ("budget-reset-by-a-new-driver", "tier-forgotten-by-a-new-driver", "resume-not-passed-on"),
    "driver-2": ("interrupt-charged", "interrupt-called-a-failure"),
    "driver-3": ("finished-run-reopened",),
    "driver-4": ("budget-kept-by-a-reopened-run", "resume-not-passed-on"),
    "driver-5": ("any-configuration-goes-on", "budgets-recorded-as-0"),
    "driver-6": ("fence-ignored", "fence-not-obeyed", "fence-checked-at-appends-only", "term-not-raised"),
    "driver-7": ("success-on-failure", "failure-not-recorded", "commits-with-the-metrics-before"),
    "driver-8": ("uploads-never-collected", "workers-not-killed", "lease-not-given-back"),
    "job-1": ("resume-from-scratch",),
    "job-2": ("resume-from-scratch",),
    "job-3": ("restored-without-momentum",),
    "job-4": ("uploads-never-collected",),
}

_JUDGED, _PROMISES = "suites/test_own_job_judged.py::", "chaos/test_judge_promises.py::"
# By the check that they prove, tests below suites/tests/, besides those that the mutants name themselves: of what no
# mutant of the runtime reaches, such as a job of the user's own that does its steps again, or no random schedule.
TESTED_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "budget-8": {"failure-budget": (_PROMISES + "test_start_failures_that_are_not_in_a_row_end_no_run",)},
    "hang-2": {"tests": ("runtime/test_runtime_stacks.py::test_they_are_saved_by_attempt_and_rank",)},
    "commit-7": {
        "tests": ("runtime/test_session_reports.py::test_a_staging_that_fails_consumes_its_index_and_votes_no",)
    },
    "corrupt-3": {"durability": (_PROMISES + "test_what_nobody_has_damaged_is_not_given_up",)},
    "storage-3": {"failure-budget": (_PROMISES + "test_an_outage_is_charged_to_nothing",)},
    "job-1": {"resume-from-checkpoint": (_JUDGED + "test_a_job_that_does_its_steps_again_or_leaves_some_out_is_red",)},
    "job-2": {"sample-accounting": (_JUDGED + "test_reports_are_counted_against_those_of_a_whole_run",)},
    "job-3": {"metrics-match": (_JUDGED + "test_metrics_are_compared_as_far_as_that_means_anything",)},
    "job-4": {
        "no-leaks": (_JUDGED + "test_an_upload_that_ray_train_never_removes_is_said_and_not_held_against_the_job",)
    },
}
