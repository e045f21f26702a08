"""Class counts from files and folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anglewise_client.cli.columns import plain_column
from anglewise_client.cli.counts import BadCounts, read_counts

SIZES = {"ant": 30, "bee": 20, "cat": 5}
LABELS = [name for name, size in SIZES.items() for _ in range(size)]


def as_text(folder: Path) -> Path:
    path = folder / "labels.txt"
    path.write_text("\n".join(LABELS) + "\n")
    return path


def as_windows_text(folder: Path) -> Path:
    path = folder / "labels.txt"
    path.write_bytes("\r\n".join(LABELS).encode())
    return path


def as_csv(folder: Path) -> Path:
    path = folder / "table.csv"
    path.write_text("id,label,size\n" + "".join(f'{i},"{name}",0.5\n' for i, name in enumerate(LABELS)))
    return path


def as_csv_with_mark(folder: Path) -> Path:
    path = as_csv(folder)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return path


def as_tsv(folder: Path) -> Path:
    path = folder / "table.tsv"
    path.write_text("class\tid\n" + "".join(f"{name}\t1\n" for name in LABELS))
    return path


def as_npy(folder: Path) -> Path:
    path = folder / "labels.npy"
    np.save(path, np.array(LABELS))
    return path


def as_npz(folder: Path) -> Path:
    path = folder / "data.npz"
    np.savez(path, x=np.zeros((len(LABELS), 2)), y=np.array(LABELS))
    return path


def as_folders(folder: Path) -> Path:
    root = folder / "images"
    for name, size in SIZES.items():
        (root / name / "more").mkdir(parents=True)
        for i in range(size):
            (root / name / ("more" if i % 2 else "") / f"{i}.png").touch()
        (root / name / ".hidden").touch()
    (root / ".cache").mkdir()
    (root / "README").touch()
    return root


def as_counts_table(folder: Path) -> Path:
    path = folder / "counts.csv"
    path.write_text("class,count\n" + "".join(f"{name},{size}\n" for name, size in SIZES.items()))
    return path


WAYS = (
    *(as_text, as_windows_text, as_csv, as_csv_with_mark, as_tsv),
    *(as_npy, as_npz, as_folders, as_counts_table),
)


@pytest.mark.parametrize("write", WAYS, ids=lambda write: write.__name__)
def test_every_way_gives_the_same_counts(write: Callable[[Path], Path], tmp_path: Path) -> None:
    found = read_counts([str(write(tmp_path))])
    assert dict(zip(found.labels, found.counts, strict=True)) == SIZES
    assert str(tmp_path) in found.source


@pytest.mark.parametrize("given", [["3", "2", "1"], ["3,2,1"], ["3,2", "1"]])
def test_numbers_are_counts(given: list[str]) -> None:
    assert list(read_counts(given).counts) == [3, 2, 1]


def test_integer_labels_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    labels = np.repeat([10, 9, -1], [2, 3, 4])
    np.save(tmp_path / "a.npy", labels)
    (tmp_path / "b.txt").write_text("\n".join(map(str, labels)))
    (tmp_path / "c.csv").write_text("\n".join(map(str, labels)))
    np.save(tmp_path / "d.npy", labels.astype(np.float64))
    for name in ("a.npy", "b.txt", "c.csv", "d.npy"):
        found = read_counts([str(tmp_path / name)])
        assert (list(found.labels), list(found.counts)) == ([-1, 9, 10], [4, 3, 2]), name


def test_values_that_all_differ_are_counts(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.array([500, 50, 5]))
    (tmp_path / "counts.txt").write_text("500\n50\n5\n")
    for name in ("counts.npy", "counts.txt"):
        assert list(read_counts([str(tmp_path / name)]).counts) == [500, 50, 5]
    assert list(read_counts([str(tmp_path / "counts.npy")], meaning="labels").counts) == [1, 1, 1]


def test_counts_with_ties_have_to_be_called_counts(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.array([50, 5, 5]))
    assert list(read_counts([str(tmp_path / "counts.npy")], meaning="counts").counts) == [50, 5, 5]


def test_a_column_by_name_or_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "x,u\nx,v\ny,v\n")
    assert list(read_counts([str(path)], column="b").counts) == [1, 2]
    assert list(read_counts([str(path)], column="0").counts) == [2, 1]
    with pytest.raises(BadCounts, match="say which column"):
        read_counts([str(path)])
    with pytest.raises(BadCounts, match="no column 'c'"):
        read_counts([str(path)], column="c")


def test_a_million_labels(tmp_path: Path) -> None:
    labels = np.arange(1_000_000) % 1000
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels.tolist())))
    (tmp_path / "labels.csv").write_text("label,id\n" + "\n".join(f"{label},0" for label in labels.tolist()))
    for name in ("labels.npy", "labels.txt", "labels.csv"):
        assert list(read_counts([str(tmp_path / name)]).counts) == [1000] * 1000


PLAIN = ["1,a\n2,b\n3,a\n", "1,a\r\n2,b\r\n3,a\r\n", "1,a\n2,b\n3,a", "x,\ny,b\nz,\n"]
"""Tables that are read without a loop."""
NOT_PLAIN = ['1,"a"\n2,b\n3,a\n', "1,a\n\n2,b\n", "1,a\n2\n", ""]


@pytest.mark.parametrize("text", PLAIN, ids=repr)
@pytest.mark.parametrize("index", [0, 1])
def test_plain_columns_are_those_of_a_csv_reader(text: str, index: int) -> None:
    cells = plain_column(text.encode(), ",", index)
    assert cells is not None
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [cell.decode().strip() for cell in cells] == [row[index] for row in rows]


@pytest.mark.parametrize("text", NOT_PLAIN, ids=repr)
def test_other_tables_need_a_csv_reader(text: str) -> None:
    assert plain_column(text.encode(), ",", 1) is None


def test_rows_without_a_label_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,label\n1,a\n2,\n")
    with pytest.raises(BadCounts, match="1 rows"):
        read_counts([str(tmp_path / "t.csv")])


def test_quotes_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('id,label\n1,"a, b"\n2,"a, b"\n3,c\n')
    found = read_counts([str(path)])
    assert (list(found.labels), list(found.counts)) == (["a, b", "c"], [2, 1])


def bad(tmp_path: Path) -> dict[str, Path]:
    files = {name: tmp_path / name for name in ("e.txt", "b.bin", "p.npy", "n.npy", "m.npy", "z.npz")}
    files["e.txt"].write_text("\n\n")
    files["b.bin"].write_bytes(b"\xff\xfe\x00")
    np.save(files["p.npy"], np.array([{"a": 1}], dtype=object))
    np.save(files["n.npy"], np.array([0.5, 1.0]))
    np.save(files["m.npy"], np.zeros((2, 2)))
    np.savez(files["z.npz"], x=np.zeros(2))
    return files


@pytest.mark.parametrize("name", ["e.txt", "b.bin", "p.npy", "n.npy", "m.npy", "z.npz"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadCounts):
        read_counts([str(bad(tmp_path)[name])])


@pytest.mark.parametrize("given", [[], ["x"], ["3", "x"], ["3", "-1"], ["0"], ["3", "0"]], ids=str)
def test_other_arguments_are_refused(given: list[str]) -> None:
    with pytest.raises(BadCounts):
        read_counts(given)


def test_a_short_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,label\n1,a\n2\n")
    with pytest.raises(BadCounts, match="line 3"):
        read_counts([str(path)])


def test_a_folder_needs_classes(tmp_path: Path) -> None:
    with pytest.raises(BadCounts, match="no subfolders"):
        read_counts([str(tmp_path)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadCounts, match="at least 1"):
        read_counts([str(tmp_path)])
