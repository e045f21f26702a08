"""The lines of the client's README, run against a service on a socket."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_helpers import wait_ready

from anglewise_client import Client, NoService
from anglewise_client.cli import run

FOLDER = Path(__file__).parents[2] / "clients/python"
README = (FOLDER / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
JOBS = "client.jobs."
"""Blocks that start a training need workers, which these tests do without."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a service on a free port of this machine; skipped where only the client is installed."""
    uvicorn = pytest.importorskip("uvicorn")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        from service.app import create_app
        from service.settings import Settings

        config = uvicorn.Config(create_app(Settings(workers=1)), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with Client(address) as client:
                wait_ready(client)
            yield address
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def somewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, with the service in the environment."""
    monkeypatch.setenv("ANGLEWISE_URL", url)
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.chdir(name)
        yield Path(name)


def test_python_lines_work(somewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in PYTHON:
        if JOBS not in block:
            exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "-0.524" in printed
    assert "422 invalid_input /class_counts/1" in printed
    assert "anglewise/gram_distance_max" in printed
    assert names["diagnosis"].verdict in printed
    assert sorted(path.name for path in somewhere.iterdir()) == ["diagnosis.png", "geometry.npz"]
    names["client"].close()


def prepare(folder: Path) -> None:
    """The files that the command lines read."""
    (folder / "labels.csv").write_text("id,dx\n" + "1,nv\n2,mel\n3,nv\n" * 10)
    np.save(folder / "weights.npy", np.array([[1, 0.8, 0.3], [0.8, 1, 0.3], [0.3, 0.3, 1]]))
    labels = np.arange(30) % 3
    np.savez(folder / "embeddings.npz", embeddings=np.eye(4)[labels], labels=labels)


@pytest.mark.parametrize(
    "line", [line for line in SHELL if line.startswith("anglewise ") and " jobs " not in line]
)
def test_command_lines_work(somewhere: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(somewhere)
    assert run(shlex.split(line, comments=True)[1:]) == 0
    assert capsys.readouterr().out


def test_the_module_is_the_command(somewhere: Path, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "anglewise_client", "geometry", "9", "3", "1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(FOLDER), "ANGLEWISE_URL": url},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "nearest class" in done.stdout


def test_nobody_listens_on_a_closed_port() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with (
        Client(address, retries=1, sleep=lambda _: None) as client,
        pytest.raises(NoService, match=r"run\.py serve"),
    ):
        client.health()


def test_an_answer_that_does_not_come_is_a_timeout() -> None:
    from anglewise_client import RequestTimeout

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(address, retries=0, timeout=0.1) as client, pytest.raises(RequestTimeout):
            client.health()
