"""Stores in memory, of files and on S3 keep the same promises."""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from jobs.store import STAGING, Missing, ObjectStore, StoreFull, StoreUnavailable


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        found: ObjectStore = request.getfixturevalue("s3_store")
        return found
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


def test_what_is_written_is_read(store: ObjectStore) -> None:
    store.put("a/b", b"old")
    store.put("a/b", b"newer")
    store.put_file("a/c", io.BytesIO(b"x" * 100_000))
    assert store.get("a/b") == b"newer"
    assert store.size("a/c") == 100_000
    size, chunks = store.chunks("a/c")
    assert size == 100_000
    assert b"".join(chunks) == b"x" * 100_000
    store.put("empty", b"")
    assert store.get("empty") == b""


def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    with pytest.raises(Missing):
        store.get("nothing")
    with pytest.raises(Missing):
        store.get("a")
    with pytest.raises(Missing):
        store.chunks("nothing")
    assert store.size("nothing") is None
    assert store.size("a") is None
    assert store.names("nothing") == []
    assert store.folders("nothing") == []
    store.delete("nothing", "a/nothing")
    store.delete_folder("nothing")
    assert store.names("a") == ["a/b"]


def test_create_never_replaces(store: ObjectStore) -> None:
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.get("a/b") == b"first"


def test_one_of_many_creators_wins(store: ObjectStore) -> None:
    remote = store.url.startswith("s3:")  # where contention costs seconds
    racers, positions = (4, 3) if remote else (16, 10)
    winners: list[list[int]] = [[] for _ in range(positions)]

    def race(number: int, gate: threading.Barrier) -> None:
        gate.wait()
        for position, won in enumerate(winners):
            if store.create(f"log/{position}", b"%d" % number):
                won.append(number)

    gate = threading.Barrier(racers)
    threads = [threading.Thread(target=race, args=(number, gate)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(won) for won in winners] == [1] * positions
    assert [int(store.get(f"log/{position}")) for position in range(positions)] == [won[0] for won in winners]


def test_folders_and_names_are_listed_in_order(store: ObjectStore) -> None:
    for path in ("jobs/b/log/1", "jobs/b/log/0", "jobs/a/spec", "jobs/a/x/y", "jobsother/z", "jobs/c"):
        store.put(path, b"")
    assert store.folders("jobs") == ["a", "b"]
    assert store.names("jobs/b") == ["jobs/b/log/0", "jobs/b/log/1"]
    assert store.names("jobs/a") == ["jobs/a/spec", "jobs/a/x/y"]


def test_a_deleted_folder_leaves_nothing(store: ObjectStore) -> None:
    for path in ("jobs/a/log/0", "jobs/a/x/y/z", "jobs/ab/log/0"):
        store.put(path, b"")
    store.delete_folder("jobs/a")
    if not store.url.startswith("s3:"):  # this S3 service lists emptied folders for a while
        assert store.folders("jobs") == ["ab"]
    assert store.names("jobs") == ["jobs/ab/log/0"]
    store.put("jobs/a/log/0", b"again")
    assert store.get("jobs/a/log/0") == b"again"


def test_a_listing_of_many(store: ObjectStore) -> None:
    names = [f"many/{number:04}" for number in range(1_100)]  # S3 lists a thousand at a time
    for name in names:
        store.put(name, b"")
    assert store.names("many") == names


def test_a_store_that_answers_is_checked(store: ObjectStore) -> None:
    store.check()


def test_signed_addresses_are_for_s3(s3_store: ObjectStore, tmp_path: Path) -> None:
    s3_store.put("a/b", b"for everybody")
    address = s3_store.signed_url("a/b", timedelta(minutes=1))
    assert address is not None
    with urlopen(address) as answer:
        assert answer.read() == b"for everybody"
    assert ObjectStore("memory:///").signed_url("a/b", timedelta(minutes=1)) is None
    assert ObjectStore(tmp_path.as_uri()).signed_url("a/b", timedelta(minutes=1)) is None


def test_an_s3_that_is_away_is_unavailable_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = ObjectStore("s3://anglewise/x")
    for attempt in (
        lambda: store.create("a", b""),
        lambda: store.put("a", b""),
        lambda: store.get("a"),
        lambda: store.size("a"),
        lambda: store.names("a"),
        lambda: store.delete("a"),
        store.check,
    ):
        with pytest.raises(StoreUnavailable):
            attempt()


def test_a_wrong_secret_is_unavailable(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_store.put("a", b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    stranger = ObjectStore(s3_store.url)
    with pytest.raises(StoreUnavailable):
        stranger.get("a")
    with pytest.raises(StoreUnavailable):
        stranger.create("b", b"")


@pytest.mark.parametrize("url", ["http://x/y", "folder", "", "gs://bucket"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        ObjectStore(url)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for little."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m tmpfs '{folder}' 2>/dev/null") != 0:
        pytest.skip("only root can make a small disk")
    yield folder
    assert os.system(f"umount '{folder}'") == 0


def test_a_full_disk_is_full_and_keeps_what_it_has(small_disk: Path) -> None:
    store = ObjectStore(small_disk.as_uri())
    store.put("a", b"kept")
    large = b"x" * 2 * 2**20
    with pytest.raises(StoreFull):
        store.create("b", large)
    with pytest.raises(StoreFull):
        store.put("c", large)
    with pytest.raises(StoreFull):
        store.put("a", large)
    with pytest.raises(StoreFull):
        store.put_file("d", io.BytesIO(large))
    assert store.names("") == ["a"]
    assert store.get("a") == b"kept"
    assert list((small_disk / STAGING).iterdir()) == []
    assert store.create("b", b"small")
    free = store.free_bytes()
    assert free is not None
    assert free > 900_000


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_without_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    store = ObjectStore(tmp_path.as_uri())

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        store.create("a", b"x")
    monkeypatch.undo()
    assert store.size("a") is None
    assert list((tmp_path / STAGING).iterdir()) == []


def test_a_folder_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        ObjectStore((tmp_path / "file").as_uri())


def test_a_folder_that_vanished_is_unavailable(tmp_path: Path) -> None:
    store = ObjectStore((tmp_path / "objects").as_uri())
    shutil.rmtree(tmp_path / "objects")
    with pytest.raises(StoreUnavailable):
        store.free_bytes()
    with pytest.raises(StoreUnavailable):
        store.create("jobs/a", b"x")
