"""Diagnosis in this process, with the package ``anglewise``, which is imported only when it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise_client.diagnosis import Diagnosis

MISSING = (
    "measuring without a service needs the package anglewise; "
    "install it, or pass a client: Monitor(client=Client())"
)
WEIGHTED = ("supcon", "soft_supcon")


def available() -> bool:
    """Whether ``anglewise`` is installed."""
    return find_spec("anglewise") is not None


class LocalDiagnosis:
    """What `Client.diagnose` does, without a service.

    A prediction is computed once for each vector of class counts.

    Args:
        class_counts: of the training data, where they differ from those of the embeddings that are measured.
    """

    def __init__(self, class_counts: tuple[int, ...] | None = None) -> None:
        if not available():
            raise ImportError(MISSING)
        self.class_counts = class_counts
        self._grams: dict[str, tuple[Any, Any]] = {}

    def __call__(
        self, embeddings: Any, labels: npt.NDArray[Any], prediction: Mapping[str, Any] | None, normalize: bool
    ) -> Diagnosis:
        import anglewise

        counts = self.class_counts or tuple(np.unique(labels, return_counts=True)[1].tolist())
        gram, weighting = self._predicted(counts, prediction)
        measured = anglewise.diagnose(embeddings, labels, predicted=gram, weighting=weighting, unit=normalize)
        return as_answer(measured)

    def _predicted(self, counts: tuple[int, ...], prediction: Mapping[str, Any] | None) -> tuple[Any, Any]:
        if prediction is None:
            return None, None
        key = repr((counts, prediction))
        if key not in self._grams:
            weighted = "weights" in prediction
            solve = _weighted if weighted else _over_classes
            self._grams = {key: solve(counts, prediction)}  # counts of one loop rarely change
        return self._grams[key]


def _over_classes(counts: tuple[int, ...], prediction: Mapping[str, Any]) -> tuple[Any, Any]:
    import anglewise

    options = dict(prediction)
    fields = dict(options.pop("loss", {}))
    if fields.get("negatives") == "infinite":
        fields["negatives"] = float("inf")
    loss = anglewise.LOSSES[fields.pop("name", "infonce")](**fields)
    if len(counts) == 1 and options.get("sampling", "supervised") == "supervised":
        return None, None
    return anglewise.optimal_geometry(list(counts), loss=loss, **options).gram, None


def _weighted(counts: tuple[int, ...], prediction: Mapping[str, Any]) -> tuple[Any, Any]:
    import anglewise
    from anglewise.metrics import Weighting

    options = dict(prediction)
    fields = dict(options.pop("weights"))
    name = fields.pop("name")
    if name not in WEIGHTED:
        raise ValueError(f"predictions take the weightings {' and '.join(WEIGHTED)}, not {name!r}")
    named = anglewise.named_weighting(name, class_counts=list(counts), **fields)
    geometry = anglewise.best_geometry(named, **options)
    weighting = Weighting(
        named.log_weights.values,
        options.get("temperature", 0.1),
        options.get("metric", "cosine"),
        options.get("self_pairs", "included"),
    )
    return geometry.gram, weighting


def as_answer(measured: Any) -> Diagnosis:
    """A diagnosis of ``anglewise`` as the service would answer it, without picture and predicted geometry."""
    return Diagnosis.model_validate(
        {
            "n": measured.items,
            "dimension": measured.dimension,
            "classes": [dataclasses.asdict(report) for report in measured.classes],
            "metrics": {**measured.metrics.values(), "reasons": measured.metrics.reasons},
            "measured_gram": measured.measured_gram,
            "predicted": None,
            "merged": [list(group) for group in measured.merged],
            "predicted_merged": [list(group) for group in measured.predicted_merged],
            "predicted_near": [list(group) for group in measured.predicted_near],
            "zero_embeddings": measured.zero_embeddings,
            "verdict": measured.verdict,
            "picture": None,
            "warnings": [],
        }
    )
