"""How many random cases a property gets."""

from __future__ import annotations

import os

from hypothesis import settings

# They are the same in every run, so that more of them find something once: whoever changes the controller asks for it.
EXAMPLES = int(os.environ.get("SHAKETABLE_EXAMPLES", "100"))
seeded = settings(deadline=None, derandomize=True, max_examples=EXAMPLES)
