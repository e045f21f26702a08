"""Processes of a system, with small stand-ins for broker, service and worker."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_helpers import wait_until

from jobs.data_folder import DataFolder, InUse
from jobs.system import MAX_PAUSE_SECONDS, Part, System
from jobs.valkey import free_port

SERVICE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health/live" else 404); self.end_headers()
    def log_message(self, *values): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SLEEPER = "import time; time.sleep(1000)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code, *map(str, arguments)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path / "data", "http://127.0.0.1:1")
    yield folder
    folder.close()


class Running:
    """A system whose ``run`` goes on in the main thread until a watcher in another one has seen enough."""

    def __init__(
        self, folder: DataFolder, service: str = SERVICE, broker: str = SLEEPER, worker: str = SLEEPER
    ) -> None:
        self.port = free_port()
        self.failed = 0
        self.broker = Part("the broker", lambda: python(broker), failed=self._count)
        self.service = Part("the service", lambda: python(service, self.port))
        self.worker = Part("the worker", lambda: python(worker))
        self.system = System(
            folder,
            broker=self.broker,
            service=self.service,
            worker=self.worker,
            address=("127.0.0.1", self.port),
            announce="ready",
        )
        self.stopping = threading.Event()

    def _count(self) -> None:
        self.failed += 1

    def watch(self, watcher: object = None) -> int:
        """Run until ``watcher`` returns; what it raises is raised."""
        raised: list[BaseException] = []

        def look() -> None:
            try:
                wait_until(lambda: self.worker.process is not None)
                if callable(watcher):
                    watcher()
            except BaseException as error:
                raised.append(error)
            finally:
                self.stopping.set()

        thread = threading.Thread(target=look)
        thread.start()
        status = self.system.run(self.stopping)
        thread.join()
        if raised:
            raise raised[0]
        return status

    def pids(self) -> list[int]:
        parts = (self.broker, self.service, self.worker)
        return [part.process.pid for part in parts if part.process is not None]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_system_starts_and_stops(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(folder)
    pids: list[int] = []
    assert running.watch(lambda: pids.extend(running.pids())) == 0
    assert len(pids) == 3
    assert not any(map(is_there, pids))
    assert capsys.readouterr().out == "ready\n"
    assert (folder.path / "processes.json").read_text() == "{}"


def test_whatever_is_killed_is_started_again(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(folder)

    def kill_each() -> None:
        for part in (running.broker, running.service, running.worker):
            assert part.process is not None
            pid = part.process.pid
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda part=part, pid=pid: part.process is not None and part.process.pid != pid)

    assert running.watch(kill_each) == 0
    told = capsys.readouterr().out
    for name in ("the broker", "the service", "the worker"):
        assert f"{name} was ended by signal 9; starting it again in 0 s" in told
    assert running.failed == 0


def test_what_fails_again_and_again_is_started_ever_more_rarely(folder: DataFolder) -> None:
    part = Part("it", lambda: python("raise SystemExit(3)"))
    pauses = []
    for _ in range(8):
        part.start(folder.children_lock)
        assert part.process is not None
        part.process.wait()
        assert part.look() == 3
        pauses.append(round(part.due - part.started))
    assert pauses[0] <= 1
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_SECONDS


def test_what_cannot_be_started_now_is_started_later(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jobs.system.MAX_PAUSE_SECONDS", 0.1)
    running, tries = Running(folder), 0

    def command() -> list[str]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return python(SLEEPER)

    running.broker.command = command
    assert running.watch(lambda: wait_until(lambda: running.broker.process is not None)) == 0
    assert capsys.readouterr().out.count("the broker cannot be started now: [Errno 28]") == 2


def test_a_disk_that_takes_no_notes_does_not_stop_the_system(folder: DataFolder) -> None:
    (folder.path / "processes.json.new").mkdir()
    pids: list[int] = []
    running = Running(folder)
    assert running.watch(lambda: pids.extend(running.pids())) == 0
    assert not any(map(is_there, pids))


def test_a_broker_that_fails_is_told_to_give_up_its_data(folder: DataFolder) -> None:
    running = Running(folder, broker="raise SystemExit(1)")
    running.watch(lambda: wait_until(lambda: running.failed >= 1))
    assert running.failed >= 1


def test_a_service_that_refuses_ends_the_system(folder: DataFolder) -> None:
    running = Running(folder, service="raise SystemExit(2)")
    assert running.system.run(threading.Event()) == 2
    assert running.worker.process is None


def test_a_service_that_cannot_start_ends_the_system(folder: DataFolder) -> None:
    running = Running(folder, service="raise SystemExit(1)")
    assert running.system.run(threading.Event()) == 1


def test_what_does_not_end_is_ended(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.system.WORKER_SECONDS", 0.2)
    running = Running(folder, worker=STUBBORN)
    pids: list[int] = []
    assert running.watch(lambda: pids.extend(running.pids())) == 0
    assert not any(map(is_there, pids))


def test_a_second_signal_ends_everything_at_once(folder: DataFolder) -> None:
    running = Running(folder, worker=STUBBORN)
    assert running.watch(lambda: running.system.stop_now()) == 0


def test_a_folder_is_used_once(folder: DataFolder) -> None:
    with pytest.raises(InUse, match=f"http://127.0.0.1:1, process {os.getpid()}"):
        DataFolder(folder.path, "http://127.0.0.1:2")


def test_a_folder_is_free_again_when_it_was_closed(tmp_path: Path) -> None:
    for _ in range(2):
        DataFolder(tmp_path, "x").close()


def test_processes_of_a_killed_system_are_waited_for_and_ended(tmp_path: Path) -> None:
    earlier = DataFolder(tmp_path, "x")
    part = Part("it", lambda: python(SLEEPER))
    part.start(earlier.children_lock)
    process = part.process
    assert process is not None
    earlier.note_processes([process.pid])
    earlier.close()
    later = DataFolder(tmp_path, "x")
    assert process.wait() == -signal.SIGTERM
    later.close()


def test_a_process_with_the_same_number_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.data_folder.POLITE_SECONDS", 0.1)
    monkeypatch.setattr("jobs.data_folder.FORCED_SECONDS", 0.1)
    earlier = DataFolder(tmp_path, "x")
    part = Part("it", lambda: python(SLEEPER))
    part.start(earlier.children_lock)
    assert part.process is not None
    (tmp_path / "processes.json").write_text(f'{{"{part.process.pid}": "another birth"}}')
    earlier.close()
    with pytest.raises(InUse, match="earlier run"):
        DataFolder(tmp_path, "x")
    assert part.process.poll() is None
    part.end(5)
    DataFolder(tmp_path, "x").close()
