"""Large batches: the memory and time of cached gradients, and what a second process brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row

ROOT = Path(__file__).parent.parent
BATCH, CHUNK = 4096, 256
CACHED = """
import sys, time, torch
from benchmarks.memory import peak_kib
from worker.training.chunks import encode_in_chunks
from worker.training.losses import weighted_infonce
from worker.training.networks import convolutions
from worker.training.projection import project
torch.manual_seed(0)
torch.set_num_threads(1)
encoder = convolutions([1, 16, 32])
x, y = torch.randn({batch}, 1, 28, 28), torch.arange({batch}) % 10
weights = torch.full((10, 10), float("-inf")).fill_diagonal_(0.0)
def step():
    z = project(encode_in_chunks(encoder, x, int(sys.argv[1])), "sphere")
    weighted_infonce(z, y, weights, temperature=0.1).value.backward()
small = peak_kib()
times = []
for _ in range(3):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(min(times), (peak_kib() - small) / 1024)
"""
SHARED = {
    "data": {"builtin": "mnist5k"},
    "encoder": {"name": "resnet18", "width": 8},
    "loss": {"name": "supcon"},
    "batch_size": 256,
    "steps": 12,
    "evaluate_every": 12,
}


def rows() -> Iterator[Row]:
    yield _cached()
    yield _shared()


def _cached() -> Row:
    (whole, much), (chunked, little) = (_measure(chunk) for chunk in (BATCH, CHUNK))
    return Row(
        what=f"cached gradients: CNN, SupCon, batch {BATCH} in chunks of {CHUNK}",
        bar="a third of the memory, 1.6 x the time",
        measured=f"{little:.0f} of {much:.0f} MiB, {chunked / whole:.2f} x {whole:.1f} s",
        met=little <= much / 3 and chunked <= 1.6 * whole,
    )


def _measure(chunk: int) -> tuple[float, float]:
    """Seconds of a step, and MiB above what was in use before."""
    command = [sys.executable, "-c", CACHED.format(batch=BATCH), str(chunk)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def _shared() -> Row:
    """One thread each, so that a second process is a second core."""
    one, two = (_seconds(processes) for processes in (1, 2))
    return Row(
        what="one run shared by two processes: resnet18 of width 8, batch 256",
        bar="1.4 x as fast",
        measured=f"{one / two:.2f} x ({one:.1f} s, {two:.1f} s)",
        met=one / two >= 1.4,
    )


def _seconds(processes: int) -> float:
    """Of the steps, two evaluations and the embeddings of all samples."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.json"
        spec.write_text(json.dumps(SHARED), encoding="utf-8")
        command = [sys.executable, *launcher, "-m", "worker.training", str(spec), f"{folder}/result"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment)
        result: dict[str, Any] = json.loads(Path(folder, "result", "result.json").read_text(encoding="utf-8"))
    return float(result["seconds"])
