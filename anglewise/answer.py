"""From what a solver found to the answer: class means, restated proof, reading, final check."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from anglewise.certificate import certify, min_gram_eigenvalue, relative
from anglewise.class_geometry import NOT_UNIQUE, Geometry
from anglewise.collapse import describe_collapse, minority_collapse
from anglewise.comparators import comparators
from anglewise.errors import NumericalFailure
from anglewise.factor import FactorSolution
from anglewise.geometry import GroupSolution, SolverReport
from anglewise.losses import Loss
from anglewise.means import ClassMeans, Spectrum, class_means, expand_rows, spectrum
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups
from anglewise.tilted import TiltedRisk, single_class_groups
from anglewise.tiny_risk import UNDETERMINED, has_tiny_terms

RANK_TOLERANCES = (1e-7, 1e-8, 1e-9, 1e-11, 0.0)
"""Eigenvalues of the Gram matrix up to which they are dropped; the first that costs no proof is taken.

The first is `MERGE_TOLERANCE`: a pair of classes at 1 - cosine = ε has an eigenvalue of about ε to itself."""

SNAP_TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
MAX_SHIFT = 1e-5
SMALL_GROUPS = 64
"""Above this order only the smallest snap is tried: each costs an evaluation and two factorizations."""

PSD_TOLERANCE = 1e-9


def clean(risk: Risk, solution: GroupSolution) -> tuple[ClassMeans, GroupSolution]:
    """Class means, and the solution restated for exactly the Gram matrix that they have.

    Solvers keep a little distance λ_min(A) from the boundary of the elliptope, on which every optimum of a
    loss that is nowhere flat lies; moving there lowers the risk to first order, since Σ_i (GA)_ii < 0. First
    a matrix of lower rank is tried, then small eigenvalues are dropped, each only if the proof survives.
    """
    found = spectrum(risk.groups, solution.gram)
    moved = found.onto_boundary() if 0 < found.smallest <= MAX_SHIFT else found
    return _sharper(risk, solution, moved) or _restated(risk, solution, found, moved)


def _sharper(risk: Risk, solution: GroupSolution, moved: Spectrum) -> tuple[ClassMeans, GroupSolution] | None:
    """A matrix of lower rank that is proven better than the solver's: classes that have really merged.

    A certified risk leaves the Gram matrix uncertain by about the square root of the gap; the certificate of
    the merged matrix decides. Merging what is apart opens a gap of the first order in the distance.
    """
    old, groups, rank = solution.certificate, risk.groups, moved.rank(RANK_TOLERANCES[0])
    if rank > 1 and _has_sides(groups, solution.gram):
        merged = _judged(risk, solution, spectrum(groups, np.sign(solution.gram)).means())
        if merged[1].certificate.gap < old.gap:
            return merged
    for tolerance in SNAP_TOLERANCES if len(groups) <= SMALL_GROUPS else SNAP_TOLERANCES[-1:]:
        if moved.rank(tolerance) == rank:
            return None
        merged = _judged(risk, solution, moved.means(rank_tolerance=tolerance))
        if merged[1].certificate.gap < old.gap:
            return merged
    return None


def _judged(risk: Risk, solution: GroupSolution, means: ClassMeans) -> tuple[ClassMeans, GroupSolution]:
    """The solution with other class means and a certificate of their own."""
    A, old = means.group_gram, solution.certificate
    value, H = risk.value_and_gradient(A)
    certificate = certify(risk, value, H, A, tolerance=old.tolerance)
    # What the solver said about a gap that is now closed would be wrong.
    warnings = () if certificate.certified and not old.certified else solution.warnings
    return means, replace(solution, gram=A, risk=value, certificate=certificate, warnings=warnings)


def _has_sides(groups: Groups, gram: FloatArray) -> bool:
    """Whether the largest class sees all others at obtuse angles, and these see each other at acute ones.

    Under extreme imbalance a certified risk hardly depends on the minorities, so merged ones may look apart.
    """
    if groups.sizes[0] != 1 or len(groups) == 1:
        return False
    return bool((gram[0, 1:] < 0).all() and (gram[1:, 1:] > 0).all())


def _restated(
    risk: Risk, solution: GroupSolution, found: Spectrum, moved: Spectrum
) -> tuple[ClassMeans, GroupSolution]:
    """Drops eigenvalues; the old gap plus the increase of the risk bounds the new gap."""
    old = solution.certificate
    attempts = [(moved, rank_tolerance) for rank_tolerance in RANK_TOLERANCES]
    for candidate, rank_tolerance in [*attempts, (found, 0.0)]:
        means = candidate.means(rank_tolerance=rank_tolerance)
        value = risk.value(means.group_gram)
        gap = old.gap + max(0.0, value - solution.risk)
        relative_gap = relative(risk, value, gap)
        if relative_gap <= max(old.tolerance, 1.1 * old.relative_gap):
            break
    certificate = replace(
        old,
        gap=gap,
        relative_gap=relative_gap,
        lower_bound=value - gap,
        certified=relative_gap <= old.tolerance,
    )
    return means, replace(solution, gram=means.group_gram, risk=value, certificate=certificate)


def convex_geometry(risk: Risk, solution: GroupSolution, means: ClassMeans) -> Geometry:
    groups, certificate = risk.groups, solution.certificate
    warnings = list(solution.warnings)
    if not certificate.certified and not warnings:
        warnings.append(
            f"Not certified: the risk is proven to be within a relative gap of "
            f"{certificate.relative_gap:.1e} of the minimum, not {certificate.tolerance:.1e}."
        )
    if not solution.unique and not warnings:
        warnings.append(NOT_UNIQUE)
    minority = minority_collapse(groups, risk.sampling, risk.loss)
    return Geometry(
        means=means,
        risk=solution.risk,
        unique=solution.unique,
        certificate=certificate,
        collapse=describe_collapse(groups, solution.gram, minority=minority),
        comparators=comparators(groups, risk.value),
        solver=solution.report,
        warnings=tuple(warnings),
    )


def factored_geometry(
    proportions: FloatArray,
    risk: Risk,
    loss: Loss,
    found: FactorSolution,
    convex_bound: float,
    dimension: int | None,
    tolerance: float,
) -> Geometry:
    """Every class on its own: a non-convex optimum need not share the symmetry of the proportions."""
    classes, groups = single_class_groups(proportions), risk.groups
    means = class_means(classes, found.gram, dimension=dimension)
    plain = Risk(classes, risk.sampling, risk.loss)
    value, H = plain.value_and_gradient(found.gram)
    dual = certify(plain, value, H, found.gram, tolerance=tolerance)
    gap = max(0.0, found.risk - found.lower_bound)
    certificate = replace(
        dual,
        gap=gap,
        relative_gap=relative(risk, found.risk, gap),
        lower_bound=found.risk - gap,
        certified=found.certified,
    )
    tilted = TiltedRisk(proportions, risk.sampling, loss)
    report = SolverReport(
        method="factored_signs" if found.exact else "factored",
        iterations=found.evaluations,
        groups=len(proportions),
        seconds=found.seconds,
    )
    return Geometry(
        means=means,
        risk=found.risk,
        unique=found.certified and not found.exact and loss.strictly_convex and loss.hardness == 0,
        certificate=certificate,
        collapse=describe_collapse(classes, found.gram),
        comparators=comparators(groups, lambda A: tilted.value(expand_rows(groups, A, 0, groups.classes))),
        solver=report,
        warnings=(
            *_factored_warnings(found, loss, dimension, convex_bound),
            *((UNDETERMINED,) if has_tiny_terms(plain, H) and not found.exact else ()),
        ),
    )


def _factored_warnings(
    found: FactorSolution, loss: Loss, dimension: int | None, convex_bound: float
) -> tuple[str, ...]:
    if found.exact:
        return (
            "In one dimension every sign pattern was compared: this is the exact optimum there, "
            f"{found.risk - convex_bound:.3g} above the bound {convex_bound:.6g} of more dimensions.",
        )
    if found.certified:
        return ()
    hard = "Hard negatives make the risk non-convex"
    low = f"In {dimension} dimensions the problem is not convex"
    why = hard if loss.hardness > 0 else low
    return (
        f"{why}: this is the best of {len(found.starts)} starts, with a risk at most "
        f"{found.risk - found.lower_bound:.3g} above the convex lower bound {found.lower_bound:.6g}.",
    )


def verified(geometry: Geometry) -> Geometry:
    """Checks the matrix itself before it leaves: symmetric, unit diagonal, positive semidefinite.

    Raises:
        NumericalFailure: a check failed.
    """
    A, groups = geometry.group_gram, geometry.groups
    smallest = min_gram_eigenvalue(groups, A)
    facts = (
        np.isfinite(A).all() and math.isfinite(geometry.risk),
        np.array_equal(A, A.T),
        (A[groups.sizes == 1, groups.sizes == 1] == 1).all(),
        np.abs(A).max() <= 1,
        smallest >= -PSD_TOLERANCE,
    )
    if not all(facts):
        raise NumericalFailure(
            "the Gram matrix failed its final check: "
            f"smallest eigenvalue {smallest:.1e}, risk {geometry.risk}"
        )
    return replace(geometry, certificate=replace(geometry.certificate, min_gram_eigenvalue=smallest))
