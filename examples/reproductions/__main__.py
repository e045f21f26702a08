"""``python -m examples.reproductions [NAME ...]``: run experiments of the papers.

All of them take some minutes on two cores. The exit status is 1 if a claim was not met.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

from anglewise import __version__
from examples.reproductions import (
    collapse_images,
    collapse_sweep,
    label_text,
    sampled_negatives,
    soft_supcon,
    thickness_regression,
    three_classes,
)
from examples.reproductions.experiment import Experiment
from examples.reproductions.presets import PRESETS, Preset
from examples.reproductions.tables import Result

EXPERIMENTS: dict[str, Experiment] = {
    "three_classes": three_classes.EXPERIMENT,
    "sampled_negatives": sampled_negatives.EXPERIMENT,
    "collapse_sweep": collapse_sweep.EXPERIMENT,
    "collapse_images": collapse_images.EXPERIMENT,
    "soft_supcon": soft_supcon.EXPERIMENT,
    "thickness": thickness_regression.EXPERIMENT,
    "label_text": label_text.EXPERIMENT,
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "reproductions.md"


def main(arguments: list[str]) -> int:
    options = _parsed(arguments)
    preset = PRESETS[options.preset]
    results: list[Result] = []
    documents = []
    start = time.monotonic()
    for name in options.names:
        begun = time.monotonic()
        results.append(EXPERIMENTS[name](preset))
        seconds = time.monotonic() - begun
        documents.append({"name": name, **results[-1].document(), "seconds": round(seconds, 1)})
        print(f"{results[-1].markdown()}({seconds:.0f} s)\n", flush=True)
    if options.json is not None:
        about = {"preset": preset.name, "seeds": preset.seeds, "network_seeds": preset.network_seeds}
        text = json.dumps({**about, "versions": versions(), "results": documents}, indent=1, allow_nan=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.write_docs:
        head = _head(preset, time.monotonic() - start)
        DOCUMENT.write_text(head + "\n".join(result.markdown() for result in results), encoding="utf-8")
    return 0 if all(result.holds for result in results) else 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.reproductions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; all if none")
    parser.add_argument("--preset", choices=list(PRESETS), default="cpu", help="how large; cpu if not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as JSON")
    parser.add_argument("--write-docs", action="store_true", help="run all and write docs/reproductions.md")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"unknown experiment {', '.join(unknown)}")
    if options.write_docs or not options.names:
        options.names = list(EXPERIMENTS)
    return options


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "anglewise": __version__,
        "torch": torch.__version__,
        "numpy": version("numpy"),
    }


def _head(preset: Preset, seconds: float) -> str:
    used = ", ".join(f"{name} {number}" for name, number in versions().items())
    device = "a GPU" if torch.cuda.is_available() else "processor cores"
    free, networks = (", ".join(map(str, seeds)) for seeds in (preset.seeds, preset.network_seeds))
    command = f"python -m examples.reproductions --preset {preset.name} --write-docs"
    return (
        "# Reproductions\n\n"
        f"What the two papers state beside what is measured here, written by `{command}` (on {device}, "
        f"{seconds / 60:.0f} minutes; {used}). Free features start from each of the seeds {free}, networks "
        f"from {networks}; tables show the one furthest from the prediction. `--preset gpu` takes larger "
        "networks, more images and more steps, and `--json FILE` writes the results as JSON. "
        "The keys [P1] and [P2] are in [references.md](references.md). Each experiment is one short file in "
        "[examples/reproductions](../examples/reproductions); the same trainings can be sent to a service as "
        "jobs of kind `training`.\n\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
