"""One request to the service as a value: what is sent, and how its answer is read.

Clients differ only in how they send; everything else is here and in `anglewise_client.calls`, without I/O.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Any, Generic, TypeVar

import httpx2
import numpy as np
import pydantic_core

from anglewise_client.version import __version__

T = TypeVar("T")
U = TypeVar("U")

JSON = "application/json"
PROBLEM = "application/problem+json"
ARCHIVE = "application/x-npz"
ARRAY = "application/x-npy"
EVENTS = "text/event-stream"
OpenFiles = Mapping[str, tuple[str, IO[bytes], str]]


@dataclass(frozen=True)
class Upload:
    """A file to send.

    Attributes:
        name: of the file.
        open: gives it, ready to be read from its start, however often.
        media_type: what it holds.
    """

    name: str
    open: Callable[[], IO[bytes]]
    media_type: str


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and the reader of its answer.

    Attributes:
        method, path: of the route, below the base URL.
        read: makes the result from a successful response whose body is there.
        body: encoded as JSON; arrays become lists.
        content, media_type: or these bytes instead.
        files: or these parts of a multipart form, with ``form``.
        accept: media types of the answer, best first.
        idempotency_key: one for all attempts.
        repeatable: sending it twice does no harm.
        redirected: the service may send elsewhere for the answer: to the store that has it.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    query: Mapping[str, str | int | float] = field(default_factory=dict)
    body: Any = None
    content: bytes | None = None
    media_type: str = JSON
    files: Mapping[str, Upload] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    repeatable: bool = True
    redirected: bool = False

    def then(self, change: Callable[[T], U]) -> Call[U]:
        """The same request with a changed result."""
        read = self.read
        return replace(self, read=lambda response: change(read(response)))  # type: ignore[arg-type, return-value]


@dataclass(frozen=True)
class Config:
    """What all requests of one client share.

    Attributes:
        base_url: scheme, host, port and, behind a proxy, a path.
        api_key: sent as ``Authorization: Bearer``.
        timeout: seconds for one attempt to be answered (None: forever).
        retries: further attempts after a failure that may pass.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float | None = 60.0
    retries: int = 3
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, not {self.base_url!r}")
        if self.retries < 0 or (self.timeout is not None and not self.timeout > 0):
            raise ValueError("retries must be at least 0, timeout positive or None")


CONNECT_SECONDS = 10.0


@contextmanager
def opened(call: Call[Any]) -> Iterator[OpenFiles]:
    """The files of a call, open for as long as it takes."""
    with ExitStack() as stack:
        yield {
            name: (upload.name, stack.enter_context(upload.open()), upload.media_type)
            for name, upload in call.files.items()
        }


def build_request(config: Config, call: Call[Any], files: OpenFiles) -> httpx2.Request:
    """The HTTP request of one attempt."""
    headers = {"User-Agent": f"anglewise-client/{__version__}", "Accept": f"{call.accept}, {PROBLEM};q=0.5"}
    headers |= {**config.headers, **call.headers}
    if config.api_key:
        headers["Authorization"] = f"Bearer {config.api_key}"
    content = call.content
    if call.body is not None:
        content = encode(call.body)
    if content is not None:
        headers["Content-Type"] = call.media_type
    connect = CONNECT_SECONDS if config.timeout is None else min(CONNECT_SECONDS, config.timeout)
    return httpx2.Request(
        call.method,
        config.base_url.rstrip("/") + call.path,
        params=dict(call.query) or None,
        headers=headers,
        content=content,
        files=dict(files) or None,
        data=dict(call.form) or None,
        extensions={"timeout": httpx2.Timeout(config.timeout, connect=connect).as_dict()},
    )


def encode(body: Any) -> bytes:
    """JSON of a body; NaN stays NaN, for the service names the cell that has it."""
    return pydantic_core.to_json(body, inf_nan_mode="constants", exclude_none=False, fallback=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot be sent as JSON: {type(value).__name__}")


def new_key() -> str:
    """An idempotency key."""
    return uuid.uuid4().hex


def counted(value: float) -> int | str:
    """A number of negatives as the service writes it.

    >>> counted(256), counted(float("inf"))
    (256, 'infinite')
    """
    return "infinite" if math.isinf(value) else int(value)
