"""The JSON answer about a class geometry."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import Field

from anglewise.class_geometry import Geometry
from anglewise.geometry import GeometryName
from jobs.computations.schemas import Answer


class CertificateAnswer(Answer):
    certified: bool = Field(description="`relative_gap` is at most `tolerance`")
    gap: float = Field(description="proven bound on risk minus the minimal risk")
    relative_gap: float = Field(
        description="gap / |risk|; a |risk| below 1e-12 (InfoNCE with α = 0: below 1) counts as that"
    )
    lower_bound: float = Field(description="risk - gap")
    tolerance: float
    min_dual_eigenvalue: float
    min_gram_eigenvalue: float


class NearAnswer(Answer):
    classes: list[int]
    one_minus_cosine: float


class MinorityCollapseAnswer(Answer):
    majority_proportion: float
    exact_threshold: float
    one_minus_threshold: float
    sufficient_threshold: float | None
    collapsed: bool
    margin: float = Field(description="majority proportion minus exact threshold")


class CollapseAnswer(Answer):
    within_class: bool
    geometry: GeometryName
    merged_classes: list[list[int]] = Field(description="classes that share one direction")
    near: list[NearAnswer] = Field(description="classes that almost do")
    merge_tolerance: float = Field(description="1 - cosine up to which classes count as merged")
    near_tolerance: float = Field(description="1 - cosine up to which classes count as near")
    largest_cosine: float | None
    smallest_angle_degrees: float | None
    minority_collapse: MinorityCollapseAnswer | None = Field(
        description="for one majority and equal minorities only"
    )


class SolverAnswer(Answer):
    method: str
    iterations: int
    groups: int
    seconds: float


class GroupsAnswer(Answer):
    """The geometry on groups of equal proportions, largest first."""

    index: list[int] = Field(description="group of each class")
    sizes: list[int]
    gram: list[list[float]] = Field(description="inner products of different classes; 1 for a single class")
    means: list[list[float]] = Field(description="mean of the class means of each group")


class GeometryAnswer(Answer):
    """Class i is the i-th of the request. Large matrices are null and `groups` stands for them."""

    gram: list[list[float]] | None
    class_means: list[list[float]] | None = Field(description="rows are unit vectors")
    dimension: int
    rank: int
    unique: bool
    risk: float
    certificate: CertificateAnswer
    collapse: CollapseAnswer
    comparators: dict[str, dict[str, Any]] = Field(description="risks of other known geometries")
    solver: SolverAnswer
    warnings: list[str]
    groups: GroupsAnswer | None = Field(description="null unless asked for or needed")


def describe(geometry: Geometry, max_inline_classes: int, *, with_groups: bool) -> dict[str, Any]:
    """The answer as `GeometryAnswer` documents it."""
    largest = max(geometry.classes, geometry.dimension)
    inline = geometry.classes <= max_inline_classes and geometry.classes * largest <= max_inline_classes**2
    with_groups = with_groups or not inline
    return {
        "gram": geometry.gram if inline else None,
        "class_means": geometry.class_means if inline else None,
        "dimension": geometry.dimension,
        "rank": geometry.rank,
        "unique": geometry.unique,
        "risk": geometry.risk,
        "certificate": dataclasses.asdict(geometry.certificate),
        "collapse": dataclasses.asdict(geometry.collapse),
        "comparators": {
            name: _comparator(comparator, with_groups and inline)
            for name, comparator in geometry.comparators.items()
        },
        "solver": dataclasses.asdict(geometry.solver),
        "warnings": geometry.warnings,
        "groups": _groups(geometry) if with_groups else None,
    }


def _comparator(comparator: Any, with_grams: bool) -> dict[str, Any]:
    """Its risk, and its Gram matrices on groups where they are asked for and not too large."""
    fields = {item.name: getattr(comparator, item.name) for item in dataclasses.fields(comparator)}
    return fields if with_grams else {"risk": fields["risk"]}


def _groups(geometry: Geometry) -> dict[str, Any]:
    return {
        "index": geometry.groups.index,
        "sizes": geometry.groups.sizes,
        "gram": geometry.group_gram,
        "means": geometry.group_means,
    }
