"""The stored data sets. One is there once its record is, which is written last."""

from __future__ import annotations

import contextlib
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ulid import ULID

from jobs import paths
from jobs.datasets.content import X, Y
from jobs.datasets.record import DatasetContent, DatasetRecord
from jobs.ids import is_dataset_id, new_dataset_id
from jobs.store import Missing, ObjectStore, StoreUnavailable

META = "meta.json"
INTERRUPTED_AFTER = timedelta(hours=6)
"""A folder without a record is one whose upload or deletion was cut off, if its id is as old as this."""


class UnknownDataset(Exception):
    """There is no such data set."""


class Catalog:
    """Every method raises `StoreUnavailable` or `StoreFull` when the store fails."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def add(self, folder: Path, content: DatasetContent, name: str | None) -> DatasetRecord:
        """Store the arrays that lie in ``folder``; on failure nothing is left."""
        dataset_id = new_dataset_id()
        record = DatasetRecord(**content.model_dump(), id=dataset_id, name=name, created_at=datetime.now(UTC))
        try:
            for file_name in (X, Y):
                with (folder / file_name).open("rb") as file:
                    self.store.put_file(_path(dataset_id, file_name), file)
            self.store.create(_path(dataset_id, META), record.model_dump_json().encode())
        except BaseException:
            with contextlib.suppress(StoreUnavailable):
                self._remove(dataset_id)
            raise
        return record

    def get(self, dataset_id: str) -> DatasetRecord:
        """
        Raises:
            UnknownDataset
        """
        if not is_dataset_id(dataset_id):  # it would become part of a path
            raise UnknownDataset(dataset_id)
        try:
            return DatasetRecord.model_validate_json(self.store.get(_path(dataset_id, META)))
        except Missing:
            raise UnknownDataset(dataset_id) from None

    def ids(self) -> list[str]:
        """Newest first; a few may not be there completely."""
        return sorted(filter(is_dataset_id, self.store.folders(paths.DATASETS)), reverse=True)

    def delete(self, dataset_id: str) -> None:
        """
        Raises:
            UnknownDataset
        """
        self.get(dataset_id)
        self.store.delete(_path(dataset_id, META))
        self._remove(dataset_id)

    def clear_interrupted(self, now: datetime, age: timedelta = INTERRUPTED_AFTER) -> None:
        """Remove what uploads and deletions left that were cut off at least ``age`` before ``now``."""
        found, there = self.ids(), set(self.store.names(paths.DATASETS))
        for dataset_id in found:
            old = now - ULID.from_str(dataset_id.removeprefix("ds_")).datetime >= age
            if old and _path(dataset_id, META) not in there:
                self._remove(dataset_id)

    def _remove(self, dataset_id: str) -> None:
        self.store.delete_folder(paths.dataset(dataset_id))
        if self.store.folder is not None:  # files that were never finished are in no list
            shutil.rmtree(self.store.folder / paths.dataset(dataset_id), ignore_errors=True)


def _path(dataset_id: str, name: str) -> str:
    return f"{paths.dataset(dataset_id)}/{name}"
