"""Answers of /optimal-geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anglewise_client._answer import Answer, Part, data_frame
from anglewise_client._arrays import Floats, Index, Matrix

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Certificate(Part):
    """How far from the optimum the answer can be at most: a proven bound, not an estimate."""

    certified: bool
    """`relative_gap` is at most `tolerance`."""
    gap: float
    """Bound on the risk minus the minimal risk."""
    relative_gap: float
    lower_bound: float
    tolerance: float
    min_dual_eigenvalue: float
    min_gram_eigenvalue: float


class NearMerge(Part):
    """Classes that almost share one direction."""

    classes: list[int]
    one_minus_cosine: float


class MinorityCollapse(Part):
    """One majority and equal minorities, compared with the threshold of their collapse."""

    majority_proportion: float
    exact_threshold: float
    one_minus_threshold: float
    sufficient_threshold: float | None
    """The published one, at temperature 1 only."""
    collapsed: bool
    margin: float
    """Majority proportion minus exact threshold."""


class Collapse(Part):
    """Which classes merge."""

    within_class: bool
    geometry: Literal[
        "point", "simplex_etf", "minority_collapse", "partial_collapse", "imbalanced", "orthogonal_frame"
    ]
    merged_classes: list[list[int]]
    """Classes that share one direction."""
    near: list[NearMerge]
    merge_tolerance: float
    near_tolerance: float
    largest_cosine: float | None
    smallest_angle_degrees: float | None
    minority_collapse: MinorityCollapse | None
    """For one majority and equal minorities only."""


class SolverReport(Part):
    """How it was computed."""

    method: str
    iterations: int
    groups: int
    seconds: float


class Groups(Part):
    """The geometry by groups of equal proportions."""

    index: Index
    """(C,) group of each class."""
    sizes: Index
    """(G,)"""
    gram: Matrix
    """(G, G) inner products of different classes; 1 for a group of one class."""
    means: Matrix
    """(G, d) mean of the class means of each group."""

    def gram_rows(self, start: int, stop: int) -> Floats:
        """(stop - start, C) inner products of some classes with all."""
        rows: Floats = self.gram[np.ix_(self.index[start:stop], self.index)]
        at = np.arange(len(rows))
        rows[at, start + at] = 1.0
        return rows

    def full_gram(self) -> Floats:
        """(C, C) inner products between all classes."""
        return self.gram_rows(0, len(self.index))


class Geometry(Answer):
    """The optimal class geometry, with its proof.

    Attributes:
        gram: (C, C) cosines between class means; None above the inline limit (see `groups`).
        class_means: (C, d) unit vectors.
    """

    gram: Matrix | None
    class_means: Matrix | None
    dimension: int
    rank: int
    unique: bool
    risk: float
    certificate: Certificate
    collapse: Collapse
    comparators: dict[str, dict[str, Any]]
    """Risks of other known geometries."""
    solver: SolverReport
    warnings: list[str]
    groups: Groups | None
    """None unless asked for or needed."""

    @property
    def cosines(self) -> Floats:
        """(C, C) Gram matrix, from the groups where it is not inline."""
        return self.cosine_rows(0, self.classes)

    def cosine_rows(self, start: int, stop: int) -> Floats:
        """Some rows of `cosines`, without the others.

        Raises:
            ValueError: the answer has neither the matrix nor groups.
        """
        if self.gram is not None:
            return self.gram[start:stop]
        if self.groups is None:
            raise ValueError("this answer has no Gram matrix; ask with full=True")
        return self.groups.gram_rows(start, stop)

    @property
    def classes(self) -> int:
        """C"""
        if self.gram is not None:
            return len(self.gram)
        return 0 if self.groups is None else len(self.groups.index)

    def facts(self) -> Mapping[str, Any]:
        about = self.collapse
        facts: dict[str, Any] = {"classes": self.classes, "dimension": self.dimension, "risk": self.risk}
        facts |= {"certified": self.certificate.certified, "relative gap": self.certificate.relative_gap}
        if about is not None:
            facts |= {"geometry": about.geometry, "smallest angle degrees": about.smallest_angle_degrees}
            if about.merged_classes:
                facts["merged classes"] = about.merged_classes
        return facts

    def _html_body(self) -> str:
        from anglewise_client._html import SHOWN, gram_table

        return gram_table(self.cosine_rows(0, SHOWN), self.classes) if self.classes else ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Heat map of the cosines between classes. Needs matplotlib."""
        from anglewise_client import plots

        return plots.heat_map(self.cosines, ax=ax, title=f"optimal cosines, {self.classes} classes")

    def plot_means(self, ax: Axes | None = None, dimensions: Literal[2, 3] = 2) -> Axes:
        """Class means in their 2 or 3 leading directions. Needs matplotlib."""
        from anglewise_client import plots

        return plots.class_means(self.cosines, ax=ax, dimensions=dimensions)

    def to_dataframe(self) -> pd.DataFrame:
        """The Gram matrix with classes as rows and columns. Needs pandas."""
        return data_frame(self.cosines)


class WeightedGeometry(Geometry):
    """The best geometry that a weight matrix allows, with its proof.

    Attributes:
        level: what one row stands for.
        squared_distances: Euclidean metric only.
        attained: False: the loss is only approached as distances grow.
        loss, entropy_bound, entropy_gap: the loss, its lower bound from the entropy of the weights, and
            the difference.
        anchors, anchors_used: items, and those with a positive weight, which the loss averages over.
    """

    level: Literal["class", "item"]
    metric: Literal["cosine", "euclidean"]
    squared_distances: Matrix | None
    attained: bool
    loss: float
    entropy_bound: float
    entropy_gap: float
    anchors: int
    anchors_used: int
    collapse: Collapse | None  # type: ignore[assignment]
    """None for the Euclidean metric."""

    def facts(self) -> Mapping[str, Any]:
        facts = dict(super().facts())
        rows = {"rows" if self.level == "item" else "classes": facts.pop("classes")}
        return (
            rows | facts | {"entropy gap": self.entropy_gap, "metric": self.metric, "attained": self.attained}
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Heat map of the cosines, or of the squared distances. Needs matplotlib."""
        from anglewise_client import plots

        if self.squared_distances is None:
            return super().plot(ax)
        return plots.heat_map(self.squared_distances, ax=ax, title="squared distances", limit=None)
