"""Events of jobs: in order, once, from wherever they are, and live."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from job_application import (
    TRAINING,
    application,
    code,
    event_log,
    events_in,
    fail,
    journal_of,
    service_of,
    submit,
    succeed,
)
from service_helpers import wait_until
from starlette.testclient import TestClient

from jobs.events import EventLog, state_events
from jobs.journal import Journal
from jobs.live import Live
from jobs.record import SEQUENCES
from service import event_hub, events_stream
from service.app import create_app
from service.job_events import news
from service.settings import Settings

ENDED = SEQUENCES - 1


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Without a broker."""
    with application(tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture(scope="module")
def told(jobs: TestClient) -> str:
    """An ended job of two attempts, the second of which went on from step 20."""
    job_id, journal = submit(jobs, TRAINING), journal_of(jobs)
    journal.start(job_id, "a")
    log = event_log(jobs, job_id, 1)
    for step in (10, 20, 30):
        log.add("metrics", {"step": step, "values": {"loss": step / 10, "nc1": None}})
    log.flush()
    journal.lose(job_id, 1)
    journal.start(job_id, "b")
    log = event_log(jobs, job_id, 2)
    log.add("resumed", {"step": 20, "attempt": 1})
    for step in (30, 40):
        log.add("metrics", {"step": step, "values": {"loss": step / 10}})
    log.add("log", {"message": "two lines\nof text"})
    log.flush()
    journal.succeed(job_id, 2, [])
    return job_id


class TestReplay:
    def test_in_pieces(self, jobs: TestClient, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = jobs.get(f"/jobs/{told}/events").text
        monkeypatch.setattr(events_stream, "EVENTS_AT_A_TIME", 2)
        assert jobs.get(f"/jobs/{told}/events").text == whole

    def test_everything_in_order(self, jobs: TestClient, told: str) -> None:
        response = jobs.get(f"/jobs/{told}/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        events = events_in(response.text)
        assert [number for _, number, _ in events] == [
            *(0, SEQUENCES, SEQUENCES + 1, SEQUENCES + 2, SEQUENCES + 3, 2 * SEQUENCES - 2),
            *(2 * SEQUENCES + k for k in range(5)),
            2 * SEQUENCES + ENDED,
        ]
        states = [json.loads(data)["state"] for kind, _, data in events if kind == "state"]
        assert states == ["queued", "running", "queued", "running", "succeeded"]
        assert json.loads(events[2][2])["values"] == {"loss": 1.0, "nc1": None}
        assert json.loads(events[-2][2])["message"] == "two lines\nof text"
        assert all("at" in json.loads(data) for *_, data in events)

    @pytest.mark.parametrize("position", range(12))
    def test_goes_on_after_any_event(self, jobs: TestClient, told: str, position: int) -> None:
        events = events_in(jobs.get(f"/jobs/{told}/events").text)
        last = str(events[position][1])
        by_header = jobs.get(f"/jobs/{told}/events", headers={"Last-Event-ID": last})
        by_query = jobs.get(f"/jobs/{told}/events", params={"after": last})
        assert events_in(by_header.text) == events_in(by_query.text) == events[position + 1 :]

    def test_nothing_more(self, jobs: TestClient, told: str) -> None:
        """Browsers connect again after every end, until they get a 204."""
        response = jobs.get(f"/jobs/{told}/events", headers={"Last-Event-ID": str(2 * SEQUENCES + ENDED)})
        assert (response.status_code, response.content) == (204, b"")

    @pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30, "²", "0" * 5000, "0" * 20 + "9" * 40])
    def test_refused(self, jobs: TestClient, told: str, last: str) -> None:
        headers = {"Last-Event-ID": last.encode()}
        assert code(jobs.get(f"/jobs/{told}/events", headers=headers)) == (422, "invalid_input")

    def test_longer_than_the_window(
        self, jobs: TestClient, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = jobs.get(f"/jobs/{told}/events").text
        monkeypatch.setattr(event_hub, "WINDOW", 3)
        assert jobs.get(f"/jobs/{told}/events").text == whole

    def test_ends_with_a_cancelled_job(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        jobs.post(f"/jobs/{job_id}/cancel")
        events = events_in(jobs.get(f"/jobs/{job_id}/events").text)
        assert [json.loads(data)["state"] for *_, data in events] == ["queued", "cancelled"]
        assert json.loads(events[-1][2])["reason"]["code"] == "user"

    def test_leaves_no_reader_behind(self, jobs: TestClient, told: str) -> None:
        jobs.get(f"/jobs/{told}/events")
        assert service_of(jobs).hub.streams == 0

    def test_too_many(self, jobs: TestClient, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(service_of(jobs).hub, "streams", 1_000)
        assert code(jobs.get(f"/jobs/{told}/events")) == (503, "busy")


class TestMetrics:
    def test_no_step_twice(self, jobs: TestClient, told: str) -> None:
        assert jobs.get(f"/jobs/{told}/metrics").json() == {
            "series": {
                "loss": [{"step": step, "value": step / 10} for step in (10, 20, 30, 40)],
                "nc1": [{"step": 10, "value": None}, {"step": 20, "value": None}],
            }
        }

    def test_none_yet(self, jobs: TestClient) -> None:
        assert jobs.get(f"/jobs/{submit(jobs)}/metrics").json() == {"series": {}}


@pytest.fixture
def connected(tmp_path: Path, broker_url: str) -> Iterator[TestClient]:
    with application(tmp_path, broker_url=broker_url) as client:
        yield client


class TestOrder:
    """Workers show events before they store them, and Redis may miss some."""

    @pytest.fixture
    def running(self, connected: TestClient) -> tuple[Any, str, EventLog, Live]:
        desk = service_of(connected).desk
        job_id = submit(connected)
        desk.journal.start(job_id, "a worker")
        return desk, job_id, event_log(connected, job_id, 1), desk.live

    def numbers(self, desk: Any, job_id: str, after: int = 0, **how: bool) -> list[int]:
        return [event.sequence - SEQUENCES for event in news(desk, job_id, after, **how).events]

    def test_fresh_events_are_known_at_once(self, running: Any) -> None:
        desk, job_id, log, live = running
        live.publish(job_id, [log.add("log", {"message": "a"}), log.add("log", {"message": "b"})])
        assert self.numbers(desk, job_id) == [0, 1, 2]
        assert self.numbers(desk, job_id, SEQUENCES + 1) == [2]

    def test_missing_ones_are_waited_for(self, running: Any) -> None:
        desk, job_id, log, live = running
        live.publish(job_id, [log.add("log", {"message": "a"})])
        log.add("log", {"message": "never shown"})
        live.publish(job_id, [log.add("log", {"message": "c"})])
        found = news(desk, job_id, 0)
        assert not found.complete
        assert self.numbers(desk, job_id) == [0, 1]
        assert self.numbers(desk, job_id, patient=False) == [0, 1, 3]
        log.flush()
        assert self.numbers(desk, job_id) == [0, 1, 2, 3]

    def test_what_an_ended_attempt_stored_is_not_skipped(self, running: Any) -> None:
        desk, job_id, log, live = running
        live.publish(job_id, [log.add("log", {"message": "a"})])
        log.add("log", {"message": "only stored"})
        log.flush()
        desk.journal.release(job_id, 1)
        assert self.numbers(desk, job_id, SEQUENCES + 1) == [2, SEQUENCES - 2]

    def test_what_nobody_has_is_left_out_in_the_end(self, running: Any) -> None:
        desk, job_id, log, live = running
        log.add("log", {"message": "lost with its worker"})
        live.publish(job_id, [log.add("log", {"message": "b"})])
        desk.journal.lose(job_id, 1)
        assert self.numbers(desk, job_id) == [0, 2, SEQUENCES - 2]

    def test_a_state_that_is_told_twice_comes_once(self, running: Any) -> None:
        desk, job_id, _, live = running
        live.publish(job_id, state_events(desk.journal.read(job_id)))
        assert self.numbers(desk, job_id) == [0]


class Server:
    """The application behind a real server: streams arrive piece by piece."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        config = uvicorn.Config(
            create_app(settings), port=0, log_level="error", timeout_graceful_shutdown=1, lifespan="on"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started, "started")
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self.journal = Journal(service_store(settings))

    def submit(self) -> str:
        response = self.client.post("/jobs", json=TRAINING)
        assert response.status_code == 202
        return str(response.json()["id"])

    @contextlib.contextmanager
    def stream(self, job_id: str) -> Iterator[Iterator[str]]:
        """The lines of a stream, empty ones left out."""
        with self.client.stream("GET", f"/jobs/{job_id}/events") as response:
            assert response.status_code == 200
            yield (line for line in response.iter_lines() if line)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.client.close()

    def open_streams(self) -> int:
        text = self.client.get("/metrics").text
        return int(float(text.partition("\nanglewise_event_streams ")[2].partition("\n")[0]))


def service_store(settings: Settings) -> Any:
    from jobs.store import ObjectStore

    return ObjectStore(settings.objects_url)


@pytest.fixture(params=["with Redis", "without Redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    url = request.getfixturevalue("broker_url") if request.param == "with Redis" else "unix:///nowhere.sock"
    running = Server(Settings(workers=1, warm_up=False, data_dir=tmp_path, broker_url=url))
    yield running
    running.stop()


def until(lines: Iterator[str], text: str) -> None:
    assert any(text in line for line in lines), text


class TestLive:
    def test_follows_a_job_to_its_end(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_hub, "POLL_SECONDS", 0.1)
        job_id = server.submit()
        with server.stream(job_id) as lines:
            until(lines, '"queued"')
            server.journal.start(job_id, "a worker")
            log = EventLog(server.journal.store, job_id, 1)
            event = log.add("metrics", {"step": 1, "values": {"loss": 0.5}})
            log.flush()
            if server.settings.broker_url != "unix:///nowhere.sock":
                Live(str(server.settings.broker_url)).publish(job_id, [event])
            until(lines, '"running"')
            until(lines, '"loss":0.5')
            server.client.post(f"/jobs/{job_id}/cancel")
            server.journal.succeed(job_id, 1, [])
            until(lines, '"cancelled"')
            assert list(lines) == [f"id: {SEQUENCES + ENDED}"]

    def test_many_watch_one_job(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_hub, "POLL_SECONDS", 0.1)
        job_id = server.submit()
        with contextlib.ExitStack() as streams:
            watching = [streams.enter_context(server.stream(job_id)) for _ in range(5)]
            for lines in watching:
                until(lines, '"queued"')
            assert server.open_streams() == 5
            server.client.post(f"/jobs/{job_id}/cancel")
            for lines in watching:
                until(lines, '"cancelled"')
        wait_until(lambda: server.open_streams() == 0, "no streams")

    def test_ends_when_the_client_leaves(self, server: Server) -> None:
        with server.stream(server.submit()) as lines:
            until(lines, '"queued"')
        wait_until(lambda: server.open_streams() == 0, "the stream is gone")

    def test_heartbeat(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(events_stream, "HEARTBEAT_SECONDS", 0.05)
        with server.stream(server.submit()) as lines:
            until(lines, '"queued"')
            until(lines, ": ping")

    def test_deleted_job(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_hub, "POLL_SECONDS", 0.1)
        job_id = server.submit()
        with server.stream(job_id) as lines:
            until(lines, '"queued"')
            server.client.post(f"/jobs/{job_id}/cancel")
            server.client.delete(f"/jobs/{job_id}")
            list(lines)

    def test_does_not_hold_up_the_end_of_the_server(self, server: Server) -> None:
        with server.stream(server.submit()) as lines:
            until(lines, '"queued"')
            server.server.should_exit = True
            server.thread.join(20)
            assert not server.thread.is_alive()
            list(lines)  # it ends as others do, not in the middle


def test_failed_job_says_why(jobs: TestClient) -> None:
    job_id = submit(jobs)
    fail(jobs, job_id, "no luck")
    kind, number, data = events_in(jobs.get(f"/jobs/{job_id}/events").text)[-1]
    assert (kind, number) == ("state", SEQUENCES + ENDED)
    assert json.loads(data)["reason"] == {"code": "diverged", "message": "no luck"}


def test_succeeded_job_of_no_events(jobs: TestClient) -> None:
    job_id = submit(jobs)
    succeed(jobs, job_id, {"result.json": b"{}"})
    assert len(events_in(jobs.get(f"/jobs/{job_id}/events").text)) == 3
