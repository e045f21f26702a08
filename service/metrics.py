"""Numbers about the running service, for Prometheus."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0)
UNKNOWN_ROUTE = "none"


class Metrics:
    """One for the application; numbers of other things than requests are set when they are asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "anglewise_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "anglewise_request_seconds",
            "Time to the end of the answer",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.running = Gauge("anglewise_requests_running", "Requests being answered", registry=self.registry)
        self.submitted = Counter(
            "anglewise_jobs_submitted", "Jobs accepted here", ("kind",), registry=self.registry
        )
        self.jobs = Gauge(
            "anglewise_jobs", "Jobs that have not ended, by state", ("state",), registry=self.registry
        )
        self.queue = Gauge(
            "anglewise_job_queue_length", "Messages that no worker has taken", registry=self.registry
        )
        self.workers = Gauge("anglewise_job_workers", "Workers that are alive", registry=self.registry)
        self.streams = Gauge("anglewise_event_streams", "Event streams that are open", registry=self.registry)
        self.up = Gauge(
            "anglewise_up", "Whether a part of the service answers", ("part",), registry=self.registry
        )
        self.solvers = Gauge("anglewise_solvers", "Solver processes that are alive", registry=self.registry)
        self.waiting = Gauge(
            "anglewise_solver_queue_length", "Computations that wait for a solver", registry=self.registry
        )


class CountRequests:
    """Counts requests and measures their time, by the pattern of their address."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0
        started = time.monotonic()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.running.inc()
        try:
            await self.app(scope, receive, noting)
        finally:
            self.metrics.running.dec()
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            method = scope["method"] if route != UNKNOWN_ROUTE else UNKNOWN_ROUTE
            self.metrics.requests.labels(method, route, str(status or "none")).inc()
            self.metrics.seconds.labels(method, route).observe(time.monotonic() - started)
