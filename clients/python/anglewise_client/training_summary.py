"""The result of a training job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from anglewise_client._answer import Answer, Part, data_frame
from anglewise_client._arrays import Matrix
from anglewise_client.geometry import Certificate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class TrainingPrediction(Part):
    """Where the training should have gone.

    Attributes:
        gram: (C, C) cosines between class means.
    """

    gram: Matrix | None = None
    risk: float | None = None
    certificate: Certificate | None = None
    warnings: list[str] = Field(default_factory=list)


class TrainingSummary(Answer):
    """How a training ended. Everything else that the service says of it is an attribute as well.

    Attributes:
        metrics: the last evaluation, by name.
        measured_gram: (C, C) cosines between class means.
        verdict: plain words.
        reasons: why it is as far from the prediction as it is, in sentences.
        furthest_pairs: of classes, with their measured and predicted cosine.
        classes: label, samples and what was measured of each.
    """

    steps: int | None = None
    seconds: float | None = None
    dimension: int | None = None
    classes: list[dict[str, Any]] = Field(default_factory=list)
    metrics: dict[str, float | None] = Field(default_factory=dict)
    predicted: TrainingPrediction | None = None
    measured_gram: Matrix | None = None
    verdict: str | None = None
    reasons: list[str] = Field(default_factory=list)
    furthest_pairs: list[dict[str, Any]] = Field(default_factory=list)

    def facts(self) -> Mapping[str, Any]:
        named: dict[str, Any] = {"steps": self.steps, "seconds": self.seconds, "dimension": self.dimension}
        named |= self.metrics | {"verdict": self.verdict, "reasons": " ".join(self.reasons) or None}
        more = {
            name: value
            for name, value in (self.model_extra or {}).items()
            if isinstance(value, int | float | str)
        }
        return {name: value for name, value in (named | more).items() if value is not None}

    def __repr__(self) -> str:
        return f"TrainingSummary(steps={self.steps}): {self.verdict}"

    __str__ = __repr__

    def plot(self, ax: Axes | None = None) -> Axes:
        """The measured cosines, beside the predicted ones if there are any. Needs matplotlib."""
        from anglewise_client import plots

        if self.measured_gram is None:
            raise ValueError("this training left no measured matrix")
        predicted = None if self.predicted is None else self.predicted.gram
        labels = [report.get("label", i) for i, report in enumerate(self.classes)] or None
        return plots.side_by_side(self.measured_gram, predicted, ax, labels, self.verdict or "")

    def to_dataframe(self) -> pd.DataFrame:
        """A row a class, or the facts. Needs pandas."""
        return data_frame(self.classes) if self.classes else super().to_dataframe()
