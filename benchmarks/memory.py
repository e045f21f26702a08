"""How much memory this process needed."""

from __future__ import annotations

from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_kib() -> int:
    """The most so far, in KiB. That of `resource` would begin with the peak of the process before it."""
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
