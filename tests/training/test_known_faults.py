"""Faults that contrastive losses are known for, each excluded as a kind: no NaN for classes of one
sample, the right value for equal features, no overflow at low temperatures, no memory for pairs of pairs.

Every loss of a training job is tested through the numbers that a job would see.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor
from torch.nn.functional import normalize

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from jobs.training_losses import Drawn, LossField
from worker.training.losses import BatchLoss, draw_negatives, drawn_loss, weighted_infonce
from worker.training.losses.negatives import IntArray
from worker.training.objectives import named_weights

ROOT = Path(__file__).parents[2]
NEGATIVES = 3
CLASSES = 6
TARGETS = [[math.cos(c), math.sin(c)] for c in range(CLASSES)]
DRAWN: list[dict[str, Any]] = [
    {"name": "infonce", "negatives": NEGATIVES},
    {"name": "infonce", "negatives": NEGATIVES, "alpha": 0.0, "reduction": "mean"},
    {"name": "logistic", "negatives": NEGATIVES, "margin": 0.1},
    {"name": "exponential", "negatives": NEGATIVES},
    {"name": "squared_hinge", "negatives": NEGATIVES, "margin": 0.5},
    {"name": "triplet", "negatives": NEGATIVES, "margin": 0.5},
]
WEIGHTED: list[dict[str, Any]] = [
    {"name": "supcon"},
    {"name": "soft_supcon", "epsilon": 0.05},
    {"name": "y_aware", "sigma": 0.7, "targets": TARGETS},
    {"name": "x_clr", "label_temperature": 0.5, "targets": TARGETS},
    {"name": "euclidean", "sigma": 0.7, "targets": TARGETS},
    {"name": "euclidean", "sigma": 0.7, "targets": TARGETS, "self_pairs": "excluded"},
    {"name": "supcon", "self_pairs": "included"},
]
ALL = [*DRAWN, *WEIGHTED]
TIMELESS = ("squared_hinge", "triplet")
"""Losses without a temperature."""
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def name(fields: dict[str, Any]) -> str:
    return "-".join(str(value) for value in fields.values() if not isinstance(value, list))


@dataclass(frozen=True)
class Case:
    """A loss with everything that a batch needs, and its definition, one pair at a time, in Python floats."""

    fields: dict[str, Any]
    temperature: float

    @property
    def spec(self) -> Any:
        timed = {} if self.fields["name"] in TIMELESS else {"temperature": self.temperature}
        return TypeAdapter(LossField).validate_python({**self.fields, **timed})

    def fast(self, z: Tensor, classes: IntArray, positives: IntArray, negatives: IntArray) -> BatchLoss:
        spec = self.spec
        if isinstance(spec, Drawn):
            return drawn_loss(z, z[positives], z, torch.from_numpy(negatives), spec.build())
        weights = named_weights(spec, (2,) * CLASSES, range(CLASSES))
        return weighted_infonce(
            z,
            torch.from_numpy(classes),
            torch.from_numpy(weights.log_weights.values),
            temperature=spec.temperature,
            metric=weights.metric,
            self_pairs=spec.self_pairs,
        )

    def slow(self, z: Tensor, classes: IntArray, positives: IntArray, negatives: IntArray) -> BatchLoss:
        """The mean over anchors that have something to compare, in double precision."""
        z = z.double()
        spec, terms = self.spec, []
        for i in range(len(z)):
            if isinstance(spec, Drawn):
                if negatives[i, 0] >= 0:
                    t = [z[i] @ (z[j] - z[positives[i]]) for j in negatives[i]]
                    terms.append(slow_psi(torch.stack(t), spec.build()))
                continue
            weights = named_weights(spec, (2,) * CLASSES, range(CLASSES))
            others = [j for j in range(len(z)) if j != i or spec.self_pairs == "included"]
            log_w = torch.tensor([weights.log_weights.values[classes[i], classes[j]] for j in others])
            if others and bool((log_w > -math.inf).any()):
                if weights.metric == "cosine":
                    s = torch.stack([z[i] @ z[j] for j in others]) / spec.temperature
                else:
                    s = -torch.stack([((z[i] - z[j]) ** 2).sum() for j in others]) / spec.temperature
                p, log_q = torch.softmax(log_w, 0), torch.log_softmax(s, 0)
                terms.append(-(p * log_q).sum())
        value = torch.stack(terms).mean() if terms else z.sum() * 0.0
        return BatchLoss(value, len(terms))


def slow_psi(t: Tensor, loss: Loss) -> Tensor:
    if isinstance(loss, InfoNCE):
        beta = loss.beta / len(t) if loss.reduction == "mean" else loss.beta
        log_sum = math.log(beta) + torch.logsumexp(t / loss.temperature, 0)
        return (
            torch.logaddexp(torch.tensor(math.log(loss.alpha)).double(), log_sum) if loss.alpha else log_sum
        )
    if isinstance(loss, Logistic):
        x = (t + loss.margin) / loss.temperature
        return torch.logaddexp(torch.zeros_like(x), x).sum()
    if isinstance(loss, Exponential):
        return torch.exp(t / loss.temperature).sum()
    assert isinstance(loss, (SquaredHinge, Triplet))
    excess = torch.relu(t + loss.margin)
    return (excess**2 if isinstance(loss, SquaredHinge) else excess).sum()


def choices(classes: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """A positive for each anchor, itself where it is alone, and its negatives."""
    rng = np.random.default_rng(seed)
    positives = [
        rng.choice([*(set(np.flatnonzero(classes == c).tolist()) - {i})] or [i])
        for i, c in enumerate(classes)
    ]
    others = np.full(len(classes), 9)
    return np.array(positives), draw_negatives(classes, others, NEGATIVES, "supervised", rng)


def both(
    case: Case, z: Tensor, classes: IntArray, seed: int = 0
) -> tuple[tuple[float, Tensor, int], tuple[float, Tensor, int]]:
    """Value, gradient and anchors of the loss and of its definition."""
    found = []
    for compute in (case.fast, case.slow):
        leaf = z.detach().clone().requires_grad_()
        loss = compute(leaf, classes, *choices(classes, seed))
        (gradient,) = torch.autograd.grad(loss.value, leaf)
        found.append((loss.value.item(), gradient.double(), loss.anchors))
    return found[0], found[1]


BATCHES = st.one_of(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=9),  # singletons among others
    st.integers(1, 9).map(lambda size: [2] * size),  # one class
    st.integers(2, CLASSES).map(lambda size: list(range(size))),  # all alone
    st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)).map(list),  # two samples
)
SPREADS = st.sampled_from(["any", "duplicates", "equal", "zeros", "opposite"])


def features(spread: str, size: int, seed: int) -> Tensor:
    z = normalize(torch.randn(size, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    if spread == "duplicates":
        z[1::2] = z[0]
    elif spread == "equal":
        z[:] = z[0]
    elif spread == "zeros":
        z[::2] = 0.0
    elif spread == "opposite":
        z[1::2] = -z[0]
    return z


@pytest.mark.parametrize("fields", ALL, ids=name)
@QUICK
@given(BATCHES, SPREADS, st.sampled_from([0.05, 0.5, 100.0]), st.integers(0, 2**31))
def test_any_batch_has_the_defined_loss_and_gradient(
    fields: dict[str, Any], batch: list[int], spread: str, temperature: float, seed: int
) -> None:
    """Also where anchors have no positive, no negative, or nothing at all to compare."""
    z, classes = features(spread, len(batch), seed), np.array(batch)
    (value, gradient, anchors), expected = both(Case(fields, temperature), z, classes, seed)
    assert math.isfinite(value)
    assert torch.isfinite(gradient).all()
    assert anchors == expected[2]
    assert value == pytest.approx(expected[0], rel=1e-9, abs=1e-9)
    assert torch.allclose(gradient, expected[1], rtol=1e-8, atol=1e-9 / temperature)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-3, 1e-2, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("fields", [fields for fields in ALL if fields["name"] not in TIMELESS], ids=name)
def test_no_temperature_overflows_in_low_precision(
    fields: dict[str, Any], temperature: float, dtype: torch.dtype
) -> None:
    """The exponential loss itself exceeds float32 at low temperatures: it must be infinite, never a NaN."""
    z, classes = features("any", 12, 0).to(dtype), np.arange(12) % 4
    (value, gradient, _), expected = both(Case(fields, temperature), z, classes)
    if expected[0] > torch.finfo(torch.float32).max:
        assert fields["name"] == "exponential"
        assert value == math.inf
        return
    assert torch.isfinite(gradient).all()
    assert value == pytest.approx(expected[0], rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-3, 0.07, 1.0, 100.0])
@pytest.mark.parametrize("fields", ALL, ids=name)
def test_equal_features_have_the_closed_value(
    fields: dict[str, Any], temperature: float, dtype: torch.dtype
) -> None:
    """All t are 0, all q are 1/(number of others): 16 samples, two a class."""
    z = torch.tensor([[0.6, 0.8, 0.0]] * (2 * CLASSES), dtype=dtype)
    classes = np.repeat(np.arange(CLASSES), 2)
    case = Case(fields, temperature)
    found = case.fast(z, classes, *choices(classes, 0)).value.item()
    included = getattr(case.spec, "self_pairs", "excluded") == "included"
    k, margin = NEGATIVES, fields.get("margin", 0.0)
    expected = {
        "infonce": math.log(1 + k) if fields.get("alpha") is None else 0.0,
        "logistic": k * (math.log1p(math.exp(-margin / temperature)) + margin / temperature),
        "exponential": float(k),
        "squared_hinge": k * margin**2,
        "triplet": k * margin,
    }.get(fields["name"], math.log(2 * CLASSES - (not included)))
    # A product of bfloat16 numbers is exact in float32; a difference of two sums may leave its last digit.
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6 / min(1.0, temperature))


def test_classes_have_any_numbers() -> None:
    few, many = np.array([0, 1, 1, 2]), np.array([-(2**62), 2**62, 2**62, 5])
    others = np.full(4, 9)
    drawn = [
        draw_negatives(classes, others, 4, "supervised", np.random.default_rng(1)) for classes in (few, many)
    ]
    for rows, own in zip(drawn[1], many, strict=True):
        assert not (many[rows] == own).any()
    assert sorted(map(len, drawn)) == [4, 4]


MEMORY = """
import resource, sys
import numpy as np, torch
from worker.training.losses import draw_negatives, drawn_loss, weighted_infonce
from anglewise.losses import InfoNCE
torch.set_num_threads(1)
weights = torch.full((10, 10), float("-inf")).fill_diagonal_(0.0).double()
def supcon(z, y):
    return weighted_infonce(z, torch.from_numpy(y), weights, temperature=0.1)
def infonce(z, y):
    negatives = draw_negatives(y, 9 * y + 9, 64, "supervised", np.random.default_rng(0))
    return drawn_loss(z, z, z, torch.from_numpy(negatives), InfoNCE(negatives=64))
def peak(loss, size):
    z = torch.nn.functional.normalize(torch.randn(size, 32)).requires_grad_()
    loss(z, np.arange(size) % 10).value.backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small = [peak(loss, 16) for loss in (supcon, infonce)][-1]
print(*[peak(loss, int(sys.argv[1])) - small for loss in (supcon, infonce)])
"""


def test_memory_is_not_that_of_pairs_of_pairs() -> None:
    """4,096 samples have 6·10⁹ triples of an anchor, a positive and a negative: 23 GiB."""
    size, unit = 4096, 1 if sys.platform == "darwin" else 1024
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, str(size)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    supcon, infonce = (int(word) * unit for word in done.stdout.split())
    square = 4 * size**2
    assert supcon < 2 * square
    assert infonce < 6 * square
