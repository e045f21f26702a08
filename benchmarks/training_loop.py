"""The training loop against a bare torch loop of the same network, loss and batches.

Both take a step in turns: the context of the training, which hears of every step, takes the bare one. They
have one thread: threads that wait for a busy core would be all that is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.table import Row, seconds
from examples.reproductions.running import Quiet
from jobs.training_losses import Drawn
from jobs.training_spec import TrainingSpec
from worker.training.data import load_data
from worker.training.encoders import Network, build_encoder
from worker.training.losses import drawn_loss, weighted_infonce
from worker.training.plan import make_plan
from worker.training.trainer import train

BAR = 1.05
WARM = 10
"""Steps of either side before the clock counts."""
ROUND = 7
"""Steps whose mean is one measurement: an epoch of the digits in batches of 256."""
STEPS = {"mlp": 600, "cnn": 300, "resnet18": 150}
SUPCON = {"name": "supcon", "temperature": 0.1}
INFONCE = {"name": "infonce", "negatives": 16, "temperature": 0.5}
SMALL_CNN = {"name": "cnn", "channels": [8, 16, 32]}
CASES: dict[str, dict[str, Any]] = {
    "mlp on digits, SupCon": {"data": "digits", "encoder": {"name": "mlp"}, "loss": SUPCON},
    "mlp on digits, InfoNCE k=16": {"data": "digits", "encoder": {"name": "mlp"}, "loss": INFONCE},
    "cnn on mnist5k, SupCon": {"data": "mnist5k", "encoder": SMALL_CNN, "loss": SUPCON, "batch_size": 64},
    "resnet18 of width 8 on digits, InfoNCE k=16": {
        "data": "digits", "encoder": {"name": "resnet18", "width": 8}, "loss": INFONCE, "batch_size": 64,
    },
}  # fmt: skip


def rows() -> Iterator[Row]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, case in CASES.items():
            fields = {**case, "data": {"builtin": case["data"]}, "steps": STEPS[case["encoder"]["name"]]}
            yield _case(name, TrainingSpec.model_validate(fields))
    finally:
        torch.set_num_threads(before)


def _case(name: str, spec: TrainingSpec) -> Row:
    turns = InTurns(BareLoop(spec))
    train(spec.model_copy(update={"evaluate_every": spec.steps, "checkpoint_every": spec.steps}), turns)
    ours, bare = _rounds(turns.ours), _rounds(turns.bare)
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    return Row(
        what=f"training loop: {name}",
        bar=f"{BAR} x a bare torch loop",
        measured=f"{ratio:.3f} x {1e3 * statistics.median(bare):.2f} ms",
        met=ratio <= BAR,
    )


def _rounds(times: list[float]) -> list[float]:
    """Seconds of a step, round by round, what an epoch costs once spread over its steps."""
    starts = range(WARM, len(times) - ROUND + 1, ROUND)
    return [statistics.fmean(times[start : start + ROUND]) for start in starts]


class BareLoop:
    """What one writes by hand: tensors of sorted samples, batches in random order, the loss, Adam."""

    def __init__(self, spec: TrainingSpec) -> None:
        data = load_data(spec, Quiet())
        plan = make_plan(spec, list(data.counts))
        encoder = build_encoder(spec, data, plan)
        assert isinstance(encoder, Network)
        assert data.x is not None
        self.network, self.batch = encoder.network, plan.batch
        self.x, self.y = torch.from_numpy(data.x), torch.from_numpy(data.y)
        self.counts = torch.tensor(data.counts)
        self.first = self.counts.cumsum(0) - self.counts
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.loss = spec.loss.build() if isinstance(spec.loss, Drawn) else None
        self.log_weights = torch.full((data.classes, data.classes), -torch.inf).fill_diagonal_(0.0)
        self.batches = self._batches()

    def _batches(self) -> Iterator[Tensor]:
        while True:
            batches = torch.split(torch.randperm(len(self.y)), self.batch)
            yield from (batch for batch in batches if len(batch) == self.batch)

    def step(self) -> float:
        batch = next(self.batches)
        self.optimizer.zero_grad()
        loss = self._supcon(batch) if self.loss is None else self._infonce(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())

    def _supcon(self, batch: Tensor) -> Tensor:
        z = normalize(self.network(self.x[batch]))
        return weighted_infonce(z, self.y[batch], self.log_weights, temperature=0.1).value

    def _infonce(self, batch: Tensor) -> Tensor:
        assert self.loss is not None
        classes = self.y[batch]
        count, first = self.counts[classes], self.first[classes]
        positives = first + (batch - first + 1 + (torch.rand(len(batch)) * (count - 1)).long()) % count
        negatives = self._negatives(classes)
        z = normalize(self.network(self.x[torch.cat([batch, positives])]))
        anchors = z[: len(batch)]
        return drawn_loss(anchors, z[len(batch) :], anchors, negatives, self.loss).value

    def _negatives(self, classes: Tensor) -> Tensor:
        """Sorted by class, the samples after an anchor's class, around to before it, are the others."""
        assert self.loss is not None
        sizes = torch.bincount(classes)
        others = len(classes) - sizes[classes, None]
        steps = (torch.rand(len(classes), int(self.loss.negatives)) * others).long()
        return classes.argsort()[(sizes.cumsum(0)[classes, None] + steps) % len(classes)]


class InTurns(Quiet):
    """Takes a step of the bare loop after every step of the training; keeps the seconds of both."""

    def __init__(self, loop: BareLoop) -> None:
        super().__init__()
        self.loop = loop
        self.ours: list[float] = []
        self.bare: list[float] = []
        self.resumed = time.perf_counter()

    def progress(self, step: int, total: int) -> None:
        self.ours.append(time.perf_counter() - self.resumed)
        torch.use_deterministic_algorithms(False)  # the bare loop does not care
        self.bare.append(seconds(self.loop.step))
        torch.use_deterministic_algorithms(True)
        self.resumed = time.perf_counter()
