"""Samples and labels from a file, by the same rules as an upload."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import numpy as np

from anglewise.errors import InvalidInput
from jobs.computations.limits import Limits
from jobs.datasets.check import StoredUpload, run
from jobs.datasets.content import X, Y
from jobs.datasets.loading import Labeled


def read_samples(path: Path) -> tuple[str, Labeled]:
    """What a spec calls them, and x (n, …) and y (n,) of an .npz, .csv or .parquet file.

    The name is that of the content: a run does not go on with other samples.

    Raises:
        InvalidInput: naming what is wrong with it.
        OSError: it cannot be read.
    """
    if not path.is_file():
        raise InvalidInput(("data",), f"there is no file {path}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "file").symlink_to(path.resolve())
        content = run(StoredUpload(folder=name, form="file", label=None), Limits()).document()
        x, codes = (np.load(folder / array, allow_pickle=False) for array in (X, Y))
    digest = base64.b32encode(bytes.fromhex(content["sha256"])).decode()
    return f"ds_{digest[:26]}", (x, np.array(content["labels"])[codes])
