"""One running system to a data folder, also when an earlier one was killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

LOCK = "running.lock"
"""Locked by the process that starts the others, for as long as it lives; says where the service is."""
CHILDREN_LOCK = "processes.lock"
"""Locked by that process and by all that it started: held until the last of them has ended."""
PROCESSES = "processes.json"
TEMPORARY = "temporary"
"""Folder of temporary files: what a killed process left there is gone at the next start."""
POLITE_SECONDS = 12.0
FORCED_SECONDS = 3.0


class InUse(Exception):
    """Another running system uses the folder."""


class DataFolder:
    """The folder, locked. ``children_lock`` is a file descriptor that every started process inherits."""

    def __init__(self, path: Path, address: str) -> None:
        """Lock the folder, creating it if missing.

        Raises:
            InUse: by whom.
            OSError: it cannot be created or written to.
        """
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self.children_lock = os.open(path / CHILDREN_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self._mine = False
        try:
            if not _locked(self._lock):
                raise InUse(f"anglewise runs with the data folder {path} already: {_read(path / LOCK)}")
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"{address}, process {os.getpid()}".encode())
            self._end_leftovers()
            self._mine = True
            self._clear_temporary()
            self.temporary.mkdir()
        except BaseException:
            self.close()
            raise

    @property
    def temporary(self) -> Path:
        """For temporary files of all processes."""
        return self.path / TEMPORARY

    def note_processes(self, pids: Iterable[int]) -> None:
        """Write down which processes were started, for the case that this one is killed.

        A disk that takes nothing is no reason to stop: most systems end them by themselves.
        """
        known = {str(pid): _birth(pid) for pid in pids}
        staged = self.path / f"{PROCESSES}.new"
        with contextlib.suppress(OSError):
            staged.write_text(json.dumps(known), encoding="utf-8")
            staged.replace(self.path / PROCESSES)

    def close(self) -> None:
        """Unlock the folder, after its processes have ended."""
        if self._mine:
            self._clear_temporary()
        os.close(self._lock)
        os.close(self.children_lock)

    def _clear_temporary(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _end_leftovers(self) -> None:
        """Wait for processes of an earlier system, which was killed, and end them."""
        if _locked(self.children_lock):
            return
        print("waiting for the processes of an earlier run to end ...", flush=True)
        for number, seconds in ((signal.SIGTERM, POLITE_SECONDS), (signal.SIGKILL, FORCED_SECONDS)):
            self._signal_leftovers(number)
            if _locked_within(self.children_lock, seconds):
                return
        raise InUse(f"processes of an earlier run still use {self.path}: {_read(self.path / PROCESSES)}")

    def _signal_leftovers(self, number: signal.Signals) -> None:
        try:
            noted: dict[str, str] = json.loads(_read(self.path / PROCESSES) or "{}")
        except ValueError:
            return
        for pid, birth in noted.items():
            if birth and _birth(int(pid)) == birth:  # a number may have been given to another process
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), number)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_within(descriptor: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not _locked(descriptor):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")
    return ""


def _birth(pid: int) -> str:
    """When a process began, in some words; empty if it is not there."""
    with contextlib.suppress(OSError, IndexError):
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return after_name.split()[19]
    with contextlib.suppress(OSError):
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
        return told.stdout.strip()
    return ""
