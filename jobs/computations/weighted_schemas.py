"""Similarity weights in a request: a matrix, its logarithms, or a named weighting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from anglewise.errors import InvalidInput, TooLarge
from anglewise.named import NamedWeighting, named_weighting
from anglewise.weights import LogWeights
from jobs.computations.limits import Limits
from jobs.computations.schemas import Strict, Temperature

Path = tuple[str | int, ...]


def _encodable(text: str) -> str:
    """JSON can smuggle half of a surrogate pair into a string; no answer could repeat it."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("string_unicode", "must be valid Unicode")
    return text


Count = Annotated[int, Field(ge=1, lt=2**53)]
Counts = Annotated[list[Count], Field(min_length=1, fail_fast=True)]
Text = Annotated[str, AfterValidator(_encodable)]
Label = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Text
Labels = Annotated[list[Label], Field(min_length=1, fail_fast=True)]
Row = Annotated[list[float], Field(fail_fast=True)]
WeightRow = Annotated[list[Annotated[float, Field(ge=0)]], Field(fail_fast=True)]
WeightRows = Annotated[list[WeightRow], Field(min_length=1, fail_fast=True)]
LogWeightRow = Annotated[list[float | None], Field(fail_fast=True)]
LogWeightRows = Annotated[list[LogWeightRow], Field(min_length=1, fail_fast=True)]

Targets = Annotated[list[float | Row], Field(min_length=1, fail_fast=True)]
Positive = Annotated[float, Field(gt=0)]
Metric = Literal["cosine", "euclidean"]
SelfPairs = Literal["included", "excluded"]


def exactly_one(*names: str, absent: Sequence[str] = ()) -> Callable[[dict[str, Any]], None]:
    """Adds to a JSON schema: exactly one of ``names`` is given and not null, and those ``absent`` are null
    if they are there at all."""

    def only(name: str) -> dict[str, Any]:
        others = {other: {"type": "null"} for other in names if other != name}
        return {"required": [name], "properties": {name: {"not": {"type": "null"}}, **others}}

    def extend(schema: dict[str, Any]) -> None:
        schema["oneOf"] = [only(name) for name in names]
        schema["properties"] |= {name: {"type": "null"} for name in absent}

    return extend


class Named(Strict):
    """A weighting built from labels."""

    def build(self) -> NamedWeighting:
        """
        Raises:
            InvalidInput: relative to this object.
        """
        return named_weighting(getattr(self, "name"), **self.model_dump(exclude={"name"}))  # noqa: B009

    def require_few_rows(self, limits: Limits) -> None:
        """
        Raises:
            TooLarge: relative to this object.
        """


class OverClasses(Named):
    """Items of one class are alike, so the weights are between classes."""

    model_config = ConfigDict(json_schema_extra=exactly_one("labels", "class_counts"))

    labels: Labels | None = Field(default=None, description="class of each item, integers or strings")
    class_counts: Counts | None = Field(default=None, description="items of each class")

    def require_few_rows(self, limits: Limits) -> None:
        require_few_items(len(self.class_counts or ()), ("class_counts",), limits)
        require_few_items(len(set(self.labels or ())), ("labels",), limits)


class SupCon(OverClasses):
    """1 inside a class, 0 between classes."""

    name: Literal["supcon"]


class SoftSupCon(OverClasses):
    """1 inside a class, ε between classes."""

    name: Literal["soft_supcon"]
    epsilon: Annotated[float, Field(gt=0, le=1)]


class OverTargets(Named):
    """A number or a vector for each item; with `class_counts`, for each class."""

    targets: Targets
    class_counts: Counts | None = Field(default=None, description="items of each class")

    def require_few_rows(self, limits: Limits) -> None:
        require_few_items(len(self.targets), ("targets",), limits)


class YAware(OverTargets):
    """exp(-‖y_i - y_j‖² / (2σ²)), for cosine similarities"""

    name: Literal["y_aware"]
    sigma: Positive


class EuclideanWeights(OverTargets):
    """exp(-‖y_i - y_j‖² / (2σ²)), for Euclidean similarities"""

    name: Literal["euclidean"]
    sigma: Positive


class XCLR(OverTargets):
    """exp(cos(y_i, y_j) / T_w)"""

    name: Literal["x_clr"]
    label_temperature: Positive


NamedField = Annotated[SupCon | SoftSupCon | YAware | EuclideanWeights | XCLR, Field(discriminator="name")]


def _kind(value: Any) -> str:
    return "named" if isinstance(value, (dict, Named)) else "matrix"


WeightsField = Annotated[
    Annotated[WeightRows, Tag("matrix")] | Annotated[NamedField, Tag("named")], Discriminator(_kind)
]


class SimilaritySettings(Strict):
    """How similarities are measured in the loss."""

    metric: Metric = Field(
        default="cosine", description="s_ij = z_i·z_j/T on the unit sphere, or s_ij = -‖z_i - z_j‖²/T"
    )
    temperature: Temperature = 0.1
    self_pairs: SelfPairs = Field(default="included", description="whether an anchor is compared with itself")


class WeightedRequest(SimilaritySettings):
    """Exactly one of `weights` and `log_weights`."""

    weights: WeightsField | None = Field(
        default=None, description="n × n numbers, not negative; or a named weighting"
    )
    log_weights: LogWeightRows | None = Field(
        default=None, description="n × n natural logarithms; null for a weight of zero"
    )

    def check_weights(self, limits: Limits) -> None:
        """Refuse what the schema cannot express, before any matrix is built."""
        if (self.weights is None) == (self.log_weights is None):
            missing = self.weights is None
            raise InvalidInput(
                ("weights" if missing else "log_weights",), "give exactly one of weights and log_weights"
            )
        if isinstance(self.weights, Named):
            with below("weights"):
                self.weights.require_few_rows(limits)
        elif self.weights is not None:
            check_square(("weights",), self.weights, limits)
        elif self.log_weights is not None:
            check_square(("log_weights",), self.log_weights, limits)

    def build(self) -> LogWeights | NamedWeighting:
        """
        Raises:
            InvalidInput: at the offending field.
        """
        if isinstance(self.weights, Named):
            with below("weights"):
                return self.weights.build()
        if self.weights is not None:
            return LogWeights.from_weights(self.weights)
        assert self.log_weights is not None
        return LogWeights.from_log_weights(self.log_weights)


@contextmanager
def below(*path: str | int) -> Iterator[None]:
    """Errors of the core inside the block are about a part of the request: put its path before theirs."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)((*path, *error.field), error.message) from None


@contextmanager
def renamed(core: str, request: str) -> Iterator[None]:
    """What the core calls ``core`` is called ``request`` in the body."""
    try:
        yield
    except InvalidInput as error:
        if error.field[:1] != (core,):
            raise
        raise type(error)((request, *error.field[1:]), error.message) from None


def check_square(field: Path, rows: Sequence[Sequence[Any]], limits: Limits) -> None:
    """
    Raises:
        InvalidInput: at ``field`` or at a row of another length.
    """
    n = len(rows)
    require_few_items(n, field, limits)
    for i, row in enumerate(rows):
        if len(row) != n:
            raise InvalidInput((*field, i), f"has {len(row)} entries where the matrix has {n} rows")


def require_few_items(n: int, field: Path, limits: Limits) -> None:
    """
    Raises:
        TooLarge: at ``field``.
    """
    if n > limits.max_items:
        raise TooLarge(field, f"may have at most {limits.max_items} rows, not {n}")
