"""Collapse over a grid: the threshold, or the angles of one majority and C - 1 equal minorities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from anglewise.collapse import angle_degrees
from anglewise.errors import InvalidInput, TooLarge
from anglewise.losses import InfoNCE, Loss, require_loss
from anglewise.sampling import Sampling
from anglewise.thresholds import MAX_CLASSES, collapse_threshold
from anglewise.two_levels import two_level_groups, two_level_optimum

AxisName = Literal["majority_proportion", "negatives", "temperature", "alpha", "classes"]
Quantity = Literal["largest_cosine", "exact_threshold", "smallest_angle_degrees"]

MAX_CELLS = 2_500
BALANCED = 1e-12
"""A majority proportion within this relative distance of 1/C counts as equal proportions."""


@dataclass(frozen=True)
class Axis:
    """One axis of a map: what varies and its values."""

    name: AxisName
    values: tuple[float, ...]


@dataclass(frozen=True)
class CollapseMap:
    """A grid of predictions.

    Attributes:
        x, y: the axes.
        quantity: what the values are.
        values: ``values[i][j]`` at ``y.values[i]`` and ``x.values[j]``; ``None`` where undefined.
        reasons: the same shape: why a value is ``None``.
    """

    x: Axis
    y: Axis
    quantity: Quantity
    values: tuple[tuple[float | None, ...], ...]
    reasons: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True)
class _Cell:
    classes: int
    loss: Loss
    majority_proportion: float | None


def collapse_map(
    x: Axis | tuple[AxisName, Sequence[float]],
    y: Axis | tuple[AxisName, Sequence[float]],
    quantity: Quantity = "largest_cosine",
    *,
    classes: int | None = None,
    sampling: Sampling = "supervised",
    loss: Loss | None = None,
    majority_proportion: float | None = None,
    tolerance: float = 1e-8,
    max_cells: int = MAX_CELLS,
    on_row: Callable[[int], None] | None = None,
) -> CollapseMap:
    """One majority and C - 1 equal minorities over two axes.

    Angles belong to the optimum that is symmetric in the minorities, and a cell has a value only if that
    optimum is certified to ``tolerance``.

    Args:
        x, y: two different axes, each an `Axis` or a pair of name and values. "negatives" may hold
            ``math.inf``; "temperature" and "alpha" need a loss that has them.
        quantity: cosine or angle between the two closest classes, or the exact threshold.
        classes: C, from 3 to 20,000; ``None`` where "classes" is an axis.
        loss: the loss wherever no axis says otherwise; InfoNCE() by default.
        majority_proportion: l in (0, 1) for the angles, where it is not an axis.
        max_cells: most cells allowed.
        on_row: called with the number of rows done after each row.

    Raises:
        InvalidInput: naming the axis, value or argument.
        TooLarge: more cells than ``max_cells``.
    """
    loss = InfoNCE() if loss is None else loss
    require_loss(loss)
    x, y = _axis("x", x), _axis("y", y)
    base = _checked(classes, sampling, loss, x, y, quantity, majority_proportion)
    if len(x.values) * len(y.values) > max_cells:
        raise TooLarge(("x", "values"), f"the map may have at most {max_cells} cells")
    values, reasons = [], []
    for row in range(len(y.values)):
        cells = [_at(_at(base, "y", y, row), "x", x, column) for column in range(len(x.values))]
        found = [_evaluate(cell, sampling, quantity, tolerance) for cell in cells]
        values.append(tuple(value for value, _ in found))
        reasons.append(tuple(reason for _, reason in found))
        if on_row is not None:
            on_row(row + 1)
    return CollapseMap(x, y, quantity, tuple(values), tuple(reasons))


def _axis(side: str, given: Axis | tuple[AxisName, Sequence[float]]) -> Axis:
    if isinstance(given, Axis):
        return given
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Sequence)):
        raise InvalidInput((side,), "must be an Axis, or a pair of its name and a list of values")
    return Axis(given[0], tuple(given[1]))


def _checked(
    classes: int | None,
    sampling: Sampling,
    loss: Loss,
    x: Axis,
    y: Axis,
    quantity: Quantity,
    majority_proportion: float | None,
) -> _Cell:
    """The arguments that no axis changes, after every conflict has been named."""
    if quantity not in get_args(Quantity):
        raise InvalidInput(("quantity",), f"must be one of {', '.join(get_args(Quantity))}")
    if sampling not in get_args(Sampling):
        raise InvalidInput(("sampling",), f"must be one of {', '.join(get_args(Sampling))}")
    if loss.hardness > 0:
        raise InvalidInput(("loss", "hardness"), "maps are known without hard negatives only")
    if x.name == y.name:
        raise InvalidInput(("y", "name"), f"'{y.name}' is the x axis already")
    base = _Cell(classes=3, loss=loss, majority_proportion=None)
    for side, axis in (("x", x), ("y", y)):
        _check_axis(side, axis, quantity, base)
    names = {x.name, y.name}
    if ("classes" in names) == (classes is not None):
        message = "is an axis already" if classes is not None else "must be given where it is not an axis"
        raise InvalidInput(("classes",), message)
    if classes is not None:
        base = replace(base, classes=_classes(("classes",), classes))
    if quantity == "exact_threshold":
        if majority_proportion is not None:
            raise InvalidInput(("majority_proportion",), "the threshold does not depend on it")
        return base
    if ("majority_proportion" in names) == (majority_proportion is not None):
        known = majority_proportion is not None
        message = "is an axis already" if known else "must be given, or be an axis, for angles"
        raise InvalidInput(("majority_proportion",), message)
    if majority_proportion is None:
        return base
    return replace(base, majority_proportion=_proportion(("majority_proportion",), majority_proportion))


def _check_axis(side: str, axis: Axis, quantity: Quantity, base: _Cell) -> None:
    if axis.name not in get_args(AxisName):
        raise InvalidInput((side, "name"), f"must be one of {', '.join(get_args(AxisName))}")
    if axis.name == "majority_proportion" and quantity == "exact_threshold":
        raise InvalidInput((side, "name"), "the threshold does not depend on majority_proportion")
    if axis.name in ("temperature", "alpha") and not hasattr(base.loss, axis.name):
        raise InvalidInput((side, "name"), f"the loss has no {axis.name}")
    if not axis.values:
        raise InvalidInput((side, "values"), "needs at least one value")
    for position in range(len(axis.values)):
        _at(base, side, axis, position)


def _at(cell: _Cell, side: str, axis: Axis, position: int) -> _Cell:
    """The cell with one axis set to one of its values."""
    value, field = axis.values[position], (side, "values", position)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(field, "must be a number")
    if axis.name == "classes":
        return replace(cell, classes=_classes(field, value))
    if axis.name == "majority_proportion":
        return replace(cell, majority_proportion=_proportion(field, value))
    changed: dict[str, Any] = {axis.name: value}
    try:
        return replace(cell, loss=replace(cell.loss, **changed))
    except InvalidInput as error:
        raise InvalidInput(field, error.message) from None


def _classes(field: Sequence[str | int], value: float) -> int:
    if not (3 <= value <= MAX_CLASSES and value == int(value)):
        raise InvalidInput(tuple(field), f"must be an integer from 3 to {MAX_CLASSES}")
    return int(value)


def _proportion(field: Sequence[str | int], value: float) -> float:
    if not 0 < value < 1:
        raise InvalidInput(tuple(field), "must be between 0 and 1")
    return float(value)


def _evaluate(
    cell: _Cell, sampling: Sampling, quantity: Quantity, tolerance: float
) -> tuple[float | None, str | None]:
    if quantity == "exact_threshold":
        threshold = collapse_threshold(cell.classes, sampling, cell.loss)
        value = threshold.exact_threshold
        return value, None if value is not None else threshold.reason
    one_minus_cosine, reason = _closest(cell, sampling, tolerance)
    if one_minus_cosine is None:
        return None, reason
    return 1 - one_minus_cosine if quantity == "largest_cosine" else angle_degrees(one_minus_cosine), None


def _closest(cell: _Cell, sampling: Sampling, tolerance: float) -> tuple[float | None, str | None]:
    """1 - cosine between two minorities."""
    majority, C = cell.majority_proportion, cell.classes
    assert majority is not None
    if majority * C < 1 - BALANCED:
        return None, f"{majority:g} is below 1/{C}: the class is not a majority"
    groups = two_level_groups(majority, C - 1)
    optimum = two_level_optimum(groups, sampling, cell.loss, tolerance=tolerance)
    if not optimum.unique:
        return None, "the loss is flat at its optimum: many angles are optimal"
    if not optimum.certificate.certified:
        return None, f"not certified: relative gap {optimum.certificate.relative_gap:.1e}"
    return optimum.one_minus_cosine, None
