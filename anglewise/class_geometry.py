"""The answer of `optimal_geometry`: a certified Gram matrix of class means and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from anglewise.comparators import Comparator
from anglewise.geometry import Certificate, Collapse, SolverReport
from anglewise.means import ClassMeans, OrthogonalMeans
from anglewise.sampling import FloatArray, Groups

NOT_UNIQUE = "The minimizer may not be unique: other geometries may have the same risk."


@dataclass(frozen=True, repr=False)
class Geometry:
    """The geometry of class means that minimizes a contrastive risk, or the best one found.

    Classes are in the caller's order. Everything is held on groups; ``gram`` and ``class_means`` are made
    when first read and take C² numbers each, `gram_rows` and `mean_rows` only the rows asked for.

    Attributes:
        means: the class means in factored form.
        risk: exact risk of this Gram matrix, every constant included.
        unique: False where other Gram matrices are known, or suspected, to be as good.
        certificate: proven bound on the distance to the minimum.
        collapse: what merged and the name of the shape.
        comparators: risks of the simplex, the SELI geometry and the orthogonal frame.
        solver: method and effort.
        warnings: sentences for people.
    """

    means: ClassMeans | OrthogonalMeans
    risk: float
    unique: bool
    certificate: Certificate
    collapse: Collapse
    comparators: Mapping[str, Comparator]
    solver: SolverReport
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        proof = "certified" if self.certificate.certified else "not certified"
        return (
            f"<Geometry of {self.classes} classes: {self.collapse.geometry}, risk {self.risk:.10g}, "
            f"{proof} (relative gap {self.certificate.relative_gap:.1e}), rank {self.rank}>"
        )

    @property
    def groups(self) -> Groups:
        """Classes of equal mean inner products; one class each where symmetry was not imposed."""
        return self.means.groups

    @property
    def classes(self) -> int:
        """C."""
        return self.groups.classes

    @property
    def rank(self) -> int:
        """Numerical rank of the Gram matrix."""
        return self.means.rank

    @property
    def dimension(self) -> int:
        """Length of the class means: the dimension asked for, else the rank."""
        return self.means.dimension

    @property
    def group_gram(self) -> FloatArray:
        """(G, G) inner products between different classes of two groups; 1 for a single class with itself."""
        return self.means.group_gram

    @property
    def group_means(self) -> FloatArray:
        """(G, R) mean of the class means of each group, R ≤ ``dimension`` (further coordinates are zero)."""
        return self.means.group_means

    @cached_property
    def gram(self) -> FloatArray:
        """(C, C) inner products of the class means, unit diagonal."""
        return self.gram_rows(0, self.classes)

    @cached_property
    def class_means(self) -> FloatArray:
        """(C, dimension) unit vectors, one row a class; ``gram`` = class_means class_meansᵀ."""
        return self.mean_rows(0, self.classes)

    def gram_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, C) rows start … stop - 1 of ``gram``."""
        return self.means.gram_rows(start, stop)

    def mean_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, dimension) rows start … stop - 1 of ``class_means``."""
        return self.means.mean_rows(start, stop)
