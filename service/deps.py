"""Dependencies of routes, as names that read well in their signatures."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from fastapi import Depends
from starlette.requests import Request

from jobs.problems import Problem
from service.cache import AnswerCache
from service.dataset_shelf import Shelf
from service.engine import Engine
from service.job_desk import JobDesk
from service.job_service import JobService
from service.metrics import Metrics
from service.settings import Settings
from service.upload import Uploads


class State(TypedDict):
    """What the application's lifespan provides."""

    engine: Engine
    settings: Settings
    pictures: AnswerCache
    uploads: Uploads
    jobs: JobService | None
    shelf: Shelf | None
    metrics: Metrics


def _engine(request: Request) -> Engine:
    return cast(Engine, request.state.engine)


def _pictures(request: Request) -> AnswerCache:
    return cast(AnswerCache, request.state.pictures)


def _jobs(request: Request) -> JobService:
    service = cast("JobService | None", request.state.jobs)
    if service is None:
        raise Problem("jobs_unavailable", "jobs are off: no broker is set (ANGLEWISE_BROKER_URL)")
    return service


def _desk(request: Request) -> JobDesk:
    return _jobs(request).desk


def _shelf(request: Request) -> Shelf:
    shelf = cast("Shelf | None", request.state.shelf)
    if shelf is None:
        raise Problem("jobs_unavailable", "nothing is stored: no broker is set (ANGLEWISE_BROKER_URL)")
    return shelf


def _metrics(request: Request) -> Metrics:
    return cast(Metrics, request.state.metrics)


PicturesDep = Annotated[AnswerCache, Depends(_pictures)]
EngineDep = Annotated[Engine, Depends(_engine)]
JobsDep = Annotated[JobService, Depends(_jobs)]
DeskDep = Annotated[JobDesk, Depends(_desk)]
ShelfDep = Annotated[Shelf, Depends(_shelf)]
MetricsDep = Annotated[Metrics, Depends(_metrics)]
