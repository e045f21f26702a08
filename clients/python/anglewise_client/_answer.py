"""Base of all answers: short in a console, a table in a notebook, and kept in a file without pickle."""

from __future__ import annotations

import html
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from anglewise_client._arrays import stored_arrays
from anglewise_client.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

METADATA = "metadata"
PLACE = "$array"
SUFFIXES = (".json", ".npz")


class Part(BaseModel):
    """A part of an answer. Fields that a newer service adds are kept as attributes."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    def __eq__(self, other: object) -> bool:
        """Equal in every field; NaN equals NaN."""
        return type(self) is type(other) and _same(self.__dict__, other.__dict__)

    __hash__ = None  # type: ignore[assignment]


class Answer(Part):
    """What a route answers."""

    KINDS: ClassVar[dict[str, type[Answer]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        Answer.KINDS[cls.__name__] = cls

    def facts(self) -> Mapping[str, Any]:
        """The few things worth a line each."""
        return {}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name.replace(' ', '_')}={show(value)}" for name, value in self.facts().items())
        return f"{type(self).__name__}({facts})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in ((name, show(value)) for name, value in self.facts().items())
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>{self._html_body()}"

    def _html_body(self) -> str:
        return ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it; needs matplotlib (``pip install 'anglewise-client[plot]'``)."""
        raise NotImplementedError(f"there is no picture of {type(self).__name__}")

    def to_dataframe(self) -> pd.DataFrame:
        """As a table; needs pandas (``pip install 'anglewise-client[dataframe]'``)."""
        return data_frame([self.facts()])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a ``.json`` or an ``.npz`` file, whole or not at all; `load` reads it again.

        Raises:
            ValueError: the name ends otherwise.
        """
        target = Path(path)
        if target.suffix not in SUFFIXES:
            raise ValueError(f"the name must end in .json or .npz, not {target.suffix!r}")
        head = {"kind": type(self).__name__, "version": __version__}
        if target.suffix == ".json":
            document = head | {"answer": json.loads(self.model_dump_json())}
            _write(target, lambda file: file.write(json.dumps(document, allow_nan=False).encode()))
            return target
        arrays: dict[str, npt.NDArray[Any]] = {}
        tree = _without_arrays(self.model_dump(), "", arrays)
        text = json.dumps(head | {"answer": tree}, allow_nan=False).encode()
        members: dict[str, Any] = arrays | {METADATA: np.frombuffer(text, dtype=np.uint8)}
        _write(target, lambda file: np.savez(file, allow_pickle=False, **members))
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: the file holds something else.
        """
        answer = load(path)
        if not isinstance(answer, cls):
            raise ValueError(f"{path} holds a {type(answer).__name__}, not a {cls.__name__}")
        return answer


def load(path: str | os.PathLike[str]) -> Answer:
    """The answer that `Answer.save` wrote to a file.

    Raises:
        ValueError: the file is of another kind, or damaged.
    """
    source = Path(path)
    try:
        if source.suffix == ".npz":
            with source.open("rb") as file:
                arrays = stored_arrays(file)
            document = json.loads(arrays[METADATA].tobytes())
            tree = _with_arrays(document["answer"], arrays)
        else:
            document = json.loads(source.read_bytes())
            tree = document["answer"]
        kind = Answer.KINDS[document["kind"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is not a saved answer, or it is damaged: {error}") from error
    return kind.model_validate(tree)


def show(value: Any) -> str:
    """A value in a line: numbers with six digits, long lists cut.

    >>> show(0.123456789), show([1, 2]), show(None)
    ('0.123457', '[1, 2]', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, np.ndarray):
        return "array " + "×".join(map(str, value.shape))
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def data_frame(rows: Any, **options: Any) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("a data frame needs pandas: pip install 'anglewise-client[dataframe]'") from None
    return pd.DataFrame(rows, **options)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=getattr(a, "dtype", np.dtype(object)).kind == "f")
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _without_arrays(tree: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The tree with each array replaced by its name in ``arrays``."""
    if isinstance(tree, np.ndarray):
        name = path.lstrip(".")
        arrays[name] = tree
        return {PLACE: name}
    if isinstance(tree, dict):
        return {name: _without_arrays(value, f"{path}.{name}", arrays) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_arrays(value, f"{path}.{i}", arrays) for i, value in enumerate(tree)]
    return tree


def _with_arrays(tree: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {PLACE}:
            return arrays[tree[PLACE]]
        return {name: _with_arrays(value, arrays) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_with_arrays(value, arrays) for value in tree]
    return tree


def _write(target: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Through a neighbor that takes the name only when it is complete."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as file:
            fill(file)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
