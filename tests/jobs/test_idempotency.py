"""One key, one job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs import paths
from jobs.idempotency import KeyReused, claim, digest
from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.record import Submission
from jobs.store import ObjectStore

PATH = paths.idempotency("somebody's key")


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore("memory:///" if request.param == "memory" else f"file://{tmp_path}")


def test_same_request_gets_the_first_id(store: ObjectStore) -> None:
    first, second = new_job_id(), new_job_id()
    assert claim(store, PATH, first, "a" * 64) == first
    assert claim(store, PATH, second, "a" * 64) == first


def test_other_request_is_refused(store: ObjectStore) -> None:
    claim(store, PATH, new_job_id(), "a" * 64)
    with pytest.raises(KeyReused):
        claim(store, PATH, new_job_id(), "b" * 64)


def test_keys_are_apart(store: ObjectStore) -> None:
    ids = [new_job_id(), new_job_id()]
    found = [claim(store, paths.idempotency(key), job, "a" * 64) for key, job in zip("ab", ids, strict=True)]
    assert found == ids


def test_racers_agree(store: ObjectStore) -> None:
    ids = [new_job_id() for _ in range(40)]
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda job: claim(store, PATH, job, "a" * 64), ids))
    assert len(found) == 1
    assert found < set(ids)


def test_deleting_the_job_frees_the_key(store: ObjectStore) -> None:
    journal, job = Journal(store), new_job_id()
    claim(store, PATH, job, "a" * 64)
    journal.submit(job, Submission(kind="weights", spec_bytes=2, idempotency=PATH), b"{}")
    journal.request_cancel(job)
    journal.delete(job)
    assert store.names("") == []
    another = new_job_id()
    assert claim(store, PATH, another, "b" * 64) == another


def test_parts_of_a_request_are_not_run_together() -> None:
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])
    assert digest([b"ab", b"c"]) == digest([b"ab", b"c"])
