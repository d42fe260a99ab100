"""What the `job` of a configuration is by the way it is written: `package.module:function`, a pickled function, or a
command. Pure; whether the thing is there is asked elsewhere.
"""

from __future__ import annotations

import re

FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PICKLED = ".pkl"
OURS = "shaketable."


def is_function(job: str) -> bool:
    return FUNCTION.fullmatch(job) is not None


def is_pickled(job: str) -> bool:
    return job.endswith(PICKLED) and not any(space in job for space in " \t\n")


def is_command(job: str) -> bool:
    """`python train.py --epochs 3`: started as it is, as the driver of its run."""
    return not is_function(job) and not is_pickled(job)


def is_bundled(job: str) -> bool:
    """Whether it is a workload of ours, which records its own state."""
    return is_function(job) and job.startswith(OURS)
