"""The queue, against a real server that is stopped, killed and emptied."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_helpers import wait_until

from jobs.broker import BrokerUnavailable, connect
from jobs.ids import new_job_id
from jobs.queue import TASK, Queue, celery_app
from jobs.valkey import Valkey


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A server that a test may do anything to."""
    server = Valkey(tmp_path_factory.mktemp("v"))
    server.start()
    yield server
    server.stop()


def test_jobs_that_were_rung_for_wait(queue: Queue) -> None:
    assert queue.waiting_ids() == set()
    first, second = new_job_id(), new_job_id()
    for job_id in (first, second, first):
        queue.ring(job_id)
    assert queue.waiting_ids() == {first, second}
    assert queue.length() == 3


def test_messages_of_others_are_passed_over(queue: Queue, broker_url: str) -> None:
    other = connect(broker_url)
    other.lpush("anglewise.work", b"not even JSON", b'{"headers": {}}')
    other.close()
    assert queue.waiting_ids() == set()


def test_a_worker_gets_what_was_rung(broker_url: str, queue: Queue) -> None:
    app = celery_app(broker_url)
    message = None
    queue.ring(job_id := new_job_id())
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(app.conf.task_queues[0])
        message = simple.get(timeout=10)
        assert message.headers["task"] == TASK
        assert message.payload[0] == [job_id]
        assert message.content_type == "application/json"
        message.ack()
        simple.close()
    assert queue.waiting_ids() == set()
    app.close()


def test_ringing_works_again_after_the_server_was_killed(server: Valkey) -> None:
    queue = Queue(server.url)
    queue.ring(kept := new_job_id())
    wait_until(lambda: _on_disk(server, kept))
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    with pytest.raises(BrokerUnavailable):
        queue.ring(new_job_id())
    with pytest.raises(BrokerUnavailable):
        queue.waiting_ids()
    server.start()
    queue.ring(later := new_job_id())
    assert queue.waiting_ids() == {kept, later}
    queue.close()


def _on_disk(server: Valkey, job_id: str) -> bool:
    files = (server.folder / "appendonlydir").glob("*.incr.aof")
    return any(job_id.encode() in file.read_bytes() for file in files)


def test_ringing_does_not_wait_for_a_server_that_hangs(server: Valkey) -> None:
    queue = Queue(server.url)
    queue.ring(new_job_id())
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerUnavailable):
            queue.ring(new_job_id())
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    queue.ring(job_id := new_job_id())
    assert job_id in queue.waiting_ids()
    queue.close()


def test_a_server_that_forgot_everything_takes_new_messages(queue: Queue, broker_url: str) -> None:
    queue.ring(new_job_id())
    other = connect(broker_url)
    other.flushall()
    other.close()
    queue.ring(job_id := new_job_id())
    assert queue.waiting_ids() == {job_id}


def test_many_threads_ring_at_once(queue: Queue) -> None:
    ids = [new_job_id() for _ in range(200)]
    threads = [
        threading.Thread(target=lambda part: [queue.ring(job_id) for job_id in part], args=(ids[start::8],))
        for start in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.waiting_ids() == set(ids)
    assert queue.length() == 200


def test_only_json_is_read(broker_url: str, tmp_path: Path) -> None:
    app = celery_app(broker_url)
    assert list(app.conf.accept_content) == ["json"]
    assert app.conf.result_backend is None
    app.close()
