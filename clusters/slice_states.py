"""What a TPU slice is when a cluster begins: all that it should be, or not. Pure.

half: a host has not joined. topology: another one with the same pod type. foreign: another generation. duplicate: two
hosts with one worker id. busy: somebody else holds chips of a host for good. sick: on a host no agent comes up.
"""

from __future__ import annotations

from typing import Literal

SliceState = Literal["whole", "half", "topology", "foreign", "duplicate", "busy", "sick"]
