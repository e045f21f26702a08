"""The whole system on one machine, with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from job_helpers import wait_until

from jobs.data_folder import _birth
from jobs.local import main, why_not_bound
from jobs.valkey import free_port

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="children end with their parent on Linux only"
)

QUICK = {"ANGLEWISE_WARM_UP": "0", "ANGLEWISE_WORKERS": "1", "ANGLEWISE_LOG_LEVEL": "ERROR"}


class Local:
    """One ``python -m jobs.local``."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANGLEWISE_")}
        self.log = folder.parent / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobs.local", "--port", str(port), "--without-training"],
                env={**environment, **QUICK, "ANGLEWISE_DATA_DIR": str(folder)},
                stdout=log,
                stderr=log,
            )

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.answers() and len(self.pids()) == 3

    def answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/health/live", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def pids(self) -> dict[str, int]:
        """Of the processes that it started, by what they run."""
        try:
            noted = json.loads((self.folder / "processes.json").read_text())
        except FileNotFoundError:
            return {}
        found = {}
        for pid in map(int, noted):
            command = _command(pid)
            found.update({name: pid for name in ("valkey", "service", "worker") if name in command})
        return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").partition("conf")[0]
    except OSError:
        return ""


def descendants(pid: int) -> dict[int, str]:
    """Every process that stems from one, and when it began."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found: dict[int, str] = {}
    waiting = list(children.get(pid, []))
    while waiting:
        child = waiting.pop()
        found[child] = _birth(child)
        waiting += children.get(child, [])
    return found


def all_ended(processes: dict[int, str]) -> bool:
    return all(_birth(pid) != birth or _is_zombie(pid) for pid, birth in processes.items())


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Local]]:
    """Starts the system, always on the same folder and port."""
    port, started = free_port(), []

    def begin() -> Local:
        started.append(Local(tmp_path / "data", port))
        wait_until(started[-1].ready, 60)
        return started[-1]

    yield begin
    for local in started:
        if local.process.poll() is None:
            local.process.terminate()
            local.process.wait(30)


def test_it_heals_refuses_a_second_start_and_ends_without_a_trace(
    start: Callable[[], Local], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    local = start()
    monkeypatch.setenv("ANGLEWISE_DATA_DIR", str(local.folder))
    assert main(["--port", str(free_port())]) == 2
    assert f"http://127.0.0.1:{local.port}, process {local.process.pid}" in capfd.readouterr().err

    for name, pid in local.pids().items():
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda name=name, pid=pid: local.pids().get(name, pid) != pid, 30)
    wait_until(local.ready, 60)

    processes = descendants(local.process.pid)
    assert len(processes) >= 4
    local.process.send_signal(signal.SIGINT)
    assert local.process.wait(30) == 0
    assert all_ended(processes)
    assert not local.answers()
    assert not (local.folder / "valkey" / "valkey.sock").exists()
    names = {path.name for path in local.folder.iterdir()}
    assert names == {"objects", "valkey", "running.lock", "processes.lock", "processes.json"}


def test_nothing_outlives_a_killed_one_and_the_next_starts_at_once(start: Callable[[], Local]) -> None:
    local = start()
    processes = descendants(local.process.pid)
    os.kill(local.pids()["service"], signal.SIGKILL)  # it cannot tidy up
    local.process.kill()
    local.process.wait()
    left = set((local.folder / "temporary").iterdir())
    assert left
    again = start()
    assert all_ended(processes)
    assert again.answers()
    assert not left & set((local.folder / "temporary").iterdir())


def test_a_port_in_use_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANGLEWISE_DATA_DIR", str(tmp_path / "data"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err
    assert why_not_bound("127.0.0.1", port) is None


def test_a_folder_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ANGLEWISE_DATA_DIR", str(tmp_path / "file"))
    assert main(["--port", str(free_port())]) == 2
    assert "cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [("DEVICES", "gpu"), ("LEASE_SECONDS", "0"), ("BROKER_URL", "http://x"), ("STORE_URL", "x")],
)
def test_a_wrong_setting_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"ANGLEWISE_{name}", value)
    assert main([]) == 2
    assert f"ANGLEWISE_{name}: " in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "many"])
def test_a_wrong_port_is_told(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"--port={port}"])
    assert caught.value.code == 2
    assert "is not a number from 0 to 65535" in capsys.readouterr().err


def test_an_unreachable_address_is_told() -> None:
    told = why_not_bound("192.0.2.1", 8000)
    assert told is not None
    assert told.startswith("cannot listen on 192.0.2.1, port 8000")
