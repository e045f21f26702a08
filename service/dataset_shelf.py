"""The stored data sets as routes see them: failures are problems, and waiting happens in threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jobs.datasets.builtin import BUILTINS
from jobs.datasets.catalog import Catalog, UnknownDataset
from jobs.datasets.record import DatasetRecord
from jobs.journal import Journal, UnknownJob
from jobs.problems import Problem
from jobs.store import Missing, ObjectStore, StoreUnavailable
from service.job_desk import problem_of_store
from service.job_kinds import TRAINING
from service.settings import Settings

T = TypeVar("T")


class Shelf:
    """One for the application. Its methods other than `run` are for threads: they wait for the store."""

    def __init__(self, settings: Settings) -> None:
        self.catalog = Catalog(ObjectStore(settings.objects_url))
        self._journal = Journal(self.catalog.store)
        self._reserve = settings.disk_reserve_bytes

    async def run(self, action: Callable[..., T], *arguments: object) -> T:
        """The result of ``action``, called in a thread.

        Raises:
            Problem: not_found, storage_full, storage_unavailable, or what ``action`` raises.
        """
        try:
            return await asyncio.to_thread(action, *arguments)
        except UnknownDataset:
            raise Problem("not_found", "there is no such data set") from None
        except StoreUnavailable as error:
            raise problem_of_store(error) from error

    def require_room(self, size: int) -> None:
        """
        Raises:
            Problem: storage_full.
        """
        free = self.catalog.store.free_bytes()
        if free is not None and free < self._reserve + size:
            raise Problem("storage_full", "too little space is left; nothing was stored")

    def get(self, dataset_id: str) -> DatasetRecord:
        """
        Raises:
            UnknownDataset, StoreUnavailable
        """
        return BUILTINS.get(dataset_id) or self.catalog.get(dataset_id)

    def page(self, cursor: str | None, limit: int) -> tuple[list[DatasetRecord], str | None]:
        """Data sets after ``cursor``, newest first and built-in ones last, and the next cursor.

        Raises:
            StoreUnavailable
        """
        found: list[DatasetRecord] = []
        for dataset_id in self._ids_after(cursor):
            if len(found) == limit:
                return found, found[-1].id
            try:
                found.append(self.get(dataset_id))
            except UnknownDataset:  # it is being stored or deleted
                continue
        return found, None

    def _ids_after(self, cursor: str | None) -> Iterator[str]:
        builtins = list(BUILTINS)
        if cursor in builtins:
            yield from builtins[builtins.index(cursor) + 1 :]
            return
        yield from (name for name in self.catalog.ids() if cursor is None or name < cursor)
        yield from builtins

    def delete(self, dataset_id: str) -> None:
        """
        Raises:
            Problem: built_in or in_use.
            UnknownDataset, StoreUnavailable
        """
        if dataset_id in BUILTINS:
            raise Problem("built_in", f"{dataset_id} comes with the service and cannot be deleted")
        self.catalog.get(dataset_id)
        job_id = self._user(dataset_id)
        if job_id is not None:
            raise Problem("in_use", f"{job_id} needs it and has not ended; cancel that first")
        self.catalog.delete(dataset_id)

    def _user(self, dataset_id: str) -> str | None:
        """A job that has not ended and trains on the data set."""
        for job_id in self._journal.active_ids():
            try:
                record = self._journal.read(job_id)
                if record.state.terminal or record.kind != TRAINING:
                    continue
                spec: Any = json.loads(self._journal.spec(job_id))
            except (UnknownJob, Missing, ValueError):
                continue
            if spec.get("data", {}).get("dataset") == dataset_id:
                return job_id
        return None


def open_shelf(settings: Settings) -> Shelf | None:
    """None where nothing is stored: there is neither a store nor a broker in the settings."""
    return Shelf(settings) if settings.jobs_on or settings.store_url is not None else None
