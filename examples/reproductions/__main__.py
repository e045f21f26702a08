"""``python -m examples.reproductions [NAME ...] [--write-docs]``: run experiments of the papers.

All of them take some minutes on two cores. ``--write-docs`` writes docs/reproductions.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.reproductions import (
    collapse_sweep,
    label_text,
    sampled_negatives,
    soft_supcon,
    thickness_regression,
    three_classes,
)
from examples.reproductions.tables import Result

EXPERIMENTS: dict[str, Callable[[], Result]] = {
    "three_classes": three_classes.experiment,
    "sampled_negatives": sampled_negatives.experiment,
    "collapse_sweep": collapse_sweep.experiment,
    "soft_supcon": soft_supcon.experiment,
    "thickness": thickness_regression.experiment,
    "label_text": label_text.experiment,
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "reproductions.md"
HEAD = (
    "# Reproductions\n\n"
    "What the two papers state beside what is measured here, written by "
    "`python -m examples.reproductions --write-docs` (seed 0, two processor cores, a few minutes). The keys "
    "[P1] and [P2] are in [references.md](references.md). Each experiment is one short file in "
    "[examples/reproductions](../examples/reproductions); the same trainings can be sent to a service as "
    "jobs of kind `training`.\n\n"
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.reproductions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; all if none")
    parser.add_argument("--write-docs", action="store_true", help="run all and write docs/reproductions.md")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"unknown experiment {', '.join(unknown)}")
    names = list(EXPERIMENTS) if options.write_docs or not options.names else options.names
    results = []
    for name in names:
        start = time.monotonic()
        results.append(EXPERIMENTS[name]())
        print(f"{results[-1].markdown()}({time.monotonic() - start:.0f} s)\n", flush=True)
    if options.write_docs:
        DOCUMENT.write_text(HEAD + "\n".join(result.markdown() for result in results), encoding="utf-8")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
