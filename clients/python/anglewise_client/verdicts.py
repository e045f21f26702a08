"""Answers of /realizability and /weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from anglewise_client._answer import Answer, Part, data_frame
from anglewise_client._arrays import Matrix, Vector

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Reason(Part):
    """Why the verdict is what it is."""

    code: str
    message: str


class Offset(Part):
    """Range of c in s = S0 + c, S0 the symmetrized log-weights; None: unbounded."""

    lower: float | None
    upper: float | None


class Witness(Part):
    """A fact about the weights that anyone can check."""

    kind: str
    statement: str
    items: list[int]
    """Indices, in the order named in the statement."""
    vector: Vector | None
    """The x of the statement."""
    value: float | None

    def __str__(self) -> str:
        """The statement with the items that it is about."""
        about = f" (items {', '.join(map(str, self.items))})" if self.items else ""
        return self.statement + about


class Realizability(Answer):
    """Whether some embedding attains the entropy bound of a weight matrix, with a proof either way.

    Attributes:
        margin, rank_margin: deciding eigenvalues relative to ``scale``.
        largest_temperature: at which these weights attain the bound; 0: at none, None: not defined here.
        embedding, second_embedding: attain the bound; the second is not congruent to the first.
        gap_lower_bound: proven for any geometry; 0 where nothing better is known.
    """

    verdict: Literal["realizable", "degenerate", "inconsistent", "undetermined"]
    attained: bool | None
    unique: bool
    reason: Reason
    level: Literal["item", "class"]
    required_dimension: int | None
    offset: Offset | None
    margin: float | None
    rank_margin: float | None
    scale: float | None
    close_call: bool
    tolerance: float
    largest_temperature: float | Literal["unbounded"] | None
    witness: Witness | None
    gram: Matrix | None
    squared_distances: Matrix | None
    embedding: Matrix | None
    second_embedding: Matrix | None
    residual: float | None
    entropy_bound: float
    gap_lower_bound: float
    skipped_anchors: list[int]
    warnings: list[str]

    @property
    def realizable(self) -> bool:
        """Whether the verdict is ``"realizable"``."""
        return self.verdict == "realizable"

    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"verdict": self.verdict, "reason": self.reason.message}
        if self.witness is not None:
            facts["witness"] = str(self.witness)
        facts |= {
            "required dimension": self.required_dimension,
            "largest temperature": self.largest_temperature,
            "close call": self.close_call,
        }
        return facts

    def plot(self, ax: Axes | None = None) -> Axes:
        """The geometry that was found, or the matrix, under the verdict and its witness. Needs matplotlib."""
        from anglewise_client import plots

        return plots.verdict(self, ax=ax)

    def to_dataframe(self) -> pd.DataFrame:
        """The embedding, an item a row, or the facts where there is none. Needs pandas."""
        return super().to_dataframe() if self.embedding is None else data_frame(self.embedding)


class NamedWeights(Part):
    """The weighting as a request can name it."""

    name: Literal["soft_supcon"]
    epsilon: float
    class_counts: list[int]


class Design(Answer):
    """Weights whose optimum is the wanted geometry.

    Attributes:
        weights: None where one of them is below the range of double precision.
        log_weights: always exact; None above the inline limit.
        epsilon, log_epsilon: weight between classes of a simplex.
        proof: that these weights are realizable.
    """

    level: Literal["item", "class"]
    weights: Matrix | None
    log_weights: Matrix | None
    named: NamedWeights | None
    epsilon: float | None
    log_epsilon: float | None
    largest_temperature: float | Literal["unbounded"] | None
    proof: Realizability
    warnings: list[str]

    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"level": self.level}
        if self.log_epsilon is not None:
            facts |= {"epsilon": self.epsilon, "log epsilon": self.log_epsilon}
        return facts | {"largest temperature": self.largest_temperature, "verdict": self.proof.verdict}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Heat map of the log-weights. Needs matplotlib."""
        from anglewise_client import plots

        if self.log_weights is None:
            raise ValueError("this answer has no inline weights; ask with full=True")
        return plots.heat_map(self.log_weights, ax=ax, title="log-weights", limit=None)

    def to_dataframe(self) -> pd.DataFrame:
        """The log-weights. Needs pandas."""
        return super().to_dataframe() if self.log_weights is None else data_frame(self.log_weights)
