"""Whether the service lives, and whether it can compute."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from jobs.broker import BrokerUnavailable
from jobs.computations.schemas import Answer
from jobs.problems import Problem
from service.deps import EngineDep
from service.job_desk import JobDesk
from service.job_service import JobService
from service.problems import problem_responses

router = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


class Readiness(Answer):
    status: Literal["ok"]
    workers: int = Field(description="solver processes")
    broker: Literal["ok", "off"] = Field(description="off: jobs are")
    store: Literal["ok", "off"]
    job_workers: int | None = Field(description="processes that run jobs; null where jobs are off")


CHECK_SECONDS = 3.0
RETRY_AFTER = {"Retry-After": "1"}


@router.get("/health/live", operation_id="health_live", summary="The process answers")
async def live() -> Health:
    """Answers at once, whatever is being computed."""
    return Health(status="ok")


@router.get(
    "/health/ready",
    operation_id="health_ready",
    summary="Computations can be answered, and jobs done",
    responses=problem_responses("not_ready"),
)
async def ready(request: Request, engine: EngineDep) -> Readiness:
    """200 once a solver process has loaded its compiled code; 503 before, and while all are down.

    Where jobs are on, also 503 while the broker or the store does not answer, or no worker is alive; the
    problem says which."""
    workers = len(engine.pool.pids)
    if workers == 0:
        state = "solver processes do not start; see the log" if engine.pool.broken else "starting"
        raise Problem("not_ready", state, headers=RETRY_AFTER)
    service = cast("JobService | None", request.state.jobs)
    if service is None:
        return Readiness(status="ok", workers=workers, broker="off", store="off", job_workers=None)
    job_workers = await _require_parts(service.desk)
    return Readiness(status="ok", workers=workers, broker="ok", store="ok", job_workers=job_workers)


async def _require_parts(desk: JobDesk) -> int:
    """Ask all parts at once; the number of workers.

    Raises:
        Problem: not_ready, naming each part that does not answer.
    """
    workers, _ = found = await asyncio.gather(
        _within(desk.run(desk.live.workers)), _within(desk.run(desk.store.check)), return_exceptions=True
    )
    down = [name for name, result in zip(("broker", "store"), found, strict=True) if _failed(result)]
    if not isinstance(workers, BaseException) and not workers:
        down.append("job workers")
    if down:
        raise Problem("not_ready", f"down: {', '.join(down)}", headers=RETRY_AFTER)
    return len(cast("list[Any]", workers))


async def _within(check: Any) -> Any:
    async with asyncio.timeout(CHECK_SECONDS):
        return await check


def _failed(result: Any) -> bool:
    """Whether a part does not answer; errors of another kind are errors."""
    if isinstance(result, (BrokerUnavailable, Problem, TimeoutError)):
        return True
    if isinstance(result, BaseException):
        raise result
    return False


@router.head("/health/live", include_in_schema=False)
async def live_head(request: Request) -> Health:
    return await live()


@router.head("/health/ready", include_in_schema=False)
async def ready_head(request: Request, engine: EngineDep) -> Readiness:
    return await ready(request, engine)
