"""Over HTTP on one connection: a ten-class geometry against a bare echo route, both served by uvicorn."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import orjson

from benchmarks.table import Row, in_turns
from jobs.valkey import free_port

ROUNDS = 400

ECHO = """
import sys, uvicorn
from fastapi import FastAPI, Request, Response
app = FastAPI()
@app.post("/echo")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


def rows() -> Iterator[Row]:
    service, echo = free_port(), free_port()
    with (
        server([sys.executable, "-m", "service", "--port", str(service)], service, "/health/ready"),
        server([sys.executable, "-c", ECHO, str(echo)], echo, "/docs"),
    ):
        yield from _latencies(service, echo)
    yield _json_row()


def _latencies(service: int, echo: int) -> Iterator[Row]:
    ours = http.client.HTTPConnection("127.0.0.1", service)
    bare = http.client.HTTPConnection("127.0.0.1", echo)
    random = np.random.default_rng(0)
    bodies = [
        json.dumps({"class_counts": np.sort(random.integers(5, 5000, 10))[::-1].tolist()})
        for _ in range(ROUNDS)
    ]
    samples: dict[str, list[float]] = {"new": [], "cached": [], "echo": []}
    for body in [*bodies[:20], *bodies]:
        samples["new"].append(_post(ours, "/optimal-geometry", body))
        samples["cached"].append(_post(ours, "/optimal-geometry", body))
        samples["echo"].append(_post(bare, "/echo", body))
    times = {name: np.percentile(values[20:], [50, 99]) * 1e3 for name, values in samples.items()}
    floor = times["echo"][0]
    for name, what in (
        ("new", "C=10 over HTTP, never asked before"),
        ("cached", "C=10 over HTTP, asked before"),
    ):
        median, tail = times[name]
        yield Row(
            what=what,
            bar="p50 <= 5 ms, p99 <= 20 ms",
            measured=f"p50 {median:.2f} ms, p99 {tail:.2f} ms = {median / floor:.1f} x echo ({floor:.2f} ms)",
            met=bool(median <= 5 and tail <= 20),
        )


def _json_row() -> Row:
    """The service's encoder, with its checks, against orjson alone on a 500 × 500 matrix."""
    from jobs.computations.encoding import encode

    matrix = np.random.default_rng(0).uniform(-1, 1, (500, 500))
    functions: list[Callable[[], object]] = [
        lambda: encode({"gram": matrix}),
        lambda: orjson.dumps({"gram": matrix}, option=orjson.OPT_SERIALIZE_NUMPY),
    ]
    ours, bare = in_turns(functions, rounds=41)
    return Row(
        what="JSON of a 500 x 500 matrix",
        bar="<= 1.5 x orjson alone",
        measured=f"{ours / bare:.2f} x ({1e3 * ours:.1f} ms)",
        met=ours / bare <= 1.5,
    )


def _post(connection: http.client.HTTPConnection, path: str, body: str) -> float:
    start = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    elapsed = time.perf_counter() - start
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}")
    return elapsed


@contextmanager
def server(
    command: list[str], port: int, ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends, once ``ready`` answers 200."""
    settings = {"ANGLEWISE_LOG_LEVEL": "WARNING", **(environment or {})}
    process = subprocess.Popen(command, env=os.environ | settings)
    try:
        for _ in range(600):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            try:
                connection.request("GET", ready)
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        else:
            raise RuntimeError(f"{command} did not become ready")
        yield process
    finally:
        process.terminate()
        process.wait(10)
