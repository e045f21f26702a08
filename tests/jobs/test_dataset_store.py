"""Data sets are kept the same way in every kind of store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from jobs import paths
from jobs.computations.limits import Limits
from jobs.datasets.arrays import store_arrays
from jobs.datasets.catalog import Catalog, UnknownDataset
from jobs.datasets.loading import load_dataset
from jobs.ids import new_dataset_id
from jobs.store import ObjectStore


@pytest.fixture(params=["memory", "file", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        store: ObjectStore = request.getfixturevalue("s3_store")
        return store
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


def test_life_of_a_data_set(any_store: ObjectStore, tmp_path: Path) -> None:
    catalog = Catalog(any_store)
    x = np.random.default_rng(0).random((3000, 3, 16, 16), dtype=np.float32)
    y = np.array(["b", "a", "c"] * 1000)
    record = catalog.add(tmp_path, store_arrays(x, y, tmp_path, Limits()), "images")
    assert catalog.ids() == [record.id]
    assert catalog.get(record.id) == record
    loaded, labels = load_dataset(any_store, record.id)
    assert np.array_equal(loaded, x)
    assert np.array_equal(labels, y)
    catalog.delete(record.id)
    assert any_store.names(paths.DATASETS) == []
    with pytest.raises(UnknownDataset):
        load_dataset(any_store, record.id)


def test_interrupted(any_store: ObjectStore) -> None:
    any_store.put(f"{paths.dataset(new_dataset_id())}/x.npy", b"half")
    Catalog(any_store).clear_interrupted(datetime.now(UTC) + timedelta(days=1))
    assert any_store.names(paths.DATASETS) == []
