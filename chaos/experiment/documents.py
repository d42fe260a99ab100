"""An experiment file as it stands: the YAML document, read once. What it means is `file.py`'s business."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from shaketable.chaos.errors import ExperimentError

MAX_BYTES = 1 << 20
# libyaml's is ten times as quick; not every build of PyYAML has it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parsed(text: str) -> Any:
    """What the YAML text says. Raises yaml.YAMLError."""
    try:
        return yaml.load(text, _LOADER)
    except yaml.YAMLError:
        # this one's message says more
        return yaml.safe_load(text)


def read(path: Path) -> dict[str, Any]:
    """Raises ExperimentError that names the file, and the line where YAML gave up."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ExperimentError(f"{path} is larger than {MAX_BYTES >> 20} MiB, which is no experiment")
        document = parsed(path.read_text())
    except FileNotFoundError:
        raise ExperimentError(f"no such experiment file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"cannot read experiment file {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ExperimentError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ExperimentError(f"{path} is not an experiment: expected a mapping with title, configuration, method ...")
    return document
