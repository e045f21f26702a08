"""The runner's end of its conversation with the supervisor."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from typing import Any

from jobs.frames import Frame, pack, receive_frame
from worker.messages import Order, Report
from worker.training.context import Stopping

logger = logging.getLogger("anglewise.worker")


class Channel:
    """Reads on a thread of its own, so that a job hears "stop" while it computes.

    The process ends as soon as the supervisor is gone.

    Attributes:
        stopping: why the running job should stop, if it should.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._flushed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stopping: Stopping | None = None
        self.stop_requested = threading.Event()
        threading.Thread(target=self._listen, name="supervisor", daemon=True).start()

    def send(self, report: Report, **fields: Any) -> None:
        message = pack({"type": report.value} | fields)
        with self._sending:
            self._connection.sendall(message)

    def next_order(self) -> Frame:
        """Wait for something to do."""
        return self._orders.get()

    def flush(self) -> bool:
        """Wait until every event sent so far is stored; False if it cannot be stored now."""
        self.send(Report.FLUSH)
        return self._flushed.get()

    def _listen(self) -> None:
        try:
            while True:
                header, body = receive_frame(self._connection)
                self._handle(header, body)
        except (EOFError, OSError):
            os._exit(0)

    def _handle(self, header: dict[str, Any], body: bytes) -> None:
        match header["type"]:
            case Order.STOP:
                self.stopping = header["why"]
                self.stop_requested.set()
            case Order.FLUSHED:
                self._flushed.put(header["stored"])
            case Order.RUN:
                self.stopping = None  # a "stop" that came too late was for the job before
                self.stop_requested.clear()
                self._orders.put((header, body))
            case _:
                self._orders.put((header, body))
