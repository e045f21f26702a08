"""The monitor of a training loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from anglewise_client.client import Client
from anglewise_client.diagnosis import Diagnosis
from anglewise_client.errors import AnglewiseError
from anglewise_client.geometry import Geometry
from anglewise_client.monitor.collecting import Sample
from anglewise_client.monitor.local import LocalDiagnosis, available

Log = Callable[[dict[str, float], int | None], object]
AGAINST_PREDICTION = ("entropic_gap", "r2_similarity", "r2_procrustes", "procrustes_similarity")
ELSEWHERE = "a service compares these only with the counts of the embeddings; measure locally for others"


class Monitor:
    """Measures embeddings against the optimum for their class counts, and logs every metric.

    Args:
        prediction: arguments of `Client.optimal_geometry` without counts, such as
            ``{"sampling": "unsupervised", "loss": InfoNCE(temperature=0.1)}``, or a weighting such as
            ``{"weights": {"name": "supcon"}, "temperature": 0.1}``; None: only measure.
        class_counts: of the training data in order of the sorted labels, if the embeddings that are measured
            (of a balanced validation set, say) have others.
        client: the service that measures; None: this process, where ``anglewise`` is installed, else the
            service of `Client`'s defaults.
        log: takes ``(metrics, step)``, such as ``wandb.log`` or ``mlflow.log_metrics``; or something with
            ``add_scalar`` (TensorBoard) or ``log_metrics`` (Lightning's loggers).
        prefix: of the names that are logged.
        capacity: embeddings kept between two reports, a uniform sample of all.
        normalize: divide each embedding by its norm first.
        on_error: a training should not end because a service does: ``"warn"`` and go on, or ``"raise"``.

    Attributes:
        last: the latest diagnosis, with its Gram matrices and ``plot``.
    """

    def __init__(
        self,
        prediction: Mapping[str, Any] | None = None,
        *,
        class_counts: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
        client: Client | None = None,
        log: Any = None,
        prefix: str = "anglewise/",
        capacity: int = 50_000,
        normalize: bool = True,
        on_error: Literal["warn", "raise"] = "warn",
    ) -> None:
        self.prediction = None if prediction is None else _plain(prediction)
        counts = None if class_counts is None else tuple(int(count) for count in class_counts)
        self._measure: Any
        if client is None and available():
            self._measure = LocalDiagnosis(counts)
        else:
            self._measure = ServiceDiagnosis(client or Client(), counts)
        self._log = None if log is None else logging_function(log)
        self.prefix, self.normalize, self.on_error = prefix, normalize, on_error
        self.sample = Sample(capacity)
        self.last: Diagnosis | None = None

    def add(self, embeddings: Any, labels: Any) -> None:
        """Remember a batch: (n, d) embeddings and (n,) labels, as arrays or tensors."""
        self.sample.add(embeddings, labels)

    def report(self, step: int | None = None) -> dict[str, float]:
        """Measure what was added since the last report, log it, and forget it.

        Returns:
            The metrics that have a value, by prefixed name; nothing was added or measuring failed: none.
        """
        if len(self.sample) == 0:
            return {}
        embeddings, labels = self.sample.arrays()
        self.sample.clear()
        return self.measure(embeddings, labels, step)

    def measure(self, embeddings: Any, labels: Any, step: int | None = None) -> dict[str, float]:
        """`add` and `report` in one, for embeddings that are all there."""
        whole = Sample(self.sample.capacity)
        whole.add(embeddings, labels)
        try:
            self.last = self._measure(*whole.arrays(), self.prediction, self.normalize)
        except Exception as error:
            if self.on_error == "raise" or not isinstance(error, AnglewiseError | ValueError):
                raise
            warnings.warn(f"embeddings were not measured: {error}", RuntimeWarning, stacklevel=2)
            return {}
        metrics = {self.prefix + name: value for name, value in self.last.metrics.known().items()}
        if self._log is not None:
            self._log(metrics, step)
        return metrics

    __call__ = measure


class ServiceDiagnosis:
    """Diagnosis by a service.

    Args:
        class_counts: whose prediction the cosines are compared with, instead of the counts found.
    """

    def __init__(self, client: Client, class_counts: tuple[int, ...] | None = None) -> None:
        self.client = client
        self.class_counts = class_counts
        self._geometry: Geometry | None = None

    def __call__(
        self, embeddings: Any, labels: Any, prediction: Mapping[str, Any] | None, normalize: bool
    ) -> Diagnosis:
        elsewhere = self.class_counts is not None and prediction is not None
        found = self.client.diagnose(
            embeddings=embeddings,
            labels=labels,
            prediction=None if elsewhere else prediction,
            normalize=normalize,
        )
        if prediction is not None and self.class_counts is not None:
            compare(found, self._predicted(prediction, self.class_counts))
        return found

    def _predicted(self, prediction: Mapping[str, Any], counts: tuple[int, ...]) -> Geometry:
        if self._geometry is None:
            if "weights" in prediction:
                weights = {**prediction["weights"], "class_counts": list(counts)}
                self._geometry = self.client.optimal_geometry(**{**prediction, "weights": weights})
            else:
                self._geometry = self.client.optimal_geometry(class_counts=counts, **prediction)
        return self._geometry


def compare(found: Diagnosis, predicted: Geometry) -> None:
    """Put a prediction for other counts beside what was measured.

    Raises:
        ValueError: it has another number of classes.
    """
    measured, expected = found.measured_gram, predicted.cosines
    if measured is None or measured.shape != expected.shape:
        raise ValueError(
            f"the embeddings have {len(found.classes)} classes, but counts of {len(expected)} were given"
        )
    difference = measured - expected
    found.predicted = predicted
    found.metrics.gram_distance_max = float(np.abs(difference).max())
    found.metrics.gram_distance_fro = float(np.linalg.norm(difference)) / len(difference)
    found.metrics.reasons = {
        name: ELSEWHERE if name in AGAINST_PREDICTION else reason
        for name, reason in found.metrics.reasons.items()
        if name not in ("gram_distance_max", "gram_distance_fro")
    }


def logging_function(log: Any) -> Log:
    """One function for what people log with.

    Raises:
        TypeError: it is nothing of the kind.
    """
    if hasattr(log, "add_scalar"):
        return lambda metrics, step: [log.add_scalar(name, value, step) for name, value in metrics.items()]
    if hasattr(log, "log_metrics"):
        return lambda metrics, step: log.log_metrics(metrics, step)
    if callable(log):
        return lambda metrics, step: log(metrics, step)
    raise TypeError("log must be a function of (metrics, step), or have add_scalar or log_metrics")


def _plain(value: Any) -> Any:
    """Mappings and models as plain dictionaries."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value
