"""What the system says about the end of memory."""

from __future__ import annotations

from pathlib import Path

STATISTICS = Path("/proc/vmstat")
MIB = 2**20


def system_kills() -> int:
    """How many processes this system has ended for want of memory; 0 where it does not say."""
    try:
        lines = STATISTICS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def mib(size: int) -> str:
    """
    >>> mib(3 * 2**20)
    '3 MiB'
    """
    return f"{size / MIB:,.0f} MiB"
