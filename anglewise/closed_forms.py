"""Optima known in closed form: a single class, and features without negative coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anglewise.class_geometry import NOT_UNIQUE, Geometry
from anglewise.collapse import describe_collapse
from anglewise.comparators import comparators
from anglewise.errors import InvalidInput
from anglewise.geometry import Certificate, SolverReport
from anglewise.losses import Loss, SquaredHinge, Triplet
from anglewise.means import OrthogonalMeans, class_means
from anglewise.risk import Risk
from anglewise.sampling import Groups, Sampling


def point(
    groups: Groups, sampling: Sampling, loss: Loss, dimension: int | None, tolerance: float
) -> Geometry:
    """One class: every negative collides with the anchor, whatever the hardness."""
    value = Risk(groups, sampling, replace(loss, hardness=0.0)).value(np.ones((1, 1)))
    means = class_means(groups, np.ones((1, 1)), dimension=dimension)
    exact = _closed_form(value, tolerance)
    return Geometry(
        means,
        value,
        True,
        exact,
        describe_collapse(groups, means.group_gram),
        {},
        _report("point", groups),
        (),
    )


def orthogonal_frame(
    groups: Groups, sampling: Sampling, loss: Loss, dimension: int | None, tolerance: float
) -> Geometry:
    """A ≥ 0 has every t ≥ -1, and ψ increases: S(A) ≥ S(I) term by term, for any proportions (A9).

    Under supervised sampling the same holds for any hardness, since all negatives of the frame have t = -1;
    without supervision a similar class may draw negatives away from collisions, and the argument fails.
    """
    if dimension is not None and dimension < groups.classes:
        raise InvalidInput(
            ("dimension",),
            f"non-negative class means are solved for at least {groups.classes} dimensions only",
        )
    if loss.hardness > 0 and sampling == "unsupervised":
        raise InvalidInput(("nonnegative",), "is not solved for hard negatives without supervision")
    risk = Risk(groups, sampling, replace(loss, hardness=0.0))
    means = OrthogonalMeans(groups, groups.classes if dimension is None else dimension)
    value = risk.value(means.group_gram)
    unique = not isinstance(loss, (SquaredHinge, Triplet)) or loss.margin >= 1
    return Geometry(
        means=means,
        risk=value,
        unique=unique,
        certificate=_closed_form(value, tolerance),
        collapse=describe_collapse(groups, means.group_gram),
        comparators=comparators(groups, risk.value) if loss.hardness == 0 else {},
        solver=_report("orthogonal_frame", groups),
        warnings=() if unique else (NOT_UNIQUE,),
    )


def _closed_form(value: float, tolerance: float) -> Certificate:
    """Gap 0 by the argument of the caller: the dual matrix vanishes, and λ_min of I or (1) is 1."""
    return Certificate(0.0, 0.0, value, True, tolerance, min_dual_eigenvalue=0.0, min_gram_eigenvalue=1.0)


def _report(method: str, groups: Groups) -> SolverReport:
    return SolverReport(method=method, iterations=0, groups=len(groups), seconds=0.0)
