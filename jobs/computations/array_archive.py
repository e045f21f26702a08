"""Arrays of an answer as an .npz archive, the rest of it as JSON in the member ``metadata``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from anglewise.errors import TooLarge
from jobs.computations.encoding import encode, require_finite


def array_archive(
    arrays: Mapping[str, np.ndarray[Any, Any] | None], metadata: Mapping[str, Any], max_bytes: int
) -> Callable[[BinaryIO], None]:
    """Writes the arrays that are there.

    Raises (when writing):
        TooLarge: the arrays exceed ``max_bytes``.
    """

    def write(file: BinaryIO) -> None:
        present = {name: array for name, array in arrays.items() if array is not None}
        size = sum(array.nbytes for array in present.values())
        if size > max_bytes:
            raise TooLarge((), f"the arrays take {size} bytes, more than the {max_bytes} an archive may have")
        for name, array in present.items():
            require_finite(array, name)
        present["metadata"] = np.frombuffer(encode(dict(metadata)), dtype=np.uint8)
        np.savez(file, allow_pickle=False, **present)

    return write
