#!/usr/bin/env python3
"""One entry point for users and developers.  Needs Python 3.11 or newer and pip, nothing else.

    python3 run.py serve      install if needed, then start service, worker, broker and storage
                              on http://127.0.0.1:8000
    python3 run.py test       install if needed, then run every test
    python3 run.py check      lint, formatting, types, import contracts
    python3 run.py bench      print the performance table
    python3 run.py openapi    write openapi/openapi.json anew
    python3 run.py lock       resolve requirements/*.txt anew

Everything is installed into .venv beside this file, from the hash-pinned lists in requirements/; torch,
whose builds differ by platform, in a step of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMPS = VENV / "installed"
REQUIREMENTS = {"serve": ROOT / "requirements/serve.txt", "dev": ROOT / "requirements/dev.txt"}
EXTRAS = {"serve": ["worker"], "dev": ["dev"]}
TORCH = "torch==2.13.0"


def main(arguments: Sequence[str] | None = None) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 (this script is what tells users of older versions)
        print("anglewise needs Python 3.11 or newer; this is " + sys.version.split()[0], file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="start the service", description="Start the service.")
    given_port = os.environ.get("ANGLEWISE_PORT") or os.environ.get("PORT") or "8000"
    serve.add_argument("--port", type=port, default=given_port, help="default: PORT, or 8000")
    serve.add_argument(
        "--host",
        default=os.environ.get("ANGLEWISE_HOST") or "127.0.0.1",
        help="address to listen on; default: ANGLEWISE_HOST, or 127.0.0.1",
    )
    serve.add_argument(
        "--without-training", action="store_true", help="install no torch, and refuse training jobs"
    )
    test = commands.add_parser("test", help="run every test", description="Run every test.")
    test.add_argument("pytest_arguments", nargs="*", help="handed to pytest, after --")
    commands.add_parser("check", help="lint, formatting, types, import contracts")
    bench = commands.add_parser("bench", help="print the performance table")
    bench.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    commands.add_parser("openapi", help="write openapi/openapi.json anew")
    commands.add_parser("lock", help="resolve requirements/*.txt anew")
    options = parser.parse_args(arguments)
    try:
        return run(options)
    except subprocess.CalledProcessError as error:
        print(f"failed with status {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return error.returncode if error.returncode > 0 else 1
    except KeyboardInterrupt:
        return 130


def port(text: str) -> int:
    """A port number, from --port or PORT."""
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} (from --port or PORT) is not a number from 0 to 65535")
    return int(text)


def run(options: argparse.Namespace) -> int:
    if options.command == "serve":
        return serve(options)
    install("dev")
    if options.command in ("test", "check", "bench"):
        install_torch()
    if options.command == "test":
        return call("-m", "pytest", *options.pytest_arguments)
    if options.command == "check":
        return check()
    if options.command == "bench":
        return call("-m", "benchmarks", *options.names)
    if options.command == "openapi":
        return call("-m", "service.openapi")
    return lock()


def serve(options: argparse.Namespace) -> int:
    install("serve")
    if not options.without_training and os.name != "nt":
        install_torch()
    address = ["--host", options.host, "--port", str(options.port)]
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"starting; the documentation will be at http://{host}:{options.port}/docs", flush=True)
    if os.name == "nt":  # there is no broker for it to start
        return call("-m", "service", *address)
    return become("-m", "jobs.local", *address, *["--without-training"] * options.without_training)


def call(*command: str) -> int:
    """Run the environment's Python from the project's root; its exit status."""
    return subprocess.run([PYTHON, *command], cwd=ROOT, check=False).returncode


def become(*command: str) -> NoReturn:
    """Replace this process, so that Ctrl-C and SIGTERM reach the new one itself."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(PYTHON, [str(PYTHON), *command])


def check() -> int:
    status = 0
    for name, command in {
        "lint": ["-m", "ruff", "check", "."],
        "format": ["-m", "ruff", "format", "--check", "."],
        "types": ["-m", "mypy"],
        "imports": [
            "-c",
            "from importlinter.cli import lint_imports_command as lint; lint()",
        ],
    }.items():
        print(f"== {name}", flush=True)
        status = call(*command) or status
    return status


def lock() -> int:
    for kind, path in REQUIREMENTS.items():
        extras = [f"--extra={extra}" for extra in EXTRAS[kind]]
        pins = ["--python-version", "3.11", "--universal", "--generate-hashes", "--no-emit-index-url"]
        no_torch = ["--override", "requirements/overrides.txt"]
        uv = [PYTHON, "-m", "uv", "pip", "compile", "-q", "--no-header", "--upgrade"]
        subprocess.run([*uv, *pins, *no_torch, *extras, "pyproject.toml", "-o", path], cwd=ROOT, check=True)
    return 0


def install(kind: str) -> None:
    """Bring .venv to the pinned state for "serve" or "dev"; instant when it is there already."""
    if stamp(kind).is_file():
        return
    with alone():
        if stamp(kind).is_file():
            return
        create_environment()
        print(f"installing the pinned packages of {REQUIREMENTS[kind].name} (about a minute) ...", flush=True)
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        exactly = ["--require-hashes", "--no-deps"]  # the lists are complete, but for torch
        subprocess.run([*pip, *exactly, "-r", REQUIREMENTS[kind]], cwd=ROOT, check=True)
        make_importable()
        STAMPS.mkdir(exist_ok=True)
        for old in STAMPS.glob(f"{kind}-*"):
            old.unlink()
        stamp(kind).touch()
        if kind == "dev":  # it contains everything "serve" needs
            stamp("serve").touch()


def install_torch() -> None:
    """Bring torch into .venv, having said how much that is."""
    done = STAMPS / TORCH
    if done.is_file():
        return
    with alone():
        if not torch_is_there():
            print(f"installing {TORCH} for training: {torch_size()}", flush=True)
            pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
            subprocess.run([*pip, TORCH], cwd=ROOT, check=True)
        done.touch()


def torch_is_there() -> bool:
    version = "import importlib.metadata as m; print(m.version('torch').partition('+')[0])"
    told = subprocess.run([PYTHON, "-c", version], capture_output=True, text=True)
    return f"torch=={told.stdout.strip()}" == TORCH


def torch_size() -> str:
    """What pip is about to load."""
    skip = "serve --without-training does without it"
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return f"a download of 2.7 GB with what it needs for GPUs ({skip}) ..."
    return f"a download of about 200 MB ({skip}) ..."


def make_importable() -> None:
    """Let .venv import the packages of this folder from anywhere, as they are edited."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = subprocess.run([PYTHON, "-c", where], check=True, capture_output=True, text=True).stdout
    folders = f"{ROOT}\n{ROOT / 'clients/python'}\n"
    Path(site_packages.strip(), "anglewise.pth").write_text(folders, encoding="utf-8")


def stamp(kind: str) -> Path:
    """The file whose presence says that exactly these requirements are installed, for this Python."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (REQUIREMENTS["serve"], REQUIREMENTS[kind], ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    digest.update(str(ROOT).encode())
    return STAMPS / f"{kind}-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process install at a time; the others wait for it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (ROOT / ".install.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def create_environment() -> None:
    """Create .venv, also where Python ships without ensurepip (Debian without python3-venv)."""
    if (
        PYTHON.exists()
        and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0
    ):
        return
    print("creating .venv ...", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True)
    if made.returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    boot = ROOT / ".boot"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", boot, "virtualenv"]
    subprocess.run(pip, check=True)
    environment = {**os.environ, "PYTHONPATH": str(boot)}
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", VENV], check=True, env=environment)
    shutil.rmtree(boot, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
