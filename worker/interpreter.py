"""Starting interpreters that find these packages, from wherever this one was started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the search path of modules widened."""
    inherited = environment.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
    return {**environment, "PYTHONPATH": path}
