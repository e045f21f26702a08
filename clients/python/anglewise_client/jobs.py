"""Jobs of a `Client`: submit them, wait for them, read what they left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

import httpx2

from anglewise_client._call import Call
from anglewise_client._methods import method, named
from anglewise_client._progress import progress_bar
from anglewise_client._response import transport_error
from anglewise_client._waiting import NOTHING_MORE, PATIENCE, Following, Waiting, passing
from anglewise_client.calls import computations, training
from anglewise_client.calls import jobs as calls
from anglewise_client.calls.deferred import as_job
from anglewise_client.errors import AnglewiseError, JobCancelled, JobFailed, UnexpectedAnswer, WaitTimeout
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

if TYPE_CHECKING:
    from anglewise_client._answer import Answer
    from anglewise_client.client import Client

P = ParamSpec("P")


class Job:
    """One job of a service.

    Attributes:
        record: as last seen; `reload` looks again.
    """

    def __init__(self, client: Client, record: JobRecord) -> None:
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

    def reload(self) -> JobRecord:
        """Look again."""
        self.record = self._client.send(calls.get_job(self.id))
        return self.record

    def wait(self, progress: bool = True, timeout: float | None = None) -> JobRecord:
        """Wait until it has succeeded, also while the service restarts.

        Args:
            progress: show a bar, in a terminal or a notebook.
            timeout: seconds; None: as long as the service can be reached.

        Raises:
            JobFailed, JobCancelled: it ended in another way.
            WaitTimeout: it has not ended in time; it goes on.
            NoService: without a timeout: nothing answered for ten minutes.
        """
        waiting = Waiting.begin(timeout, time.monotonic())
        with progress_bar(progress) as show:
            while not self.record.state.terminal:
                show(self.record)
                silence = self._look(waiting)
                if self.record.state.terminal:
                    break
                pause = waiting.pause(time.monotonic())
                if pause is None:
                    if timeout is None and silence is not None:
                        raise silence
                    raise WaitTimeout(self.record, f"job {self.id} is {self.state} after {timeout} s")
                self._client._sleep(pause)
            show(self.record)
        return finished(self.record)

    def _look(self, waiting: Waiting) -> AnglewiseError | None:
        """Reload once; what kept the service from answering, if it will pass."""
        seconds = waiting.request_seconds(time.monotonic())
        patient = self._client.with_options(retries=0, timeout=seconds)
        try:
            self.record = patient.send(calls.get_job(self.id))
        except AnglewiseError as error:
            if not passing(error):
                raise
            return error
        waiting.answered(time.monotonic())
        return None

    def events(self, after: str | None = None) -> Iterator[Event]:
        """What happens to it, until it has ended; connections that break are taken up where they broke.

        Args:
            after: id of the last event already known; None: from the beginning.

        Raises:
            NoService: nothing answered for ten minutes.
        """
        following, heard = Following(after), time.monotonic()
        while True:
            following.connecting()
            failure: AnglewiseError | None = None
            opened = False
            try:
                with self._client.stream(calls.job_events(self.id, following.last_id)) as response:
                    opened = True
                    if response.status_code == NOTHING_MORE:
                        return
                    for sent in httpx2.EventSource(response):
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
            if failure is None and not following.fresh and self._has_ended():
                return
            if opened:
                heard = time.monotonic()
            elif failure is not None and time.monotonic() - heard > PATIENCE:
                raise failure
            self._client._sleep(following.pause())

    def _has_ended(self) -> bool:
        """Whether it is known to have ended."""
        try:
            return self.reload().state.terminal
        except AnglewiseError as error:
            if not passing(error):
                raise
            return False

    def result(self, *, full: bool = False) -> Answer:
        """What it computed: the answer of the synchronous route, or the summary of a training.

        Args:
            full: fetch whole arrays however large they are, where the job has left them.

        Raises:
            Conflict: it has not succeeded.
        """
        return self._client.send(calls.job_result(self.id, self.record.kind, full))

    def metrics(self) -> JobMetrics:
        """What a training has logged so far."""
        return self._client.send(calls.job_metrics(self.id))

    def embeddings(self) -> JobEmbeddings:
        """Embeddings that a training left."""
        return self._client.send(calls.job_embeddings(self.id))

    def checkpoint(self, path: str | os.PathLike[str]) -> Path:
        """Write the parameters that a training left to a file."""
        target = Path(path)
        target.write_bytes(self._client.send(calls.job_checkpoint(self.id)))
        return target

    def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Write any of the files in ``record.artifacts`` to this path."""
        target = Path(path)
        data: bytes = self._client.send(calls.job_artifact(self.id, name))
        target.write_bytes(data)
        return target

    def spec(self) -> dict[str, Any]:
        """What was asked for, with all defaults."""
        return self._client.send(calls.job_spec(self.id))

    def report(self) -> Report:
        """Report of a training."""
        return self._client.send(calls.job_report(self.id))

    def cancel(self) -> JobRecord:
        """Ask to stop it. It is over when its state is ``cancelled``."""
        self.record = self._client.send(calls.cancel_job(self.id))
        return self.record

    def delete(self) -> None:
        """Remove it, once it has ended."""
        self._client.send(calls.delete_job(self.id))

    def __repr__(self) -> str:
        return repr(self.record).replace("JobRecord(", "Job(", 1)

    def _repr_html_(self) -> str:
        return self.record._repr_html_().replace("JobRecord", "Job", 1)


class job_method(Generic[P]):  # noqa: N801 (used like a decorator)
    """A method that submits what ``build`` makes of its arguments and returns the job."""

    def __init__(self, build: Callable[P, Call[JobRecord]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, jobs: Jobs, owner: object = None) -> Callable[P, Job]:
        def submit(*args: P.args, **kwargs: P.kwargs) -> Job:
            return Job(jobs.client, jobs.send(self.build(*args, **kwargs)))

        return named(submit, self.build, "Job")


class Jobs:
    """Long computations and trainings of one service."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.send = client.send

    submit = job_method(calls.submit)
    train = job_method(training.train)
    optimal_geometry = job_method(as_job(computations.optimal_geometry))
    best_geometry = job_method(as_job(computations.best_geometry))
    collapse_threshold = job_method(as_job(computations.collapse_threshold))
    collapse_map = job_method(as_job(computations.collapse_map))
    realizability = job_method(as_job(computations.realizability))
    weights = job_method(as_job(computations.weights))
    diagnose = job_method(as_job(computations.diagnose))
    list = method(calls.list_jobs)

    def get(self, id: str) -> Job:
        """The job with this id."""
        return Job(self.client, self.send(calls.get_job(id)))

    def iterate(
        self, *, state: State | str | None = None, kind: JobKind | str | None = None
    ) -> Iterator[Job]:
        """All jobs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.send(calls.list_jobs(cursor=cursor, state=state, kind=kind))
            yield from (Job(self.client, record) for record in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


def finished(record: JobRecord) -> JobRecord:
    """A record that has succeeded.

    Raises:
        JobFailed, JobCancelled: it has not.
    """
    if record.state is State.CANCELLED:
        raise JobCancelled(record)
    if record.state is State.FAILED:
        raise JobFailed(record)
    return record
