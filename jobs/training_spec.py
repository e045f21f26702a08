"""What a training job is asked to do, checked before it is queued; needs no deep-learning library.

Every field has a default that suits the rest, except ``data``. `TrainingSpec.check` refuses what single
fields cannot know; both kinds of refusal name the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.schemas import Strict
from jobs.computations.weighted_schemas import Counts, Positive
from jobs.training_encoders import EncoderField, Free
from jobs.training_losses import Drawn, ExponentialLoss, InfoNCELoss, LossField, SupConLoss, Weighted
from jobs.training_size import check_size

BUILTIN_COUNTS: Mapping[str, tuple[int, ...]] = {
    "digits": (178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
    "mnist5k": (500,) * 10,
}
BUILTIN_SHAPES: Mapping[str, tuple[int, ...]] = {"digits": (8, 8), "mnist5k": (28, 28)}
MAX_TABLE = 50_000_000
"""Numbers in a table of free features, or in generated data."""
MAX_ITEMS = 2_000_000
MAX_CLASSES = 5000
"""Gram matrices of class means are part of every evaluation."""
MAX_PAIRED_ITEMS = 20_000
"""The exact weighted loss compares all items with all."""
MAX_EVALUATIONS = 10_000
MAX_DRAWS = 2**26
"""Sampled negatives of one batch: batch_size times negatives."""
LARGEST_EXPONENT = {"float64": 700.0, "float32": 80.0, "bf16": 80.0}
"""Of e that is still a number, with room for a sum; losses are taken in single precision at least."""


class GaussianClasses(Strict):
    """One Gaussian cloud a class, around centers at random directions."""

    name: Literal["gaussian_classes"] = "gaussian_classes"
    classes: int = Field(default=10, ge=1, le=10_000)
    dimension: int = Field(default=32, ge=1, le=4096)
    samples_per_class: int = Field(default=100, ge=1, le=1_000_000)
    separation: float = Field(default=4.0, ge=0, le=1e6, description="length of every center")
    noise: float = Field(default=1.0, ge=0, le=1e6, description="standard deviation of each coordinate")
    seed: int = Field(default=0, ge=0, lt=2**63)


class Data(Strict):
    """Exactly one of `dataset`, `builtin` and `generator`; free features need only `class_counts`."""

    dataset: Annotated[str, Field(pattern="^ds_[0-9A-Z]{26}$")] | None = None
    builtin: Literal["digits", "mnist5k"] | None = None
    generator: GaussianClasses | None = None
    class_counts: Counts | None = Field(
        default=None, description="samples to keep of each class, in order of the sorted labels"
    )

    def available(self) -> list[int] | None:
        """Samples of each class before subsampling, where known without opening a data set."""
        if self.builtin is not None:
            return list(BUILTIN_COUNTS[self.builtin])
        if self.generator is not None:
            return [self.generator.samples_per_class] * self.generator.classes
        return None

    def shape(self) -> tuple[int, ...]:
        """Of one sample; the smallest there is where it is not known without opening a data set."""
        if self.builtin is not None:
            return BUILTIN_SHAPES[self.builtin]
        return (1, 1) if self.generator is None else (self.generator.dimension,)

    def counts(self) -> list[int] | None:
        """Samples of each class in training, where known without opening a data set."""
        return list(self.class_counts) if self.class_counts is not None else self.available()


class Optimizer(Strict):
    """How parameters follow the gradient. L-BFGS is for the exact objective and needs no rate."""

    name: Literal["sgd", "adam", "adamw", "lbfgs"]
    lr: Annotated[float, Field(gt=0, le=1e4)] | None = Field(
        default=None, description="null: 0.1 for sgd, 1e-3 for adam and adamw, 0.1 with free features"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(default=0.0, ge=0, le=1)


class Schedule(Strict):
    """The rate over time: a linear warm-up, then constant or half a cosine down to zero."""

    name: Literal["constant", "cosine"] = "cosine"
    warmup: int = Field(default=0, ge=0, le=10_000_000, description="steps")


class TrainingSpec(Strict):
    """One training run."""

    data: Data
    encoder: EncoderField = Free(name="free")
    dimension: int | None = Field(
        default=None, ge=1, le=8192, description="d of the embeddings; null: as many as classes, at least 2"
    )
    projection: Literal["sphere", "ball"] | None = Field(
        default=None, description='null: "sphere"; none with the Euclidean loss'
    )
    loss: LossField = Field(default_factory=InfoNCELoss)
    objective: Literal["exact", "sampled"] | None = Field(
        default=None, description='"exact", the expected risk itself, is the default for free features'
    )
    positives: Literal["class", "views"] = Field(
        default="class", description="another sample of the class, or another view of the same image"
    )
    optimizer: Optimizer | None = None
    schedule: Schedule | None = Field(default=None, description="null: cosine for batches, else constant")
    steps: int | None = Field(default=None, ge=1, le=10_000_000)
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    batch_size: int = Field(default=256, ge=1, le=65_536)
    accumulate: int = Field(default=1, ge=1, le=1024, description="batches whose gradients are averaged")
    chunk_size: int | None = Field(
        default=None,
        ge=2,
        description="samples encoded at once: a batch larger than memory, for one more pass; null: all",
    )
    processes: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="that share every batch; null: one for each GPU of the worker, one without GPU",
    )
    seed: int = Field(default=0, ge=0, lt=2**63)
    evaluate_every: int | None = Field(
        default=None, ge=1, description="steps; null: 50 times in an exact run, else 20 times"
    )
    checkpoint_every: int | None = Field(
        default=None, ge=1, description="steps; null: ten times, and at the end"
    )
    precision: Literal["float32", "float64", "bf16"] | None = Field(
        default=None, description='null: "float64" for the exact objective, else "float32"'
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    stop_gap: Positive | None = Field(
        default=None, description="stop when the risk is this close to the optimum"
    )

    @property
    def exact(self) -> bool:
        return self.objective == "exact" or (self.objective is None and self.encoder.name == "free")

    @property
    def _largest_exponent(self) -> float:
        return LARGEST_EXPONENT[self.precision or ("float64" if self.exact else "float32")]

    def batch(self, items: int) -> int:
        """Anchors of a batch of so many samples."""
        return min(self.batch_size, items)

    def steps_per_epoch(self, items: int) -> int:
        """Optimizer steps that see every sample once; 1 for the exact objective."""
        return 1 if self.exact else max(1, items // (self.batch(items) * self.accumulate))

    def encoded(self, anchors: int) -> int:
        """Samples that a batch of so many anchors encodes."""
        paired = isinstance(self.loss, Drawn) or self.positives == "views"
        return 2 * anchors if paired else anchors

    def check(self) -> None:
        """
        Raises:
            InvalidInput: at the field that does not go with the others.
        """
        for path, wrong, message in self._rules():
            if wrong:
                raise InvalidInput(path, message)
        self._check_sizes()

    def _rules(self) -> Iterator[tuple[tuple[str, ...], bool, str]]:
        free, weighted = self.encoder.name == "free", isinstance(self.loss, Weighted)
        sources = [self.data.dataset, self.data.builtin, self.data.generator]
        given, images = sum(source is not None for source in sources), self.data.generator is None
        yield ("data",), given > 1, "give only one of dataset, builtin and generator"
        nothing = given == 0 and self.data.class_counts is None
        yield ("data",), nothing, "give one of dataset, builtin, generator and class_counts"
        yield ("data",), given == 0 and not free, f"the {self.encoder.name} encoder needs samples to encode"
        convolution = self.encoder.name in ("cnn", "resnet18", "resnet50")
        yield ("encoder", "name"), convolution and not images, "needs images"
        yield ("objective",), self.exact and not free, "only free features have an exact objective"
        hard = isinstance(self.loss, Drawn) and self.loss.hardness > 0
        yield ("loss", "hardness"), hard, "must be 0 in training"
        steep = isinstance(self.loss, ExponentialLoss) and 2 / self.loss.temperature > self._largest_exponent
        least = 2 / self._largest_exponent
        yield (
            ("loss", "temperature"),
            steep,
            f"overflows this precision below {least:.2g}",
        )
        euclidean = self.loss.name == "euclidean"
        yield ("projection",), euclidean and self.projection is not None, "must be null with this loss"
        unit = weighted and self.projection == "ball"
        yield ("projection",), unit, "must be 'sphere': this loss measures cosines"
        views = self.positives == "views"
        yield ("positives",), views and (free or not images), "views need images and an encoder"
        lbfgs = self.optimizer is not None and self.optimizer.name == "lbfgs"
        yield ("optimizer", "name"), lbfgs and not self.exact, "L-BFGS needs the exact objective"
        yield ("epochs",), self.epochs is not None and self.exact, "the exact objective counts steps"
        both = self.epochs is not None and self.steps is not None
        yield ("epochs",), both, "give steps or epochs, not both"
        yield ("precision",), self.exact and self.precision == "bf16", "too coarse for the exact objective"
        yield ("accumulate",), self.exact and self.accumulate > 1, "the exact objective has no batches"
        several = self.processes is not None and self.processes > 1
        yield ("processes",), several and self.exact, "the exact objective is not shared"
        wide = self.processes is not None and self.processes > self.batch_size
        yield ("processes",), wide, "cannot share a batch with fewer samples"
        yield (
            ("chunk_size",),
            self.exact and self.chunk_size is not None,
            "the exact objective has no batches",
        )
        often = self.steps is not None and self.steps > MAX_EVALUATIONS * (self.evaluate_every or self.steps)
        yield ("evaluate_every",), often, f"allows more than {MAX_EVALUATIONS} evaluations"

    def _check_sizes(self) -> None:
        generator = self.data.generator
        if generator is not None:
            numbers = generator.classes * generator.samples_per_class * generator.dimension
            if numbers > MAX_TABLE:
                raise TooLarge(("data", "generator"), f"makes more than {MAX_TABLE} numbers")
        counts, available = self.data.counts(), self.data.available()
        if counts is not None and available is not None:
            check_subsample(counts, available)
        if counts is not None:
            self.check_counts(counts)
        items = self.batch_size if counts is None else sum(counts)
        self.check_shape(self.data.shape(), items)
        if isinstance(self.loss, Drawn):
            batch = self.batch(items)
            drawn = batch if self.loss.negatives == "infinite" else self.loss.negatives
            if not self.exact and batch * drawn > MAX_DRAWS:
                raise TooLarge(("loss", "negatives"), f"times batch_size must be at most {MAX_DRAWS}")
            self.loss.build()

    def check_shape(self, shape: Sequence[int], items: int) -> None:
        """Refuse an encoder that is too large for samples of this shape: `check` does so where it knows it.

        Raises:
            TooLarge: at the field.
        """
        encoded = self.encoded(self.batch(items)) // (self.processes or 1)
        check_size(self.encoder, self.dimension or 1, shape, min(encoded, self.chunk_size or encoded))

    def check_counts(self, counts: list[int]) -> None:
        """Refuse what does not fit these class counts: `check` does so where it knows them.

        Raises:
            InvalidInput: at the field.
        """
        classes, items = len(counts), sum(counts)
        if isinstance(self.loss, Drawn) and self.loss.sampling == "supervised" and classes < 2:
            raise InvalidInput(("loss", "sampling"), "supervised negatives need a second class")
        if isinstance(self.loss, SupConLoss) and classes < 2:
            raise InvalidInput(("data", "class_counts"), "needs at least two classes")
        targets = getattr(self.loss, "targets", None)
        if targets is not None and len(targets) != classes:
            raise InvalidInput(("loss", "targets"), f"has {len(targets)} entries for {classes} classes")
        if self.dimension == 1 and self.projection != "ball" and self.loss.name != "euclidean":
            raise InvalidInput(("dimension",), "on a sphere of one dimension, two points, nothing can move")
        if self.projection == "ball" and self.dimension is not None and self.dimension < classes - 1:
            message = f"in a ball, the prediction for {classes} classes needs {classes - 1} dimensions"
            raise InvalidInput(("dimension",), message)
        steps = self.steps or (self.epochs or 0) * self.steps_per_epoch(items)
        if steps > MAX_EVALUATIONS * (self.evaluate_every or steps):
            raise InvalidInput(("evaluate_every",), f"allows more than {MAX_EVALUATIONS} evaluations")
        if (self.processes or 1) > self.batch(items):
            raise InvalidInput(("processes",), f"cannot share a batch of {self.batch(items)}")
        if classes > MAX_CLASSES:
            raise TooLarge(("data", "class_counts"), f"may have at most {MAX_CLASSES} classes")
        if items > MAX_ITEMS:
            raise TooLarge(("data", "class_counts"), f"may have at most {MAX_ITEMS} samples in all")
        if self.encoder.name == "free" and items * (self.dimension or classes) > MAX_TABLE:
            raise TooLarge(("dimension",), f"times the samples must be at most {MAX_TABLE}")
        if self.exact and isinstance(self.loss, Weighted) and items > MAX_PAIRED_ITEMS:
            raise TooLarge(("data", "class_counts"), f"the exact loss takes {MAX_PAIRED_ITEMS} samples")


def check_subsample(counts: list[int], available: list[int]) -> None:
    """Refuse to keep more samples of a class than there are.

    Raises:
        InvalidInput: at ``("data", "class_counts")`` or one of its entries.
    """
    if len(counts) != len(available):
        message = f"has {len(counts)} entries where the data has {len(available)} classes"
        raise InvalidInput(("data", "class_counts"), message)
    for i, (wanted, there) in enumerate(zip(counts, available, strict=True)):
        if wanted > there:
            raise InvalidInput(("data", "class_counts", i), f"the data has {there} samples of this class")
