"""The application. Nothing is built at import: ``create_app`` wires it, the lifespan starts the solvers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from anglewise.version import __version__
from jobs.problems import Problem
from service import (
    collapse_map,
    collapse_threshold,
    datasets,
    diagnose,
    docs_page,
    events_stream,
    health,
    job_files,
    jobs,
    metrics_page,
    optimal_geometry,
    picture_page,
    realizability,
    weights,
)
from service.cache import AnswerCache
from service.dataset_shelf import open_shelf
from service.deps import State
from service.document import install
from service.engine import Engine
from service.job_service import job_service
from service.metrics import CountRequests, Metrics
from service.middleware import ApiKeys, RequestIdentity
from service.pool import SolverPool
from service.problems import handle_exception
from service.rates import KeyLimits
from service.settings import Settings
from service.upload import Uploads

ROUTERS = (
    optimal_geometry.router,
    collapse_threshold.router,
    collapse_map.router,
    realizability.router,
    weights.router,
    diagnose.router,
    datasets.router,
    picture_page.router,
    jobs.router,
    job_files.router,
    events_stream.router,
    health.router,
    metrics_page.router,
    docs_page.router,
)


def create_app(settings: Settings) -> FastAPI:
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with (
            SolverPool(settings.limits, settings.workers, settings.max_waiting) as pool,
            job_service(settings) as jobs_of_app,
        ):
            engine = Engine(settings.limits, pool, AnswerCache(settings.cache_bytes))
            yield State(
                engine=engine,
                settings=settings,
                pictures=AnswerCache(settings.picture_bytes),
                uploads=Uploads(settings),
                jobs=jobs_of_app,
                shelf=open_shelf(settings),
                metrics=metrics,
            )

    app = FastAPI(
        title="anglewise",
        version=__version__,
        summary="The optimal representation geometry of contrastive learning, with certificates",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(Problem, handle_exception)
    app.add_exception_handler(HTTPException, handle_exception)
    app.add_exception_handler(RequestValidationError, handle_exception)
    if settings.api_keys:
        app.add_middleware(
            KeyLimits, per_minute=settings.requests_per_minute, at_a_time=settings.concurrent_requests
        )
        app.add_middleware(ApiKeys, digests=settings.api_keys)
    app.add_middleware(RequestIdentity)
    app.add_middleware(CountRequests, metrics=metrics)
    install(app)
    return app
