"""Which weightings of contrastive learning can be realized, and what the best geometry is otherwise.

    python -m examples.weightings [--output examples/output]

The cases of [P2]: SupCon, Soft SupCon, y-Aware, Euclidean and X-CLR weights; then the class means SupCon
converges to on the counts of HAM10000, and the weights that would keep them a simplex.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np

from anglewise import (
    NamedWeighting,
    Verdict,
    WeightedGeometry,
    best_geometry,
    design_weights,
    euclidean,
    realizability,
    soft_supcon,
    supcon,
    x_clr,
    y_aware,
)
from examples.real_counts import data_sets

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
TEMPERATURE = 0.5
ON_A_CIRCLE = np.array([[math.cos(t), math.sin(t)] for t in np.linspace(0, 2 * math.pi, 7)[:-1]])
CONE = np.array([[1.0, 0.2, 0.2], [0.2, 1.0, 0.2], [0.2, 0.2, 1.0]])


def cases() -> Iterator[tuple[str, NamedWeighting]]:
    """A label and the weighting."""
    classes = 4
    boundary = math.exp(-classes / ((classes - 1) * TEMPERATURE))
    yield "SupCon, 4 classes", supcon(class_counts=[3, 2, 2, 1])
    yield "Soft SupCon, epsilon at the simplex", soft_supcon(boundary, class_counts=[3, 2, 2, 1])
    yield "Soft SupCon, epsilon 10 x smaller", soft_supcon(boundary / 10, class_counts=[3, 2, 2, 1])
    yield "y-Aware, scalar labels", y_aware(1.0, labels=[0.0, 0.5, 1.0, 2.0])
    yield "y-Aware, labels on a circle, R < sigma/sqrt(T)", y_aware(1.0, targets=ON_A_CIRCLE)
    yield "y-Aware, labels on a circle, R > sigma/sqrt(T)", y_aware(0.5, targets=ON_A_CIRCLE)
    yield "Euclidean, scalar labels", euclidean(1.0, labels=[0.0, 0.5, 1.0, 2.0])
    for ratio in (0.5, 1.0, 3.0):
        yield f"X-CLR, T/T_w = {ratio:g}", x_clr(TEMPERATURE / ratio, targets=CONE)


def decide(weighting: NamedWeighting) -> tuple[Verdict, WeightedGeometry]:
    """The verdict per item, and the best geometry of the same weights."""
    return (
        realizability(weighting, metric=weighting.metric, temperature=TEMPERATURE),
        best_geometry(weighting, metric=weighting.metric, temperature=TEMPERATURE),
    )


def describe(label: str, verdict: Verdict, best: WeightedGeometry) -> str:
    hottest = verdict.largest_temperature
    limit = f"{hottest:.4g}" if isinstance(hottest, float) else str(hottest)
    certificate = best.certificate
    return (
        f"  {label:<48} {verdict.verdict:<12} {verdict.reason.code:<22} largest T {limit:<10}"
        f" best loss above the bound by {best.entropy_gap:.3e} (proven to {certificate.gap:.0e})"
    )


def supcon_on(counts: list[int], temperatures: tuple[float, ...]) -> list[WeightedGeometry]:
    """The class means of SupCon, one geometry for each temperature."""
    weighting = supcon(class_counts=counts)
    return [best_geometry(weighting, temperature=T) for T in temperatures]


def draw(
    counts: list[int], temperatures: tuple[float, ...], geometries: list[WeightedGeometry], path: Path
) -> None:
    figure, axes = plt.subplots(
        1, len(temperatures), figsize=(4.2 * len(temperatures), 4), layout="constrained"
    )
    for axis, T, geometry in zip(axes, temperatures, geometries, strict=True):
        image = axis.imshow(geometry.gram, vmin=-1, vmax=1, cmap="RdBu_r")
        axis.set_title(f"SupCon, T={T:g}")
        for (i, j), cosine in np.ndenumerate(geometry.gram):
            axis.text(j, i, f"{cosine:.2f}", ha="center", va="center", fontsize=7)
        axis.set_xticks(range(len(counts)), map(str, counts), rotation=60)
        axis.set_yticks(range(len(counts)), map(str, counts))
    figure.colorbar(image, ax=axes, label="cosine between class means", shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=HERE / "output", help="folder of the picture")
    options = parser.parse_args(arguments)
    print(f"self pairs included, T = {TEMPERATURE:g}")
    for label, weighting in cases():
        print(describe(label, *decide(weighting)))

    counts, temperatures = data_sets()["ham10000"], (0.1, 0.5, 1.0)
    print(f"SupCon on HAM10000 {counts}")
    geometries = supcon_on(counts, temperatures)
    for T, geometry in zip(temperatures, geometries, strict=True):
        off = geometry.gram[np.triu_indices(len(counts), 1)]
        print(
            f"  T={T:g}: cosines {off.min():.4f} to {off.max():.4f} (simplex {-1 / (len(counts) - 1):.4f}),"
            f" relative gap {geometry.certificate.relative_gap:.0e}"
        )
    design = design_weights(simplex_class_counts=[3, 2, 2, 1], temperature=TEMPERATURE)
    assert design.epsilon is not None
    print(f"Soft SupCon keeps 4 classes a simplex at T = {TEMPERATURE:g} with epsilon = {design.epsilon:.6f}")
    path = options.output / "supcon_ham10000.png"
    draw(counts, temperatures, geometries, path)
    print(f"  picture: {path}")


if __name__ == "__main__":
    main()
