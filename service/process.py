"""The parent's side of one solver process."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from jobs.computations.limits import Limits
from jobs.frames import Frame, read_frame, write_frame

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
STREAM_BUFFER = 2**20


class SolverProcess:
    """A process that answers one message at a time, and dies when it is told to."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._answer: asyncio.Future[Frame] | None = None
        self.gone = asyncio.create_task(self._listen())
        """Done as soon as the process has ended."""

    @classmethod
    async def start(cls, limits: Limits) -> Self:
        """Start a process and wait until its compiled code is loaded.

        Raises:
            EOFError, ConnectionError: it ended before it was ready.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            # A process group of its own: Ctrl-C in the terminal is for the parent to handle.
            process = subprocess.Popen(
                [sys.executable, "-m", "service.solver", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=os.environ | ONE_THREAD | {"PYTHONPATH": _search_path()},
                process_group=0,
            )
        ours.setblocking(False)
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=STREAM_BUFFER)
        except BaseException:
            process.kill()
            raise
        solver = cls(process, reader, writer)
        try:
            await solver.ask(limits.model_dump())
        except BaseException:
            await solver.kill()
            raise
        return solver

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Also before the end of its messages has been noticed."""
        return self.gone.done() or self._process.poll() is not None

    async def ask(self, header: dict[str, Any], body: bytes = b"") -> Frame:
        """Send one message and wait for its answer.

        Raises:
            EOFError, ConnectionError: the process died.
        """
        if self.gone.done():
            raise EOFError
        self._answer = asyncio.get_running_loop().create_future()
        await write_frame(self._writer, header, body)
        return await self._answer

    async def _listen(self) -> None:
        """Pass each answer on; at the end of the stream, fail the one that is awaited."""
        try:
            while True:
                frame = await read_frame(self._reader)
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(frame)
        except (EOFError, ConnectionError):
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(EOFError())

    async def kill(self) -> None:
        """End the process at once and reap it. May be called again."""
        self._process.kill()
        self.gone.cancel()
        self._writer.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.to_thread(self._process.wait)


def _search_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])
