"""The object store: files below a folder, or S3.  What is written here is what the service promises to keep.

Every object appears whole or not at all.  ``create`` never replaces an object: of several writers exactly
one succeeds.  On files, a write has reached the disk when its function returns.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, MemoryStore, S3Store, from_url

if TYPE_CHECKING:
    from obstore.store import RetryConfig

CHUNK = 8 * 2**20
CONNECT_TIME = timedelta(seconds=2)
RETRIES: RetryConfig = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
}
"""Of requests to S3: enough for hiccups, and an answer within seconds when it is away."""
STAGING = ".staging"
"""Folder of unfinished files in a store of files."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class StoreUnavailable(Exception):
    """The object store does not answer, or refuses."""


class StoreFull(StoreUnavailable):
    """There is no space left in the object store."""


class Missing(Exception):
    """There is no such object."""


class ObjectStore:
    """Objects by path, with ``/`` between its parts. Usable from several threads.

    Every method raises `StoreUnavailable` or `StoreFull` when the store fails.
    """

    def __init__(self, url: str) -> None:
        """Open ``file:///folder`` (created if missing), ``s3://bucket/prefix`` or ``memory:///``.

        S3 takes its credentials, region and endpoint from the usual ``AWS_*`` environment variables.
        """
        self.url = url
        self.folder: Path | None = None
        parts = urlsplit(url)
        with _translated():
            if parts.scheme == "file":
                self.folder = Path(unquote(parts.path))
                (self.folder / STAGING).mkdir(parents=True, exist_ok=True)
                self._store: LocalStore | MemoryStore | S3Store = LocalStore(self.folder)
            elif parts.scheme == "s3":
                plain = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")).startswith(
                    "http:"
                )
                self._store = cast(
                    S3Store,
                    from_url(
                        url,
                        client_options={"allow_http": plain, "connect_timeout": CONNECT_TIME},
                        retry_config=RETRIES,
                    ),
                )
            elif parts.scheme == "memory":
                self._store = MemoryStore()
            else:
                raise ValueError(f"{url!r} is neither a file://, an s3:// nor a memory:// address")

    def create(self, path: str, data: bytes) -> bool:
        """Write a new object; False, and nothing written, if there is one already."""
        with _translated():
            if self.folder is not None:
                with _folder_is_there():
                    return _create_file(self.folder, path, data)
            try:
                obstore.put(self._store, path, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing what was there."""
        with _translated():
            obstore.put(self._store, path, data)
            self._sync(path)

    def put_file(self, path: str, file: BinaryIO) -> None:
        """Write an object from an open file, in parts."""
        with _translated():
            obstore.put(self._store, path, file, chunk_size=CHUNK)
            self._sync(path)

    def get(self, path: str) -> bytes:
        """The whole object.

        Raises:
            Missing: there is none.
        """
        with _translated():
            return bytes(obstore.get(self._store, path).bytes())

    def chunks(self, path: str) -> tuple[int, Iterator[bytes]]:
        """The size of an object and its content piece by piece.

        Raises:
            Missing: there is none.
        """
        with _translated():
            result = obstore.get(self._store, path)
            return result.meta["size"], _pieces(result)

    def size(self, path: str) -> int | None:
        """In bytes; None if there is no such object."""
        try:
            with _translated():
                return obstore.head(self._store, path)["size"]
        except Missing:
            return None

    def names(self, prefix: str) -> list[str]:
        """Paths of all objects below a folder, in order."""
        with _translated():
            return sorted(item["path"] for batch in obstore.list(self._store, prefix) for item in batch)

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below a folder, in order."""
        with _translated():
            found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
            return sorted(path.rpartition("/")[2] for path in found)

    def delete(self, *paths: str) -> None:
        """Remove objects; those that are not there are no error."""
        for path in paths:
            with contextlib.suppress(Missing), _translated():
                obstore.delete(self._store, path)

    def delete_folder(self, prefix: str) -> None:
        """Remove everything below a folder."""
        self.delete(*self.names(prefix))
        if self.folder is not None:  # emptied folders would be listed
            for root, _, _ in os.walk(self.folder / prefix, topdown=False):
                with contextlib.suppress(OSError):
                    Path(root).rmdir()

    def signed_url(self, path: str, expires: timedelta) -> str | None:
        """An address from which anybody can read the object for a while; None where only the service can."""
        if not isinstance(self._store, S3Store):
            return None
        with _translated():
            return obstore.sign(self._store, "GET", path, expires)

    def free_bytes(self) -> int | None:
        """Space left for files; None where there is no such number."""
        if self.folder is None:
            return None
        with _translated(), _folder_is_there():
            status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def check(self) -> None:
        """Ask the store for something, to learn whether it answers."""
        self.size("health")

    def _sync(self, path: str) -> None:
        if self.folder is not None:
            _sync(self.folder / path)
            _sync((self.folder / path).parent)


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Around the use of temporary files: space for them that is not there now may be there later.

    Raises:
        StoreUnavailable: there is none.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise StoreUnavailable("there is no space for temporary files") from error
        raise


def _pieces(result: obstore.GetResult) -> Iterator[bytes]:
    with _translated():
        for chunk in result.stream(min_chunk_size=2**18):
            yield bytes(chunk)


def _create_file(folder: Path, path: str, data: bytes) -> bool:
    """The content reaches the disk before its name does: no crash leaves a name without content."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = folder / STAGING / uuid.uuid4().hex
    try:
        with staged.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(staged, target)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    for parent in _within(target.parent, folder):
        _sync(parent)
    return True


def _within(path: Path, folder: Path) -> Iterator[Path]:
    """A folder and those around it, up to ``folder``: any of them may be new."""
    yield path
    while path != folder:
        path = path.parent
        yield path


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _folder_is_there() -> Iterator[None]:
    """A folder that somebody removed is not an object that is not there."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreUnavailable("the folder of the store is not there any more") from error


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Failures of the store in the words of this module."""
    try:
        yield
    except FileNotFoundError as error:
        raise Missing(str(error)) from None
    except (BaseError, OSError) as error:
        full = getattr(error, "errno", None) in NO_SPACE
        full = full or any(text in str(error) for text in ("No space left", "StorageFull", "os error 28"))
        raise (StoreFull if full else StoreUnavailable)(str(error).partition("\n")[0]) from error
