"""Training: the SupCon loss against pytorch-metric-learning, and free features to the certified optimum."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.table import Row
from examples.reproductions.running import Quiet
from jobs.training_spec import TrainingSpec
from worker.training.trainer import train

ROOT = Path(__file__).parent.parent
LOSS = """
import sys, time, torch
from benchmarks.memory import peak_kib
torch.manual_seed(0)
z = torch.nn.functional.normalize(torch.randn({batch}, 128)).requires_grad_()
y = torch.arange({batch}) % 100
if sys.argv[1] == "ours":
    from worker.training.losses import weighted_infonce
    weights = torch.full((100, 100), float("-inf")).fill_diagonal_(0.0).double()
    def loss():
        return weighted_infonce(
            z, y, weights, temperature=0.1, metric="cosine", self_pairs="excluded"
        ).value
else:
    from pytorch_metric_learning.losses import SupConLoss
    supcon = SupConLoss(temperature=0.1)
    def loss():
        return supcon(z, y)
small = peak_kib()
times = []
for _ in range(3):
    start = time.perf_counter()
    value = loss()
    value.backward()
    times.append(time.perf_counter() - start)
print(float(value), min(times), peak_kib() - small)
"""
BATCH = 4096
COUNTS = [500, 200, 50, 20]
LOSSES: tuple[dict[str, object], ...] = (
    {"name": "infonce", "negatives": 16},
    {"name": "infonce", "negatives": 256, "reduction": "mean"},
    {"name": "infonce", "negatives": 8, "alpha": 0.0},
    {"name": "logistic", "negatives": 4},
    {"name": "exponential", "negatives": 4},
)


def rows() -> Iterator[Row]:
    yield _supcon()
    for loss in LOSSES:
        yield _free(loss)


def _supcon() -> Row:
    """Forward and backward, each side in a process of its own, so that its memory is its own."""
    ours, theirs = (_measure(side) for side in ("ours", "theirs"))
    shown = [f"{seconds:.2f} s, {kib / 1024:.0f} MiB" for _, seconds, kib in (ours, theirs)]
    same = abs(ours[0] - theirs[0]) <= 1e-4 * abs(theirs[0])
    return Row(
        what=f"SupCon, batch {BATCH}, forward and backward",
        bar="less time and memory than pytorch-metric-learning",
        measured=f"{shown[0]}; theirs {shown[1]}",
        met=same and ours[1] < theirs[1] and ours[2] < theirs[2],
    )


def _measure(side: str) -> tuple[float, float, float]:
    """Value, seconds, and KiB above what was in use before."""
    command = [sys.executable, "-W", "ignore", "-c", LOSS.format(batch=BATCH), side]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    value, seconds, memory = map(float, done.stdout.split())
    return value, seconds, memory


def _free(loss: dict[str, object]) -> Row:
    start = time.perf_counter()
    distances, gaps = [], []
    for sampling in ("supervised", "unsupervised"):
        full = {**loss, "temperature": 0.5, "sampling": sampling}
        spec = {"data": {"class_counts": COUNTS}, "loss": full, "evaluate_every": 100}
        summary = train(TrainingSpec.model_validate(spec), Quiet())
        difference = np.subtract(summary["measured_gram"], summary["predicted"]["gram"])
        distances.append(float(np.abs(difference).max()))
        gaps.append(abs(float(summary["metrics"]["risk_gap"])))
    seconds = (time.perf_counter() - start) / 2
    named = ", ".join(str(value) for value in loss.values())
    return Row(
        what=f"free features to the optimum: {named}, both samplings",
        bar="1e-3 in cosine, 1e-5 in risk, under a minute",
        measured=f"{max(distances):.0e}, {max(gaps):.0e}, {seconds:.1f} s each",
        met=max(distances) <= 1e-3 and max(gaps) <= 1e-5 and seconds < 60,
    )
