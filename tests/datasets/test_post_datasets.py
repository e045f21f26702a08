"""Sound uploads become data sets; the same data is recognised in every container."""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import npy, npz, parquet_file, send, stored
from starlette.testclient import TestClient

from jobs.datasets.loading import load, load_dataset
from jobs.ids import is_dataset_id
from jobs.store import ObjectStore
from jobs.training_spec import Data

X = np.array([[1.0, 2.5], [-3.0, 1e-300], [0.1, 7.0]])
Y = np.array(["cat", "dog", "cat"])
CSV = b"a,b,label\n1,2.5,cat\n-3,1e-300,dog\n0.1,7,cat\n"
DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint64")


def test_answer(client: TestClient) -> None:
    response = send(client, npz(x=X, y=Y), name="animals")
    answer = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/datasets/{answer['id']}"
    assert is_dataset_id(answer["id"])
    expected: dict[str, Any] = {"name": "animals", "samples": 3, "shape": [2], "dtype": "float64"}
    expected |= {"classes": {"cat": 2, "dog": 1}, "label_type": "string", "builtin": False}
    assert {name: answer[name] for name in expected} == expected
    assert answer["bytes"] == 2 * 128 + X.nbytes + 3 * 4
    assert datetime.fromisoformat(answer["created_at"]).tzinfo is not None
    assert client.get(response.headers["location"]).json() == answer


CONTAINERS = {
    "archive": {"file": npz(x=X, y=Y)},
    "archive in Fortran order": {"file": npz(x=np.asfortranarray(X), y=Y)},
    "archive with the other byte order": {"file": npz(x=X.astype(">f8"), y=Y.astype(">U9"))},
    "pair": {"x": npy(X), "y": npy(Y)},
    "csv": {"file": CSV},
    "csv with a byte order mark, semicolons and carriage returns": {
        "file": b"\xef\xbb\xbf" + CSV.replace(b",", b" ; ").replace(b"\n", b"\r\n")
    },
    "csv, label first": {"file": b"what,a,b\ncat,1,2.5\ndog,-3,1e-300\n\ncat,0.1,7", "label": "what"},
    "parquet": {"file": parquet_file(a=X[:, 0], b=X[:, 1], y=Y.tolist())},
    "parquet with an index": {"file": parquet_file(__index_level_0__=[7, 8, 9], a=X[:, 0], b=X[:, 1], y=Y)},
}


@pytest.mark.parametrize("form", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_containers(client: TestClient, folder: Path, form: dict[str, Any]) -> None:
    answer = stored(client, **form)
    assert answer["sha256"] == stored(client, npz(x=X, y=Y))["sha256"]
    x, y = load_dataset(ObjectStore(folder.as_uri()), answer["id"])
    assert (x.tolist(), x.dtype, y.tolist()) == (X.tolist(), np.dtype("<f8"), Y.tolist())


@pytest.mark.parametrize(
    "other", [{"x": X + 1e-9, "y": Y}, {"x": X, "y": np.array(["cat", "cow", "cat"])}, {"x": X[::-1], "y": Y}]
)
def test_other_data_has_another_hash(client: TestClient, other: dict[str, Any]) -> None:
    assert stored(client, npz(**other))["sha256"] != stored(client, npz(x=X, y=Y))["sha256"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(client: TestClient, folder: Path, dtype: str) -> None:
    x = np.arange(12).reshape(2, 3, 2).astype(dtype)
    answer = stored(client, x=npy(x), y=npy(np.array([7, -2], dtype=np.int16)))
    assert (answer["dtype"], answer["shape"], answer["classes"]) == (dtype, [3, 2], {"-2": 1, "7": 1})
    loaded, labels = load(ObjectStore(folder.as_uri()), Data(dataset=answer["id"]))
    assert (loaded.tolist(), loaded.dtype.name, labels.tolist()) == (x.tolist(), dtype, [7, -2])


def test_many_blocks(client: TestClient, folder: Path) -> None:
    """Larger than what is looked at together."""
    rng = np.random.default_rng(0)
    x = rng.random((3000, 3, 16, 16), dtype=np.float32)
    y = rng.integers(0, 9, 3000)
    answer = stored(client, npz(x=x, y=y))
    assert answer["classes"] == {str(c): int(n) for c, n in enumerate(np.bincount(y))}
    loaded, labels = load_dataset(ObjectStore(folder.as_uri()), answer["id"])
    assert np.array_equal(loaded, x)
    assert np.array_equal(labels, y)


class TestTables:
    def test_whole_numbers_are_integer_labels(self, client: TestClient) -> None:
        answer = stored(client, b"y,a\n10,1\n9.0,2\n1e1,3\n9,4\n")
        assert (answer["classes"], answer["label_type"]) == ({"9": 2, "10": 2}, "integer")

    def test_padded_numbers_are_words(self, client: TestClient) -> None:
        answer = stored(client, b"a,y\n1,007\n2,10\n")
        assert (answer["classes"], answer["label_type"]) == ({"007": 1, "10": 1}, "string")

    def test_quoted_labels(self, client: TestClient) -> None:
        answer = stored(client, 'a,y\n1,"x, ""y"""\n2,é\n'.encode())
        assert answer["classes"] == {'x, "y"': 1, "é": 1}

    def test_many_rows(self, client: TestClient, folder: Path) -> None:
        x = np.random.default_rng(1).standard_normal((60_000, 8))
        file = io.StringIO()
        file.write("a,b,c,d,e,f,g,h,label\n")
        file.writelines(",".join(map(repr, row)) + f",{i % 3}\n" for i, row in enumerate(x.tolist()))
        answer = stored(client, file.getvalue().encode())
        loaded, labels = load_dataset(ObjectStore(folder.as_uri()), answer["id"])
        assert np.array_equal(loaded, x)
        assert labels.tolist() == [i % 3 for i in range(60_000)]

    def test_parquet_types(self, client: TestClient) -> None:
        import pyarrow as pa

        label = pa.array(["u", "v", "u"]).dictionary_encode()
        answer = stored(client, parquet_file(a=np.float32([1, 2, 3]), b=np.uint8([1, 2, 3]), label=label))
        assert (answer["dtype"], answer["classes"]) == ("float32", {"u": 2, "v": 1})
        integers = stored(client, parquet_file(a=np.uint8([1, 2]), b=np.uint8([1, 2]), label=[5, 3]))
        assert (integers["dtype"], integers["classes"]) == ("uint8", {"3": 1, "5": 1})


class TestNames:
    @pytest.mark.parametrize(
        ("filename", "name"),
        [("cells.npz", "cells.npz"), ("../../etc/x", "x"), ("C:\\data\\x.npz", "x.npz"), ("..", "..")],
    )
    def test_of_files(self, client: TestClient, folder: Path, filename: str, name: str) -> None:
        response = client.post("/datasets", files={"file": (filename, npz(x=X, y=Y))})
        assert response.json()["name"] == name
        assert {path.name for path in folder.iterdir()} <= {"datasets", "jobs", "active", ".staging"}
        here = folder / "datasets" / response.json()["id"]
        assert {path.name for path in here.iterdir()} == {"x.npy", "y.npy", "meta.json"}

    def test_are_only_shown(self, client: TestClient) -> None:
        assert stored(client, npz(x=X, y=Y), name="../../x")["name"] == "../../x"
        assert stored(client, npz(x=X, y=Y), name="Zähler № 1")["name"] == "Zähler № 1"

    def test_of_a_pair(self, client: TestClient) -> None:
        assert stored(client, x=npy(X), y=npy(Y))["name"] is None

    @pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "a\0b"])
    def test_bad(self, client: TestClient, name: str) -> None:
        response = send(client, npz(x=X, y=Y), name=name)
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/name")


def test_record_is_written_last_and_whole(client: TestClient, folder: Path) -> None:
    answer = stored(client, npz(x=X, y=Y))
    here = folder / "datasets" / answer["id"]
    assert json.loads((here / "meta.json").read_text())["labels"] == ["cat", "dog"]
    assert np.array_equal(np.load(here / "x.npy", allow_pickle=False), X)
    times = {path.name: path.stat().st_mtime_ns for path in here.iterdir()}
    assert times["meta.json"] == max(times.values())
