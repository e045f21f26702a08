"""The API of jobs under load: 1,000 jobs that wait, 200 open event streams, and questions all the while.

``ANGLEWISE_BENCH_SECONDS`` sets how long it is asked (default 60).
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.http import server
from benchmarks.table import Row
from jobs.valkey import Valkey, free_port

JOBS = 1000
STREAMS = 200
BODY = '{"kind": "optimal_geometry", "spec": {"class_counts": [500, 200, %d]}}'


def rows() -> Iterator[Row]:
    seconds = float(os.environ.get("ANGLEWISE_BENCH_SECONDS", "60"))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="anglewise-bench-") as folder:
        valkey = Valkey(Path(folder, "valkey"))
        valkey.start()
        environment = {
            "ANGLEWISE_BROKER_URL": valkey.url,
            "ANGLEWISE_DATA_DIR": folder,
            "ANGLEWISE_WORKERS": "1",
        }
        command = [sys.executable, "-m", "service", "--port", str(port)]
        try:
            # No worker takes the jobs: they go on waiting.
            with server(command, port, "/health/live", environment) as process:
                yield from _under_load(port, process.pid, seconds)
        finally:
            valkey.stop()


def _under_load(port: int, pid: int, seconds: float) -> Iterator[Row]:
    asking = http.client.HTTPConnection("127.0.0.1", port)
    submitted: list[float] = []
    ids = [_submit(asking, number, submitted) for number in range(JOBS)]
    streams = [_open_stream(port, ids[number % JOBS]) for number in range(STREAMS)]
    _ask(asking, ids, 5.0)
    before = _resident_bytes(pid)
    times = _ask(asking, ids, seconds)
    growth = _resident_bytes(pid) / before - 1
    alive = sum(_is_open(stream) for stream in streams)
    for stream in streams:
        stream.close()
    median, tail = np.percentile(times, [50, 99]) * 1e3
    yield Row(
        what=f"GET /jobs/{{id}}, {JOBS} jobs waiting, {alive} event streams open",
        bar="p99 < 100 ms",
        measured=f"p50 {median:.1f} ms, p99 {tail:.1f} ms ({len(times)} questions)",
        met=bool(tail < 100 and alive == STREAMS),
    )
    yield Row(
        what=f"memory of the API meanwhile, over {seconds:g} s",
        bar="< 10 % more",
        measured=f"{100 * growth:+.1f} % of {before / 2**20:.0f} MiB",
        met=growth < 0.1,
    )
    quick, slow = np.percentile(submitted, [50, 99]) * 1e3
    yield Row(
        what="POST /jobs, until the job is on the disk",
        bar="none",
        measured=f"p50 {quick:.1f} ms, p99 {slow:.1f} ms",
        met=True,
    )


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _submit(connection: http.client.HTTPConnection, number: int, times: list[float]) -> str:
    start = time.perf_counter()
    connection.request("POST", "/jobs", BODY % (number + 1), {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    times.append(time.perf_counter() - start)
    if response.status != 202:
        raise RuntimeError(f"/jobs answered {response.status}")
    return str(response.headers["Location"]).rpartition("/")[2]


def _ask(connection: http.client.HTTPConnection, ids: list[str], seconds: float) -> list[float]:
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        connection.request("GET", f"/jobs/{ids[len(times) * 7 % len(ids)]}")
        response = connection.getresponse()
        response.read()
        times.append(time.perf_counter() - start)
        if response.status != 200:
            raise RuntimeError(f"a job answered {response.status}")
        time.sleep(0.01)
    return times


def _open_stream(port: int, job_id: str) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(f"GET /jobs/{job_id}/events HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
    head = stream.recv(4096)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    return stream


def _is_open(stream: socket.socket) -> bool:
    """Whether the service has not closed it; what it sent so far is read away."""
    stream.setblocking(False)
    try:
        while stream.recv(65536):
            pass
    except BlockingIOError:
        return True
    return False
