"""GET /metrics: numbers about this process and its jobs, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from jobs.journal import records
from jobs.problems import Problem
from jobs.states import State
from service.deps import EngineDep, MetricsDep
from service.job_desk import JobDesk
from service.job_service import JobService
from service.metrics import Metrics
from service.problems import problem_responses

router = APIRouter(tags=["health"])

MAX_READ = 2_000
"""Jobs whose state is looked up for one answer."""


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Numbers for Prometheus",
    response_model=None,
    responses={
        200: {
            "description": "The text format of Prometheus",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "anglewise_solvers 2.0\n"}},
        },
        **problem_responses("unauthorized", "too_many_requests"),
    },
)
async def metrics_page(request: Request, engine: EngineDep, metrics: MetricsDep) -> Response:
    """Requests by route and status, their durations, jobs by state, queues, workers, and what answers."""
    metrics.solvers.set(len(engine.pool.pids))
    metrics.waiting.set(engine.pool.waiting)
    service: JobService | None = request.state.jobs
    if service is not None:
        metrics.streams.set(service.hub.streams)
        try:
            await service.desk.run(_measure, service.desk, metrics)
            metrics.up.labels("store").set(1)
        except Problem:
            metrics.up.labels("store").set(0)
    return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _measure(desk: JobDesk, metrics: Metrics) -> None:
    """
    Raises:
        StoreUnavailable
    """
    length, workers = desk.ask_broker(desk.queue.length), desk.workers()
    metrics.up.labels("broker").set(length is not None and workers is not None)
    if length is not None:
        metrics.queue.set(length)
    if workers is not None:
        metrics.workers.set(len(workers))
    states = Counter(record.state for record in records(desk.journal, desk.journal.active_ids()[:MAX_READ]))
    for state in State:
        if not state.terminal:
            metrics.jobs.labels(state.value).set(states[state])
