"""The answer of /diagnose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from anglewise_client._answer import Answer, Part, data_frame
from anglewise_client._arrays import Matrix
from anglewise_client.geometry import Geometry, WeightedGeometry

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Label = int | str


class ClassReport(Part):
    """One class as it was measured."""

    label: Label
    count: int
    norm: float
    """Length of the class mean."""
    within_variance: float
    cosine_to_predicted: float | None
    """After the best rotation of all class means."""
    nearest: Label | None
    """The class with the most similar mean."""
    nearest_cosine: float | None


class Metrics(Part):
    """Numbers about one set of labeled embeddings; None where ``reasons`` says why.

    Attributes:
        nc1, cdnv: variability within classes relative to that between them.
        nc2: distance of the centered class means from a simplex.
        gram_distance_max, gram_distance_fro: difference of the cosines between class means from the
            predicted ones: the largest, and the Frobenius norm over C.
        minority_collapse_index: largest cosine between the means of different classes.
        entropic_gap: mean KL divergence of the softmax from the normalized weights.
        r2_similarity, r2_procrustes, procrustes_similarity: agreement with the prediction.
    """

    nc1: float | None
    cdnv: float | None
    nc2: float | None
    gram_distance_max: float | None
    gram_distance_fro: float | None
    minority_collapse_index: float | None
    effective_rank: float | None
    alignment: float | None
    uniformity: float | None
    entropic_gap: float | None
    r2_similarity: float | None
    r2_procrustes: float | None
    procrustes_similarity: float | None
    reasons: dict[str, str]

    def known(self) -> dict[str, float]:
        """The metrics that have a value, by name."""
        return {
            name: value
            for name in type(self).model_fields
            if name != "reasons" and (value := getattr(self, name)) is not None
        }


class Diagnosis(Answer):
    """Embeddings as measured, beside the geometry that was predicted.

    Attributes:
        classes: in order of the sorted labels, as every matrix here.
        measured_gram: (C, C) cosines between class means.
        merged: labels whose measured means are linked by cosines of at least 0.99.
        verdict: plain words.
        picture: address of an image on the service, kept for a while.
    """

    n: int
    dimension: int
    classes: list[ClassReport]
    metrics: Metrics
    measured_gram: Matrix | None
    predicted: WeightedGeometry | Geometry | None = Field(union_mode="left_to_right")
    merged: list[list[Label]]
    predicted_merged: list[list[Label]]
    predicted_near: list[list[Label]]
    zero_embeddings: int
    verdict: str
    picture: str | None
    warnings: list[str]

    @property
    def labels(self) -> list[Label]:
        """Of the classes, in order."""
        return [report.label for report in self.classes]

    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"n": self.n, "dimension": self.dimension, "classes": len(self.classes)}
        return facts | self.metrics.known() | {"verdict": self.verdict}

    def __repr__(self) -> str:
        return (
            f"Diagnosis(n={self.n}, dimension={self.dimension}, classes={len(self.classes)}): {self.verdict}"
        )

    __str__ = __repr__

    def plot(self, ax: Any = None) -> Axes:
        """The measured cosines, beside the predicted ones if there are any. Needs matplotlib.

        Args:
            ax: axes for the measured heat map alone; None: a new figure with all of them.

        Returns:
            The axes of the measured heat map.
        """
        from anglewise_client import plots

        if self.measured_gram is None:
            raise ValueError("this answer has no inline matrix")
        predicted = None if self.predicted is None else self.predicted.cosines
        return plots.side_by_side(self.measured_gram, predicted, ax, self.labels, self.verdict)

    def to_dataframe(self) -> pd.DataFrame:
        """A row a class. Needs pandas."""
        table = data_frame([report.model_dump() for report in self.classes])
        return table.set_index("label")
