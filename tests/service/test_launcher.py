"""The service as a process: settings, refusal to be exposed, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_helpers import slow_map, wait_until

from service.launcher import main
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 15
"""A generous bound on a loaded machine; the grace for running requests is one second."""


class Server:
    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "service", "--port", str(self.port)]
        environment = os.environ | {
            "ANGLEWISE_LOG_LEVEL": "warning",
            "ANGLEWISE_WORKERS": "1",
            "ANGLEWISE_WARM_UP": "0",
            "PYTHONPATH": str(ROOT),
        }
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment)
        wait_until(self.is_ready, "ready", 300)

    def is_ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return self.get("/health/ready") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def start_solve(self) -> None:
        """Keep every solver process busy, without waiting for the answers."""

        def post(first: int) -> None:
            body = json.dumps(slow_map(first, cells=2500)).encode()
            url = f"http://127.0.0.1:{self.port}/collapse-map"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=60).close()
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                pass

        for first in (100, 200):  # one computes, one waits
            threading.Thread(target=post, args=(first,), daemon=True).start()
        wait_until(lambda: "R" in map(_cpu_state, self.children()), "a solve running")

    def children(self) -> list[int]:
        return [int(p.name) for p in Path("/proc").glob("[0-9]*") if _parent(p) == self.process.pid]


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _cpu_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    return _cpu_state(pid) not in ("", "Z")


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
    def test_by_signal_during_solves(self, server: Server, number: int) -> None:
        children = server.children()
        assert len(children) == 1
        server.start_solve()
        server.process.send_signal(number)
        server.process.wait(STOP_SECONDS)
        assert not [pid for pid in children if _alive(pid)]

    def test_killed_during_solves(self, server: Server) -> None:
        children = server.children()
        server.start_solve()
        server.process.kill()
        server.process.wait(STOP_SECONDS)
        wait_until(lambda: not any(_alive(pid) for pid in children), "solver processes ended", 10)


class TestStart:
    def test_refuses_to_be_exposed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--host", "0.0.0.0", "--port", "1"]) == 2
        assert "ANGLEWISE_API_KEYS" in capsys.readouterr().err

    def test_refuses_plain_text_keys(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("ANGLEWISE_API_KEYS", "hunter2")
        assert main([]) == 2
        message = capsys.readouterr().err
        assert "ANGLEWISE_API_KEYS" in message
        assert "hunter2" not in message


class TestSettings:
    def test_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANGLEWISE_DEADLINE_SECONDS", "7.5")
        monkeypatch.setenv("ANGLEWISE_API_KEYS", f"{'a' * 64}, {'B' * 64}")
        monkeypatch.setenv("PORT", "9001")
        settings = Settings()
        assert settings.limits.deadline_seconds == 7.5
        assert settings.limits.soft_deadline_seconds < 7.5
        assert settings.api_keys == ("a" * 64, "b" * 64)
        assert settings.port == 9001
        monkeypatch.setenv("ANGLEWISE_PORT", "9002")
        assert Settings().port == 9002

    @pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("WORKERS", "0"), ("LOG_LEVEL", "loud")])
    def test_bad_ones_are_named(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
    ) -> None:
        monkeypatch.setenv(f"ANGLEWISE_{name}", value)
        assert main([]) == 2
        assert f"ANGLEWISE_{name}: " in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("host", "exposed"),
        [("127.0.0.1", False), ("127.8.8.8", False), ("::1", False), ("localhost", False), ("0.0.0.0", True),
         ("::", True), ("192.168.1.5", True), ("example.org", True), ("", True)],
    )  # fmt: skip
    def test_exposed(self, host: str, exposed: bool) -> None:
        assert Settings(host=host).exposed is exposed
        assert not Settings(host=host, allow_insecure=True).exposed
        assert not Settings(host=host, api_keys=("0" * 64,)).exposed
