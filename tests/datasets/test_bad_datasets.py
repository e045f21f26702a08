"""Whatever is wrong with an upload is said, at its place, and nothing is stored."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import archive, npy, npy_claiming, npz, parquet_file, send
from starlette.testclient import TestClient

X = np.arange(6.0).reshape(3, 2)
Y = np.array([0, 1, 1])
NAN, INFINITE = X.copy(), X.astype(np.float16)
NAN[1, 1] = np.nan
INFINITE[2, 0] = -np.inf
OBJECTS = np.array([{}, 1], dtype=object)
LONG = npz(x=X, y=Y)
IMAGES = np.zeros((2, 2, 2, 2))
IMAGES[1, 0, 1, 1] = np.nan
PARQUET = parquet_file(a=[1.0, 2.0], y=[0, 1])

Case = tuple[dict[str, Any], str, str]
"""A form, the pointer of its problem, and words of its message."""

ARRAYS: dict[str, Case] = {
    "NaN": ({"file": npz(x=NAN, y=Y)}, "/x/1/1", "NaN"),
    "infinite": ({"file": npz(x=INFINITE, y=Y)}, "/x/2/0", "infinite"),
    "NaN in an image": ({"file": npz(x=IMAGES, y=Y[:2])}, "/x/1/0/1/1", "NaN"),
    "one dimension": ({"file": npz(x=X[:, 0], y=Y)}, "/x", "must be n × d"),
    "five dimensions": ({"file": npz(x=X.reshape(3, 2, 1, 1, 1), y=Y)}, "/x", "must be n × d"),
    "no samples": ({"file": npz(x=X[:0], y=Y[:0])}, "/x", "no samples"),
    "empty samples": ({"file": npz(x=X[:, :0], y=Y)}, "/x", "no numbers"),
    "complex": ({"file": npz(x=X * 1j, y=Y)}, "/x", "complex128"),
    "booleans": ({"file": npz(x=X > 1, y=Y)}, "/x", "bool"),
    "long double": ({"file": npz(x=X.astype(np.longdouble), y=Y)}, "/x", "must be float16"),
    "words": ({"file": npz(x=X.astype(str), y=Y)}, "/x", "must be float16"),
    "structured": ({"file": npz(x=np.zeros((3, 2), "f4,i4"), y=Y)}, "/x", "must be float16"),
    "pickled samples": ({"file": npz(x=OBJECTS, y=Y)}, "/x", "pickled"),
    "pickled labels": ({"file": npz(x=X[:2], y=OBJECTS)}, "/y", "pickled"),
    "no labels": ({"file": npz(x=X)}, "/y", "no array"),
    "no x": ({"file": npz(X=X, y=Y)}, "/x", "no array"),
    "too few labels": ({"file": npz(x=X, y=Y[:2])}, "/y", "each of the 3 samples, not 2"),
    "matrix of labels": ({"file": npz(x=X, y=X)}, "/y", "integers or strings"),
    "one-hot labels": ({"file": npz(x=X, y=np.eye(3, dtype=int))}, "/y", "one-dimensional"),
    "float labels": ({"file": npz(x=X, y=Y / 2)}, "/y", "astype(int)"),
    "huge labels": ({"file": npz(x=X, y=np.array([1, 2**63, 3], np.uint64))}, "/y/1", "64 bits"),
    "long label": ({"file": npz(x=X, y=np.array(["a", "b" * 201, "c"]))}, "/y/1", "201 characters"),
    "empty label": ({"file": npz(x=X, y=np.array(["a", "b", ""]))}, "/y/2", "no label"),
    "no characters": (
        {"file": archive(x=npy(X[:1]), y=npy_claiming("(1,)", "'<U1'", b"\xff\xff\xff\xff"))},
        "/y/0",
        "Unicode",
    ),
    "cut off": ({"file": LONG[:-100]}, "/file", "damaged"),
    "first bytes only": ({"file": b"PK\x03\x04"}, "/file", "damaged"),
    "damaged": ({"file": LONG[:60] + b"????" + LONG[64:]}, "/x", "damaged"),
    "claims too much": (
        {"file": archive(x=npy_claiming("(1000000, 1000000000)"), y=npy(Y))},
        "/x",
        "may have at most",
    ),
    "claims what is not there": (
        {"file": archive(x=npy_claiming("(3, 2)", data=bytes(40)), y=npy(Y))},
        "/x",
        "size that its header announces",
    ),
    "negative shape": ({"file": archive(x=npy_claiming("(-1, 2)"), y=npy(Y))}, "/x", "cannot have shape"),
    "code in a header": ({"file": archive(x=npy_claiming("exit()"), y=npy(Y))}, "/x", "header is damaged"),
    "label column of arrays": ({"file": LONG, "label": "y"}, "/label", "tables"),
}
PAIRS: dict[str, Case] = {
    "x cut off": ({"x": npy(X)[:-1], "y": npy(Y)}, "/x", "cut off"),
    "x too long": ({"x": npy(X) + b"?", "y": npy(Y)}, "/x", "too long"),
    "y is none": ({"x": npy(X), "y": b"0,1,1"}, "/y", "not an .npy array"),
    "y empty": ({"x": npy(X), "y": b""}, "/y", "not an .npy array"),
    "y of another length": ({"x": npy(X), "y": npy(Y[:1])}, "/y", "not 1"),
    "y missing": ({"x": npy(X)}, "/y", "is required"),
    "x missing": ({"y": npy(X)}, "/x", "is required"),
    "file as well": ({"x": npy(X), "y": npy(Y), "file": LONG}, "/file", "not both"),
    "pickled": ({"x": pickle.dumps(X), "y": npy(Y)}, "/x", "not an .npy array"),
    "label column": ({"x": npy(X), "y": npy(Y), "label": "y"}, "/label", "tables"),
}
TABLES: dict[str, Case] = {
    "empty file": ({"file": b""}, "/file", "is empty"),
    "one array": ({"file": npy(X)}, "/file", "fields x and y"),
    "pickle": ({"file": pickle.dumps(X)}, "/file", "none of"),
    "compressed": ({"file": b"\x1f\x8b" + bytes(100)}, "/file", "gzip"),
    "only names": ({"file": b"a,b,y\n"}, "/file", "no samples"),
    "no names": ({"file": b"1,2,3\n4,5,6\n"}, "/file", "name the columns"),
    "blank first row": ({"file": b"\n\na,b\n1,2\n"}, "/file", "name the columns"),
    "one column": ({"file": b"y\n1\n"}, "/file", "only the column 'y'"),
    "ragged": ({"file": b"a,b,y\n1,2,x\n3,y\n"}, "/file", "row 3, Expected 3 columns, got 2"),
    "too many cells": ({"file": b"a,y\n1,x\n3,y,z\n"}, "/file", "row 3"),
    "NaN": ({"file": b"a,b,y\n1,2,x\n3,nan,y\n"}, "/file/1/b", "NaN"),
    "inf": ({"file": b"a,b,y\n1,2,x\n-Infinity,1,y\n"}, "/file/1/a", "infinite"),
    "overflow": ({"file": b"a,b,y\n1,1e999,x\n"}, "/file/0/b", "infinite"),
    "empty cell": ({"file": b"a,b,y\n1,2,x\n3,,y\n"}, "/file/1/b", "is empty"),
    "no label": ({"file": b"a,b,y\n1,2,x\n3,4,\n"}, "/file/1/y", "no label"),
    "words": ({"file": b"a,b,y\n1,2,x\n3,NA,y\n"}, "/file", "row 3, column 'b': invalid value 'NA'"),
    "thousands": ({"file": b'a,y\n"1,000",x\n'}, "/file", "row 2, column 'a'"),
    "same name": ({"file": b"a,a,y\n1,2,x\n"}, "/file", "more than one column named 'a'"),
    "index": ({"file": b",a,y\n0,2,x\n"}, "/file", "index=False"),
    "not UTF-8": ({"file": b"a,y\n1,\xe9\n"}, "/file", "UTF8"),
    "name not UTF-8": ({"file": b"\xe9,y\n1,2\n"}, "/file", "none of"),
    "zeros": ({"file": bytes(1000)}, "/file", "none of"),
    "open quote": ({"file": b'"a,y\n1,2\n'}, "/file", "first row is damaged"),
    "unknown label": ({"file": b"a,b\n1,2\n", "label": "c"}, "/label", "there are 'a', 'b'"),
    "measured labels": ({"file": b"a,b\n1,2.5\n2,3.5\n"}, "/file/b", "2.5 is a number, but no integer"),
    "labels with a gap": ({"file": b"a,y\n1,2\n2,nan\n"}, "/file/y", "nan is a number, but no integer"),
    "long label": ({"file": b"a,y\n1," + b"x" * 201}, "/file/0/y", "201 characters"),
    "huge label": ({"file": b"a,y\n1,123456789012345678901\n"}, "/file/y", "18 digits"),
    "long row": ({"file": b"a,y\n1,2\n" + b"x" * 9_000_000}, "/file", "row"),
    "long first row": ({"file": b"x" * 2_000_000}, "/file", "first row is longer"),
    "columns": ({"file": b"a" + b",a" * 70_000 + b"\n"}, "/file", "65536 columns"),
}
PARQUETS: dict[str, Case] = {
    "first bytes only": ({"file": b"PAR1"}, "/file", "damaged"),
    "cut off": ({"file": PARQUET[:-10]}, "/file", "damaged"),
    "damaged": ({"file": PARQUET[:4] + bytes(50) + PARQUET[54:]}, "/file", "damaged"),
    "null": ({"file": parquet_file(a=[1.0, None], y=[0, 1])}, "/file/1/a", "is empty"),
    "NaN": ({"file": parquet_file(a=[1.0, np.nan], y=[0, 1])}, "/file/1/a", "NaN"),
    "no label": ({"file": parquet_file(a=[1.0, 2.0], y=["u", None])}, "/file/1/y", "is empty"),
    "words": ({"file": parquet_file(a=["x", "y"], y=[0, 1])}, "/file/a", "must hold numbers"),
    "lists": ({"file": parquet_file(a=[[1.0], [2.0]], y=[0, 1])}, "/file/a", "must hold numbers"),
    "float labels": ({"file": parquet_file(a=[1.0], y=[0.5])}, "/file/y", "integers or strings"),
    "unknown label": ({"file": PARQUET, "label": "q"}, "/label", "there are 'a', 'y'"),
    "no rows": ({"file": parquet_file(a=np.zeros(0), y=np.zeros(0, int))}, "/file", "no samples"),
    "only labels": ({"file": parquet_file(y=[0, 1])}, "/file", "only the column"),
}
CASES = {
    f"{kind}: {name}": case
    for kind, cases in {"npz": ARRAYS, "pair": PAIRS, "csv": TABLES, "parquet": PARQUETS}.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize(("form", "pointer", "words"), CASES.values(), ids=CASES.keys())
def test_refused(client: TestClient, folder: Path, form: dict[str, Any], pointer: str, words: str) -> None:
    before = stored_names(folder)
    response = send(client, **form)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["code"] in ("invalid_input", "too_large")
    assert problem["errors"][0]["pointer"] == pointer
    assert words in problem["detail"]
    assert stored_names(folder) == before


def stored_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "datasets").glob("*"))


class TestForms:
    @pytest.mark.parametrize("kind", ["application/json", "text/csv", "application/octet-stream", ""])
    def test_content_type(self, client: TestClient, kind: str) -> None:
        response = client.post("/datasets", content=b"a,y\n1,2\n", headers={"Content-Type": kind})
        assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")

    def test_content_encoding(self, client: TestClient) -> None:
        response = client.post("/datasets", files={"file": LONG}, headers={"Content-Encoding": "gzip"})
        assert response.status_code == 415

    @pytest.mark.parametrize("field", ["file", "name"])
    def test_field_given_twice(self, client: TestClient, field: str) -> None:
        parts = [("file", ("a", LONG)), (field, ("b", LONG) if field == "file" else (None, "b"))]
        if field == "name":
            parts.append(("name", (None, "c")))
        response = client.post("/datasets", files=parts)
        assert (response.status_code, response.json()["errors"][0]["message"]) == (422, "given twice")

    def test_unknown_field(self, client: TestClient) -> None:
        response = send(client, LONG, shuffle="true")
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/shuffle")

    def test_no_file(self, client: TestClient) -> None:
        response = client.post("/datasets", files={"name": (None, "x")})
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/file")

    def test_label_is_no_text(self, client: TestClient) -> None:
        response = client.post("/datasets", files={"file": ("x", LONG), "label": (None, b"\xff")})
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/label")
