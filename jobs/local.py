"""``python -m jobs.local``: a whole system on one machine: broker, service and workers, until Ctrl-C.

Whatever of it ends is started anew. When this process is killed, the others end too.
"""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from pydantic import ValidationError

from jobs.data_folder import DataFolder, InUse
from jobs.settings import JobSettings
from jobs.system import Part, System
from jobs.valkey import NoValkey, Valkey


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        settings = JobSettings()
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            name = "_".join(map(str, item["loc"])).upper().removeprefix("ANGLEWISE_")
            print(f"ANGLEWISE_{name}: {item['msg']}", file=sys.stderr)
        return 2
    port = options.port or free_port(options.host)
    address = f"http://{f'[{options.host}]' if ':' in options.host else options.host}:{port}"
    try:
        folder = DataFolder(settings.data_dir.absolute(), address)
    except InUse as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the data folder {settings.data_dir} cannot be used: {error.strerror}", file=sys.stderr)
        return 2
    try:
        if (taken := why_not_bound(options.host, port)) is not None:
            print(taken, file=sys.stderr)
            return 2
        return _serve(options, settings, folder, port, address)
    finally:
        folder.close()


def _serve(
    options: argparse.Namespace, settings: JobSettings, folder: DataFolder, port: int, address: str
) -> int:
    training = not options.without_training and settings.training and _torch_is_there()
    if not training:
        print(f"training jobs are off: {_why_no_training(options, settings)}", flush=True)
    environment = {
        "ANGLEWISE_DATA_DIR": str(folder.path),
        "ANGLEWISE_STORE_URL": settings.store_url or (folder.path / "objects").as_uri(),
        "ANGLEWISE_TRAINING": "1" if training else "0",
        "TMPDIR": str(folder.temporary),
    }
    broker = None
    if settings.broker_url is not None:
        environment["ANGLEWISE_BROKER_URL"] = settings.broker_url
    else:
        try:
            valkey = Valkey(folder.path / "valkey")
        except NoValkey as error:
            print(f"jobs are off: {error}", file=sys.stderr)
        else:
            environment["ANGLEWISE_BROKER_URL"] = valkey.url
            broker = Part("the broker", valkey.command, folder=valkey.folder, failed=valkey.discard_data)
    service = [sys.executable, "-m", "service", "--host", options.host, "--port", str(port)]
    worker = None
    if "ANGLEWISE_BROKER_URL" in environment:
        worker = Part("the worker", lambda: [sys.executable, "-m", "worker"], environment=environment)
    system = System(
        folder,
        broker=broker,
        service=Part("the service", lambda: service, environment=environment),
        worker=worker,
        address=(_reachable(options.host), port),
        announce=f"ready: {address}/docs (Ctrl-C stops it)",
    )
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: system.stop_now() if stopping.is_set() else stopping.set())
    return system.run(stopping)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.local", description="Serve anglewise with workers, broker and storage."
    )
    parser.add_argument("--host", default=os.environ.get("ANGLEWISE_HOST") or "127.0.0.1")
    given_port = os.environ.get("ANGLEWISE_PORT") or os.environ.get("PORT") or "8000"
    parser.add_argument("--port", type=_port, default=given_port, help="0: one that is free")
    parser.add_argument("--without-training", action="store_true", help="refuse training jobs")
    return parser.parse_args(arguments)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} (from --port or PORT) is not a number from 0 to 65535")
    return int(text)


def _torch_is_there() -> bool:
    return importlib.util.find_spec("torch") is not None


def _why_no_training(options: argparse.Namespace, settings: JobSettings) -> str:
    if options.without_training:
        return "--without-training was given"
    return "torch is not installed" if settings.training else "ANGLEWISE_TRAINING says so"


def free_port(host: str) -> int:
    """A port that nobody listens on just now."""
    with socket.socket(_family(host)) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def why_not_bound(host: str, port: int) -> str | None:
    """Why one cannot listen there, in a sentence; None if one can."""
    try:
        with socket.socket(_family(host)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} of {host} is in use; choose another one with --port or PORT"
        return f"cannot listen on {host}, port {port}: {error.strerror or error}"
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _reachable(host: str) -> str:
    """An address at which this machine reaches what listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


if __name__ == "__main__":
    sys.exit(main())
