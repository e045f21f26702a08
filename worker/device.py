"""The worker process of one device: ``python -m worker.device NAME SHARE``.

A Celery worker that does one job at a time in its main thread.  It is told to stop by SIGTERM, or by the end
of the process that started it, and then gives its job back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

from celery import Celery
from celery.worker import state as celery_state
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.broker import BrokerUnavailable
from jobs.computations.limits import Limits
from jobs.journal import Journal
from jobs.live import Live
from jobs.queue import QUEUE, TASK, Queue, celery_app
from jobs.settings import JobSettings
from jobs.store import ObjectStore
from worker.devices import runner_environment, torch_installed
from worker.logs import log_to_stderr
from worker.parent import when_parent_ends
from worker.presence import Presence
from worker.runner_process import RunnerFailed
from worker.supervisor import Supervisor

logger = logging.getLogger("anglewise.worker")

IDLE_EXIT_SECONDS = 1.0
"""A process without a job has nothing to lose: Celery may take so long to stop by itself."""


class WorkerLimits(Limits, BaseSettings):
    """What computations may cost, from the same variables as those of the service."""

    model_config = SettingsConfigDict(env_prefix="ANGLEWISE_", frozen=True, extra="ignore")


def main() -> None:
    device, share = sys.argv[1], int(sys.argv[2])
    log_to_stderr(f"worker {device}")
    settings = JobSettings()
    assert settings.broker_url is not None
    worker_id = f"{socket.gethostname()}:{device}:{os.getpid()}"
    live = Live(settings.broker_url, settings.lease_seconds)
    queue = Queue(settings.broker_url)
    can_train = settings.training and torch_installed()
    supervisor = Supervisor(
        Journal(ObjectStore(settings.objects_url)),
        live,
        queue,
        settings,
        worker_id,
        runner_environment(device, share, os.environ),
        WorkerLimits(),
        can_train,
    )
    _stop_on_signals(supervisor)
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    supervisor.prepare()
    Presence(live, queue, supervisor, settings.heartbeat_seconds, worker_id, device, can_train).start()
    try:
        serve(celery_app(settings.broker_url), supervisor, worker_id)
    finally:
        supervisor.close()
        with contextlib.suppress(BrokerUnavailable):
            live.unregister(worker_id)


def serve(app: Celery, supervisor: Supervisor, worker_id: str) -> None:
    """Take jobs until the supervisor is told to stop."""

    def work(job_id: str) -> None:
        try:
            supervisor.work(job_id)
        except RunnerFailed as error:
            logger.critical("no runner starts: %s", error)
            celery_state.should_stop = 1  # started anew, later, by the node

    app.task(name=TASK)(work)
    app.finalize()
    worker = app.WorkController(
        app=app,
        hostname=worker_id,
        pool_cls="solo",
        concurrency=1,
        queues=[QUEUE],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    sys.exit(worker.exitcode or 0)


def _stop_on_signals(supervisor: Supervisor) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        supervisor.stop()
        celery_state.should_stop = 0

    def leave_when_idle() -> None:
        """Celery does not look up while it waits for a broker that is away."""
        while not supervisor.stopping or supervisor.job is not None:
            time.sleep(0.1)
        time.sleep(IDLE_EXIT_SECONDS)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=leave_when_idle, name="leave", daemon=True).start()


if __name__ == "__main__":
    main()
