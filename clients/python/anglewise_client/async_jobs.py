"""Jobs and data sets of an `AsyncClient`."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

import httpx2

from anglewise_client._call import Call
from anglewise_client._methods import async_method, named
from anglewise_client._progress import progress_bar
from anglewise_client._response import transport_error
from anglewise_client._waiting import NOTHING_MORE, PATIENCE, Following, Waiting, passing
from anglewise_client.calls import computations, training
from anglewise_client.calls import jobs as calls
from anglewise_client.calls.deferred import as_job
from anglewise_client.errors import AnglewiseError, UnexpectedAnswer, WaitTimeout
from anglewise_client.job_models import (
    Event,
    JobEmbeddings,
    JobKind,
    JobMetrics,
    JobReason,
    JobRecord,
    Progress,
    Report,
    State,
)
from anglewise_client.jobs import finished

if TYPE_CHECKING:
    from anglewise_client._answer import Answer
    from anglewise_client.async_client import AsyncClient

P = ParamSpec("P")


class AsyncJob:
    """`anglewise_client.jobs.Job` for asyncio.

    Attributes:
        record: as last seen; `reload` looks again.
    """

    def __init__(self, client: AsyncClient, record: JobRecord) -> None:
        self._client = client
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> State:
        """As last seen."""
        return self.record.state

    @property
    def progress(self) -> Progress | None:
        """As last seen."""
        return self.record.progress

    @property
    def reason(self) -> JobReason | None:
        """Why it ended, as last seen."""
        return self.record.reason

    async def reload(self) -> JobRecord:
        """Look again."""
        self.record = await self._client.send(calls.get_job(self.id))
        return self.record

    async def wait(self, progress: bool = True, timeout: float | None = None) -> JobRecord:
        """Wait until it has succeeded, also while the service restarts.

        Args and errors are those of `anglewise_client.jobs.Job.wait`.
        """
        waiting = Waiting.begin(timeout, time.monotonic())
        with progress_bar(progress) as show:
            while not self.record.state.terminal:
                show(self.record)
                silence = await self._look(waiting)
                if self.record.state.terminal:
                    break
                pause = waiting.pause(time.monotonic())
                if pause is None:
                    if timeout is None and silence is not None:
                        raise silence
                    raise WaitTimeout(self.record, f"job {self.id} is {self.state} after {timeout} s")
                await self._client._sleep(pause)
            show(self.record)
        return finished(self.record)

    async def _look(self, waiting: Waiting) -> AnglewiseError | None:
        """Reload once; what kept the service from answering, if it will pass."""
        seconds = waiting.request_seconds(time.monotonic())
        patient = self._client.with_options(retries=0, timeout=seconds)
        try:
            self.record = await patient.send(calls.get_job(self.id))
        except AnglewiseError as error:
            if not passing(error):
                raise
            return error
        waiting.answered(time.monotonic())
        return None

    async def events(self, after: str | None = None) -> AsyncIterator[Event]:
        """What happens to it, until it has ended; connections that break are taken up where they broke.

        Args and errors are those of `anglewise_client.jobs.Job.events`.
        """
        following, heard = Following(after), time.monotonic()
        while True:
            following.connecting()
            failure: AnglewiseError | None = None
            opened = False
            try:
                async with self._client.stream(calls.job_events(self.id, following.last_id)) as response:
                    opened = True
                    if response.status_code == NOTHING_MORE:
                        return
                    async for sent in httpx2.EventSource(response):
                        event = following.take(sent)
                        if event is not None:
                            yield event
                        if following.ended:
                            return
            except httpx2.SSEError as error:
                raise UnexpectedAnswer(str(error)) from error
            except httpx2.TransportError as error:
                failure = transport_error(error, self._client.config.base_url)
            except AnglewiseError as error:
                if not passing(error):
                    raise
                failure = error
            if failure is None and not following.fresh and await self._has_ended():
                return
            if opened:
                heard = time.monotonic()
            elif failure is not None and time.monotonic() - heard > PATIENCE:
                raise failure
            await self._client._sleep(following.pause())

    async def _has_ended(self) -> bool:
        """Whether it is known to have ended."""
        try:
            return (await self.reload()).state.terminal
        except AnglewiseError as error:
            if not passing(error):
                raise
            return False

    async def result(self, *, full: bool = False) -> Answer:
        """What it computed: the answer of the synchronous route, or the summary of a training.

        Args:
            full: fetch whole arrays however large they are, where the job has left them.

        Raises:
            Conflict: it has not succeeded.
        """
        return await self._client.send(calls.job_result(self.id, self.record.kind, full))

    async def metrics(self) -> JobMetrics:
        """What a training has logged so far."""
        return await self._client.send(calls.job_metrics(self.id))

    async def embeddings(self) -> JobEmbeddings:
        """Embeddings that a training left."""
        return await self._client.send(calls.job_embeddings(self.id))

    async def checkpoint(self, path: str | os.PathLike[str]) -> Path:
        """Write the parameters that a training left to a file."""
        target = Path(path)
        data: bytes = await self._client.send(calls.job_checkpoint(self.id))
        target.write_bytes(data)
        return target

    async def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Write any of the files in ``record.artifacts`` to this path."""
        target = Path(path)
        data: bytes = await self._client.send(calls.job_artifact(self.id, name))
        target.write_bytes(data)
        return target

    async def spec(self) -> dict[str, Any]:
        """What was asked for, with all defaults."""
        return await self._client.send(calls.job_spec(self.id))

    async def report(self) -> Report:
        """Report of a training."""
        return await self._client.send(calls.job_report(self.id))

    async def cancel(self) -> JobRecord:
        """Ask to stop it. It is over when its state is ``cancelled``."""
        self.record = await self._client.send(calls.cancel_job(self.id))
        return self.record

    async def delete(self) -> None:
        """Remove it, once it has ended."""
        await self._client.send(calls.delete_job(self.id))

    def __repr__(self) -> str:
        return repr(self.record).replace("JobRecord(", "AsyncJob(", 1)

    def _repr_html_(self) -> str:
        return self.record._repr_html_().replace("JobRecord", "AsyncJob", 1)


class async_job_method(Generic[P]):  # noqa: N801 (used like a decorator)
    """A coroutine method that submits what ``build`` makes of its arguments and returns the job."""

    def __init__(self, build: Callable[P, Call[JobRecord]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, jobs: AsyncJobs, owner: object = None) -> Callable[P, Coroutine[Any, Any, AsyncJob]]:
        async def submit(*args: P.args, **kwargs: P.kwargs) -> AsyncJob:
            return AsyncJob(jobs.client, await jobs.send(self.build(*args, **kwargs)))

        return named(submit, self.build, "AsyncJob")


class AsyncJobs:
    """Long computations and trainings of one service."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.send = client.send

    submit = async_job_method(calls.submit)
    train = async_job_method(training.train)
    optimal_geometry = async_job_method(as_job(computations.optimal_geometry))
    best_geometry = async_job_method(as_job(computations.best_geometry))
    collapse_threshold = async_job_method(as_job(computations.collapse_threshold))
    collapse_map = async_job_method(as_job(computations.collapse_map))
    realizability = async_job_method(as_job(computations.realizability))
    weights = async_job_method(as_job(computations.weights))
    diagnose = async_job_method(as_job(computations.diagnose))
    list = async_method(calls.list_jobs)

    async def get(self, id: str) -> AsyncJob:
        """The job with this id."""
        return AsyncJob(self.client, await self.send(calls.get_job(id)))

    async def iterate(
        self, *, state: State | str | None = None, kind: JobKind | str | None = None
    ) -> AsyncIterator[AsyncJob]:
        """All jobs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.send(calls.list_jobs(cursor=cursor, state=state, kind=kind))
            for record in page.items:
                yield AsyncJob(self.client, record)
            cursor = page.next_cursor
            if cursor is None:
                return


class AsyncDatasets:
    """Data that one service keeps for trainings."""

    def __init__(self, client: AsyncClient) -> None:
        self.send = client.send

    create = async_method(calls.create_dataset)
    list = async_method(calls.list_datasets)
    get = async_method(calls.get_dataset)
    delete = async_method(calls.delete_dataset)
