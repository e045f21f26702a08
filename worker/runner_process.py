"""The supervisor's side of a runner."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from jobs.frames import PREFIX, Frame, pack
from worker.interpreter import with_packages
from worker.messages import ENDINGS, Order, Report

PIECE = 64 * 1024
START_SECONDS = 300.0
"""Loading torch from a cold disk on a busy machine takes a while."""
REAP_SECONDS = 10.0
SEND_SECONDS = 60.0


class RunnerFailed(Exception):
    """A runner ended, or said nothing, before it was ready for its first job."""


class RunnerProcess:
    """A process that does jobs one after the other, and dies when it is told to.

    Start it from a thread that lives as long as the process: the system ends it with its parent thread.
    """

    def __init__(self, environment: Mapping[str, str], configuration: Mapping[str, Any]) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            # A process group of its own: Ctrl-C in the terminal is for the worker to handle, and what the
            # runner starts can be killed with it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker.runner", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=with_packages(environment),
                process_group=0,
            )
        self._channel.settimeout(SEND_SECONDS)
        self._sending = threading.Lock()
        self._received = bytearray()
        self._ready = False
        self.reusable = True
        """Whether it is free, and may be given another job."""
        self.jobs = 0
        """How many it was given."""
        self.send(Order.CONFIGURE, dict(configuration))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def exit_status(self) -> int | None:
        """Of the ended process; minus the number of the signal that ended it."""
        return self._process.returncode

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """
        Raises:
            RunnerFailed
        """
        deadline = time.monotonic() + seconds
        while not self._ready:
            try:
                frame = self.receive(max(deadline - time.monotonic(), 0.0))
            except EOFError:
                self.kill()
                raise RunnerFailed(f"it ended with status {self.exit_status}") from None
            if frame is None and time.monotonic() >= deadline:
                raise RunnerFailed(f"it was not ready after {seconds:g} s")
            self._ready = frame is not None and frame[0]["type"] == Report.READY

    def send(self, order: Order, fields: Mapping[str, Any], body: bytes = b"") -> None:
        """A runner that is gone is noticed by `receive`."""
        if order is Order.RUN:
            self.jobs, self.reusable = self.jobs + 1, False
        message = pack({"type": order.value} | dict(fields), body)
        with self._sending, contextlib.suppress(OSError):
            self._channel.sendall(message)

    def receive(self, seconds: float) -> Frame | None:
        """The next message; None if none is complete in time.

        Raises:
            EOFError: the runner is gone, and every message it sent was returned.
        """
        deadline = time.monotonic() + seconds
        while (frame := self._take()) is None:
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([self._channel], [], [], left)[0]:
                return None
            try:
                piece = self._channel.recv(PIECE)
            except ConnectionError:
                piece = b""
            if not piece:
                raise EOFError
            self._received += piece
        if frame[0]["type"] in ENDINGS:
            self.reusable = frame[0]["reusable"]
        return frame

    def _take(self) -> Frame | None:
        if len(self._received) < PREFIX.size:
            return None
        header_length, body_length = PREFIX.unpack_from(self._received)
        start, end = PREFIX.size + header_length, PREFIX.size + header_length + body_length
        if len(self._received) < end:
            return None
        header = orjson.loads(self._received[PREFIX.size : start])
        body = bytes(self._received[start:end])
        del self._received[:end]
        return header, body

    def memory(self) -> int:
        """Bytes of memory it and its companions use now; 0 where the system does not say."""
        try:
            companions = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            companions = []
        return sum(_memory(pid) for pid in (self.pid, *map(int, companions)))

    def kill(self) -> None:
        """End it and what it started, at once. May be called again."""
        if self._process.returncode is None:  # not reaped yet, so the number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may hang in the system, and stay silent
            self._process.wait(REAP_SECONDS)
        self._channel.close()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _memory(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line and line[0] in ("RssAnon:", "RssShmem:"))
