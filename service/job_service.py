"""Everything about jobs that lives as long as the application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from service.event_hub import EventHub
from service.job_desk import JobDesk
from service.job_intake import Intake
from service.settings import Settings


@dataclass(frozen=True)
class JobService:
    desk: JobDesk
    intake: Intake
    hub: EventHub


@asynccontextmanager
async def job_service(settings: Settings) -> AsyncIterator[JobService | None]:
    """None where jobs are off."""
    if not settings.jobs_on:
        yield None
        return
    desk = JobDesk(settings)
    try:
        async with EventHub(desk) as hub:
            yield JobService(desk, Intake(desk), hub)
    finally:
        desk.close()
