"""Whether the service lives, and whether it can compute."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request

from jobs.computations.schemas import Answer
from jobs.problems import Problem
from service.deps import EngineDep
from service.problems import problem_responses

router = APIRouter(tags=["health"])


class Health(Answer):
    status: Literal["ok"]


class Readiness(Answer):
    status: Literal["ok"]
    workers: int


@router.get("/health/live", operation_id="health_live", summary="The process answers")
async def live() -> Health:
    """Answers at once, whatever is being computed."""
    return Health(status="ok")


@router.get(
    "/health/ready",
    operation_id="health_ready",
    summary="Computations can be answered",
    responses=problem_responses("not_ready"),
)
async def ready(engine: EngineDep) -> Readiness:
    """200 once a solver process has loaded its compiled code; 503 before, and while all are down."""
    workers = len(engine.pool.pids)
    if workers == 0:
        state = "solver processes do not start; see the log" if engine.pool.broken else "starting"
        raise Problem("not_ready", state, headers={"Retry-After": "1"})
    return Readiness(status="ok", workers=workers)


@router.head("/health/live", include_in_schema=False)
async def live_head(request: Request) -> Health:
    return await live()


@router.head("/health/ready", include_in_schema=False)
async def ready_head(engine: EngineDep) -> Readiness:
    return await ready(engine)
