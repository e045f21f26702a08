"""Kinds of jobs that misbehave, or whose every step is known; a runner loads them when it is told to."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
import warnings
from typing import Any

from jobs.computations.limits import Limits
from worker.context import JobContext
from worker.kinds import Kind
from worker.training.context import Diverged, Stopped

MODULUS = 2**61 - 1


def following(value: int, step: int) -> int:
    """The state after one more step: the last state depends on every step before it."""
    return (value * 6364136223846793005 + step) % MODULUS


def state_after(steps: int, seed: int = 1) -> int:
    value = seed
    for step in range(1, steps + 1):
        value = following(value, step)
    return value


def _steps(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Many short steps with metrics and checkpoints, like a training."""
    wanted = json.loads(spec)
    step, value = 0, wanted.get("seed", 1)
    found = context.load_checkpoint()
    if found is not None:
        state = json.loads(found[1])
        step, value = state["step"], state["value"]
    while step < wanted["steps"]:
        stopping = context.stopping
        if stopping == "shutdown":
            context.save_checkpoint(step, json.dumps({"step": step, "value": value}).encode())
        if stopping is not None:
            raise Stopped
        time.sleep(wanted["seconds"])
        step += 1
        value = following(value, step)
        context.progress(step, wanted["steps"])
        context.metrics(step, {"value": value % 1000})
        if step % wanted.get("checkpoint_every", 10) == 0:
            context.save_checkpoint(step, json.dumps({"step": step, "value": value}).encode())
    context.artifact("result.json", json.dumps({"value": value}).encode(), "application/json")


def _die(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Be killed in the first attempts, then succeed."""
    wanted = json.loads(spec)
    if context.attempt <= wanted.get("attempts", 99):
        os.kill(os.getpid(), wanted.get("signal", signal.SIGKILL))
        time.sleep(60)
    context.artifact("result.json", b"{}", "application/json")


def _exit(spec: bytes, context: JobContext, limits: Limits) -> None:
    os._exit(7)


def _memory(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Take more and more memory, and use it."""
    pieces = []
    while True:
        pieces.append(bytearray(os.urandom(2**20)) * 16)


def _native_loop(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Hold the interpreter's lock for days."""
    context.progress(1, 2)
    sum(range(10**15))


def _deaf(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Never look whether it should stop."""
    context.progress(1, 2)
    while True:
        time.sleep(0.01)


def _nan(spec: bytes, context: JobContext, limits: Limits) -> None:
    context.metrics(1, {"loss": float("nan"), "nc1": float("inf"), "r2": 0.5, "gap": None})
    raise Diverged("the loss became nan in step 2")


def _mistake(spec: bytes, context: JobContext, limits: Limits) -> None:
    raise RuntimeError("a secret path")


def _talk(spec: bytes, context: JobContext, limits: Limits) -> None:
    """Write wherever libraries write."""
    print("printed")
    os.write(1, b"written to 1\n")
    os.write(2, b"written to 2\n")
    logging.getLogger("library").warning("logged")
    warnings.warn("warned", stacklevel=1)
    context.event("said")
    context.artifact(
        "result.json",
        json.dumps({"cuda": os.environ.get("CUDA_VISIBLE_DEVICES")}).encode(),
        "application/json",
    )


def _wrong_result(spec: bytes, context: JobContext, limits: Limits) -> None:
    context.artifact("../../escape", b"", "text/plain")


def _kind(run: Any, cooperative: bool = True, reusable: bool = True) -> Kind:
    return Kind(run, cooperative, reusable)


KINDS = {
    "steps": _kind(_steps, reusable=False),
    "die": _kind(_die),
    "exit": _kind(_exit),
    "memory": _kind(_memory),
    "native_loop": _kind(_native_loop),
    "deaf": _kind(_deaf),
    "nan": _kind(_nan),
    "mistake": _kind(_mistake),
    "talk": _kind(_talk),
    "wrong_result": _kind(_wrong_result),
}
