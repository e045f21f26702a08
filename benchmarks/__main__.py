"""``python -m benchmarks [name ...]``: print the performance table, or the named parts of it."""

from __future__ import annotations

import importlib
import sys

from benchmarks.table import print_row

PARTS = (
    "class_geometry",
    "http",
    "realizability",
    "best_geometry",
    "jobs",
    "training",
    "training_loop",
    "large_batches",
)


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or PARTS:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print_row(row)
            missed += not row.met
    print(f"{missed} rows missed" if missed else "every row met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
