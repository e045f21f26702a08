"""Every picture the client draws, from real class counts:  ``python gallery.py FOLDER``

Needs a service (``python3 run.py serve``, or ``ANGLEWISE_URL``) and ``pip install 'anglewise-client[plot]'``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from anglewise_client import Client, InfoNCE

SKIN = [6705, 1113, 1099, 514, 327, 142, 115]
"""HAM10000: nevi, melanomas, keratoses, carcinomas, actinic keratoses, vascular lesions, dermatofibromas."""
LOSS = InfoNCE(negatives=256, temperature=0.5)


def pictures(client: Client) -> Iterator[tuple[str, Axes]]:
    """Name and axes of one picture after the other."""
    geometry = client.optimal_geometry(class_counts=SKIN, sampling="unsupervised", loss=LOSS)
    yield "angles", geometry.plot()
    yield "means", geometry.plot_means(dimensions=3)
    grid = client.collapse_map(
        x=("majority_proportion", np.linspace(0.3, 0.95, 27).tolist()),
        y=("temperature", [0.5, 1.0, 2.0]),
        classes=7,
        loss=LOSS,
    )
    yield "collapse", grid.plot()
    similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.9], [0.1, 0.9, 1]])
    yield "verdict", client.realizability(weights=similarity, temperature=0.5).plot()
    labels = np.repeat(np.arange(7), 40)
    noise = np.random.default_rng(0).normal(size=(len(labels), 7))
    embeddings = np.eye(7)[labels] + 0.2 * noise
    diagnosis = client.diagnose(embeddings=embeddings, labels=labels, prediction={"loss": LOSS})
    yield "diagnosis", diagnosis.plot()


def main(client: Client, folder: Path) -> list[Path]:
    """Write them all as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, axes in pictures(client):
        figure = axes.get_figure(root=True)
        assert figure is not None
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=90, bbox_inches="tight")
    return written


if __name__ == "__main__":
    for path in main(Client(), Path(sys.argv[1] if len(sys.argv) > 1 else "gallery")):
        print(path)
