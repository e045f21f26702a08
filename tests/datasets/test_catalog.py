"""Lists, deletions, leftovers, built-in and generated data."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from dataset_files import npz, stored
from starlette.testclient import TestClient

from jobs import paths
from jobs.computations.limits import Limits
from jobs.datasets.arrays import store_arrays
from jobs.datasets.builtin import BUILTINS, load_builtin
from jobs.datasets.catalog import Catalog, UnknownDataset
from jobs.datasets.generators import gaussian_classes, long_tail_counts
from jobs.ids import new_dataset_id, new_job_id
from jobs.journal import Journal
from jobs.record import Submission
from jobs.store import ObjectStore
from jobs.training_spec import GaussianClasses

FILE = npz(x=np.eye(2), y=np.array([0, 1]))
SOON = datetime.now(UTC) + timedelta(hours=7)


def test_pages(tiny: TestClient) -> None:
    ids = [stored(tiny, FILE)["id"] for _ in range(3)][::-1]
    found, cursor = [], None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = tiny.get("/datasets", params=query).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found[:3] == ids
    assert found[-2:] == ["digits", "mnist5k"]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=../..", "cursor=", "page=2"])
def test_bad_pages(client: TestClient, query: str) -> None:
    response = client.get(f"/datasets?{query}")
    assert (response.status_code, response.json()["code"]) == (422, "invalid_input")


@pytest.mark.parametrize("name", ["ds_01KBCJ6ZT0000000000000000Z", "x", "..%2F..%2Fetc", "ds_", "Digits"])
def test_unknown(client: TestClient, name: str) -> None:
    for method in ("GET", "DELETE"):
        response = client.request(method, f"/datasets/{name}")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_delete(client: TestClient, folder: Path) -> None:
    address = f"/datasets/{stored(client, FILE)['id']}"
    assert client.delete(address).status_code == 204
    assert [client.get(address).status_code, client.delete(address).status_code] == [404, 404]
    assert not (folder / address[1:]).exists()


def test_data_of_a_job_stays_until_it_has_ended(client: TestClient, folder: Path) -> None:
    dataset = stored(client, FILE)["id"]
    journal = Journal(ObjectStore(folder.as_uri()))
    spec = json.dumps({"data": {"dataset": dataset}}).encode()
    job = journal.submit(new_job_id(), Submission(kind="training", name=None, spec_bytes=len(spec)), spec)
    response = client.delete(f"/datasets/{dataset}")
    assert (response.status_code, response.json()["code"]) == (409, "in_use")
    assert job.id in response.json()["detail"]
    journal.request_cancel(job.id)
    assert client.delete(f"/datasets/{dataset}").status_code == 204


@pytest.mark.parametrize("name", BUILTINS)
def test_builtins(client: TestClient, tmp_path: Path, name: str) -> None:
    """What is said about them is what checking them finds."""
    answer = client.get(f"/datasets/{name}").json()
    content = store_arrays(*load_builtin(name), tmp_path, Limits())
    assert BUILTINS[name].model_dump(include=set(type(content).model_fields)) == content.model_dump()
    assert (answer["sha256"], answer["builtin"], answer["created_at"]) == (content.sha256, True, None)
    response = client.delete(f"/datasets/{name}")
    assert (response.status_code, response.json()["code"]) == (409, "built_in")


def test_api_loads_no_data_library() -> None:
    code = (
        "import sys, service.app; print([m for m in ('sklearn', 'mlxtend', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["memory:///", "file"])
def test_leftovers(tmp_path: Path, url: str) -> None:
    store = ObjectStore(tmp_path.as_uri() if url == "file" else url)
    catalog = Catalog(store)
    content = store_arrays(np.eye(2), np.array([0, 1]), tmp_path, Limits())
    kept, cut_off = catalog.add(tmp_path, content, None), new_dataset_id()
    store.put(f"{paths.dataset(cut_off)}/x.npy", b"half")
    with pytest.raises(UnknownDataset):
        catalog.get(cut_off)
    catalog.clear_interrupted(datetime.now(UTC))
    assert store.names(paths.dataset(cut_off))
    catalog.clear_interrupted(SOON)
    assert catalog.ids() == [kept.id]
    assert len(store.names(paths.dataset(kept.id))) == 3


def test_gaussian_classes() -> None:
    spec = GaussianClasses(classes=3, dimension=4, samples_per_class=500, separation=5.0, noise=0.1, seed=7)
    x, y = gaussian_classes(spec)
    assert np.array_equal(x, gaussian_classes(spec)[0])
    assert np.bincount(y).tolist() == [500] * 3
    means = np.array([x[y == c].mean(axis=0) for c in range(3)])
    assert np.allclose(np.linalg.norm(means, axis=1), 5.0, atol=0.05)
    assert np.allclose(x.std(axis=0, where=(y == 0)[:, None]), 0.1, rtol=0.2)


def test_long_tail() -> None:
    assert long_tail_counts(10, 5000, 0.01)[::9] == [5000, 50]
    assert long_tail_counts(10, 5000, 0.01) == [5000, 2997, 1797, 1077, 646, 387, 232, 139, 83, 50]
    assert long_tail_counts(1, 7, 0.5) == [7]
