"""The optimal class geometry of real training sets, what merges, and a picture.

    python examples/real_counts.py [--output examples/output]

For each data set of data/class_counts.json: the certified optimum of InfoNCE (256 negatives, both
samplings, temperatures 0.1 and 1), the angles between class means, merged and nearly merged classes,
and one PNG with the Gram matrix and the angles.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np

from anglewise import Geometry, InfoNCE, optimal_geometry
from anglewise.sampling import Sampling

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
SAMPLINGS: tuple[Sampling, ...] = ("supervised", "unsupervised")
TEMPERATURES = (0.1, 1.0)


def data_sets() -> dict[str, list[int]]:
    """Name -> class counts, with their sources in the file."""
    table = json.loads((HERE / "data/class_counts.json").read_text(encoding="utf-8"))
    return {name: entry["class_counts"] for name, entry in table.items()}


def geometries(counts: list[int]) -> Iterator[tuple[str, Geometry]]:
    """The four settings of this example, each with a short label."""
    for sampling in SAMPLINGS:
        for temperature in TEMPERATURES:
            loss = InfoNCE(negatives=256, temperature=temperature)
            yield f"{sampling}, T={temperature:g}", optimal_geometry(counts, sampling=sampling, loss=loss)


def describe(label: str, geometry: Geometry) -> str:
    """One line: the geometry's name, its angles, the proof, what merged."""
    collapse = geometry.collapse
    merged = sum(len(block) for block in collapse.merged_classes)
    near = sum(len(block.classes) for block in collapse.near)
    angles = f"smallest angle {collapse.smallest_angle_degrees:8.4f} deg"
    proof = f"risk {geometry.risk:.10g}, relative gap {geometry.certificate.relative_gap:.1e}"
    return f"  {label:<20} {collapse.geometry:<18} {angles}  merged {merged:>3}  near {near:>3}  {proof}"


def draw(name: str, counts: list[int], labeled: list[tuple[str, Geometry]], output: Path) -> Path:
    """Gram heat maps (classes by falling count, diagonal left out) above the distribution of angles."""
    order = np.argsort(-np.asarray(counts), kind="stable")
    grams = [np.where(np.eye(len(counts)), np.nan, g.gram)[np.ix_(order, order)] for _, g in labeled]
    largest = max(float(np.nanmax(np.abs(gram))) for gram in grams)
    figure, axes = plt.subplots(2, len(labeled), figsize=(4 * len(labeled), 7.5), layout="constrained")
    for (top, bottom), (label, _), gram in zip(axes.T, labeled, grams, strict=True):
        image = top.imshow(gram, vmin=-largest, vmax=largest, cmap="RdBu_r")
        top.set_title(label)
        top.set_xlabel("class, most frequent first")
        angles = np.degrees(np.arccos(np.clip(gram[np.triu_indices(len(gram), 1)], -1, 1)))
        simplex = np.degrees(np.arccos(-1 / (len(gram) - 1)))
        span = max(float(np.abs(angles - simplex).max()) * 1.05, 1e-6)
        bottom.hist(angles, bins=61, range=(simplex - span, simplex + span), color="#35618f")
        bottom.axvline(simplex, color="black", linestyle="--", label="simplex")
        bottom.legend()
        bottom.set_xlabel("angle between two means (degrees)")
    axes[0, 0].set_ylabel("class, most frequent first")
    axes[1, 0].set_ylabel("pairs of classes")
    figure.colorbar(image, ax=axes[0], label="cosine of two class means", shrink=0.8)
    figure.suptitle(f"{name}: {len(counts)} classes, {max(counts):,} to {min(counts):,} samples")
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=HERE / "output", help="folder of the pictures")
    parser.add_argument("names", nargs="*", help="data sets (default: all)")
    options = parser.parse_args(arguments)
    sets = data_sets()
    if unknown := sorted(set(options.names) - set(sets)):
        parser.error(f"unknown data set {', '.join(unknown)}; there are {', '.join(sets)}")
    for name in options.names or sets:
        labeled = list(geometries(sets[name]))
        print(f"{name}: {len(sets[name])} classes, imbalance {max(sets[name]) / min(sets[name]):,.0f}:1")
        for label, geometry in labeled:
            print(describe(label, geometry))
        print(f"  picture: {draw(name, sets[name], labeled, options.output)}")


if __name__ == "__main__":
    main()
