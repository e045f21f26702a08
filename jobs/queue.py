"""The queue of jobs that wait, by Celery: a message is a doorbell that carries the id of a job.

A message may get lost or come twice; the log of the job decides whether there is something to do.
"""

from __future__ import annotations

import re
from typing import Any, cast

from celery import Celery
from kombu.entity import Exchange
from kombu.entity import Queue as KombuQueue

from jobs.broker import ANSWER_SECONDS, CONNECT_SECONDS, connect, translated
from jobs.ids import JOB_ID

TASK = "anglewise.work"
"""Name of the only task. Its argument is the id of a job."""
QUEUE = "anglewise.work"
"""Name of the queue, and of its list in Redis."""
IN_MESSAGE = re.compile(JOB_ID.pattern.encode())
"""Celery repeats the arguments in the head of a message, in plain text."""


def celery_app(broker_url: str, answer_seconds: float = 5.0) -> Celery:
    """The Celery application of workers and of those who ring for them; it has no tasks yet.

    Args:
        answer_seconds: after which a connection counts as broken; workers wait up to 1 s for a message.
    """
    app = Celery("anglewise", broker=celery_url(broker_url), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # The anonymous exchange needs no table of bindings, which a broker that lost its memory would lack.
        task_queues=[KombuQueue(QUEUE, Exchange(""), routing_key=QUEUE)],  # type: ignore[no-untyped-call]
        task_default_queue=QUEUE,
        task_default_exchange="",
        task_default_routing_key=QUEUE,
        task_acks_late=False,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=transport_options(answer_seconds),
        enable_utc=True,
    )
    return app


def transport_options(answer_seconds: float) -> dict[str, Any]:
    """Short times everywhere, and no record of messages that were taken.

    Such a record would give lost messages back, which keepers see to sooner; and an acknowledgment that fails
    because Redis was started anew would leave a worker without messages for ever.
    """
    return {
        "ack_emulation": False,
        "priority_steps": [0],
        "max_retries": 0,  # of a connection; who needs one decides whether to try again
        "socket_timeout": answer_seconds,
        "socket_connect_timeout": CONNECT_SECONDS,
        "health_check_interval": 5,
    }


def celery_url(broker_url: str) -> str:
    """Celery's spelling of an address.

    >>> celery_url("unix:///run/valkey.sock")
    'redis+socket:///run/valkey.sock'
    """
    scheme, separator, rest = broker_url.partition("://")
    return "redis+socket" + separator + rest if scheme == "unix" else broker_url


class Queue:
    """Rings for workers. Usable from several threads.

    Every method raises `BrokerUnavailable` within about two seconds when Redis fails.
    """

    def __init__(self, broker_url: str) -> None:
        self.app = celery_app(broker_url, ANSWER_SECONDS)
        self._redis = connect(broker_url)

    def ring(self, job_id: str) -> None:
        """Tell the workers that a job waits."""
        with translated():
            self.app.send_task(TASK, args=[job_id], queue=QUEUE, retry=False, ignore_result=True)

    def waiting_ids(self) -> set[str]:
        """Of the jobs whose messages no worker has taken yet."""
        with translated():
            messages = cast(list[bytes], self._redis.lrange(QUEUE, 0, -1))
        found = (IN_MESSAGE.search(message) for message in messages)
        return {match[0].decode() for match in found if match is not None}

    def length(self) -> int:
        """Messages that no worker has taken yet; a job may have several."""
        with translated():
            return self._redis.llen(QUEUE)

    def close(self) -> None:
        """Close all connections."""
        self.app.close()
        self._redis.close()
