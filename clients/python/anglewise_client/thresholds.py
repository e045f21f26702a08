"""Answers of /collapse-threshold and /collapse-map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from anglewise_client._answer import Answer, Part, data_frame
from anglewise_client._arrays import Matrix
from anglewise_client.losses import AnyLoss

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

AxisName = Literal["majority_proportion", "negatives", "temperature", "alpha", "classes"]
Quantity = Literal["largest_cosine", "exact_threshold", "smallest_angle_degrees"]


class Threshold(Answer):
    """The majority proportion from which on equal minorities merge.

    Attributes:
        exact_threshold: necessary and sufficient; None: see ``reason``.
        one_minus_threshold: to full relative precision.
        sufficient_threshold: the published one, at temperature 1 only; it says nothing below.
        imbalance_ratio: majority over one minority, at the threshold.
        also_below: whether minorities also merge on some interval below.
    """

    exact_threshold: float | None
    one_minus_threshold: float | None
    log10_one_minus_threshold: float | None
    sufficient_threshold: float | None
    imbalance_ratio: float | None
    also_below: bool
    reason: str | None
    sampling: Literal["supervised", "unsupervised"]
    loss: AnyLoss = Field(discriminator="name")
    classes: int

    def facts(self) -> Mapping[str, Any]:
        facts = {
            "classes": self.classes,
            "sampling": self.sampling,
            "exact threshold": self.exact_threshold,
            "one minus threshold": self.one_minus_threshold,
            "imbalance ratio": self.imbalance_ratio,
            "sufficient threshold": self.sufficient_threshold,
        }
        return facts if self.reason is None else facts | {"reason": self.reason}


class Axis(Part):
    """One axis of a map, and its values; a number of negatives may be ``"infinite"``."""

    name: AxisName
    values: list[float | Literal["infinite"]]

    @property
    def numbers(self) -> Sequence[float]:
        """The values, infinity as a float."""
        return [float("inf") if value == "infinite" else float(value) for value in self.values]


class CollapseMap(Answer):
    """One quantity over a grid.

    Attributes:
        values: (y, x); NaN where ``reasons`` says why.
    """

    x: Axis
    y: Axis
    quantity: Quantity
    values: Matrix
    reasons: list[list[str | None]]

    def facts(self) -> Mapping[str, Any]:
        return {
            "quantity": self.quantity,
            "x": f"{self.x.name}, {len(self.x.values)} values",
            "y": f"{self.y.name}, {len(self.y.values)} values",
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """A curve for each y where there are few, a heat map where there are many. Needs matplotlib."""
        from anglewise_client import plots

        return plots.collapse_map(self, ax=ax)

    def to_dataframe(self) -> pd.DataFrame:
        """Rows y, columns x. Needs pandas."""
        table = data_frame(self.values, index=self.y.values, columns=self.x.values)
        table.index.name, table.columns.name = self.y.name, self.x.name
        return table
