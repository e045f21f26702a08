#!/usr/bin/env python3
"""One entry point for users and developers.  Needs Python 3.11 or newer and pip, nothing else.

    python3 run.py serve      install if needed, then start the service on http://127.0.0.1:8000
    python3 run.py test       install if needed, then run every test
    python3 run.py check      lint, formatting, types, import contracts
    python3 run.py bench      print the performance table
    python3 run.py openapi    write openapi/openapi.json anew
    python3 run.py lock       resolve requirements/*.txt anew

Everything is installed into .venv beside this file, from the hash-pinned lists in requirements/.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMPS = VENV / "installed"
REQUIREMENTS = {"serve": ROOT / "requirements/serve.txt", "dev": ROOT / "requirements/dev.txt"}
EXTRAS = {"serve": ["service"], "dev": ["dev"]}


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
        install("serve")
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(f"starting; the documentation is at http://{host}:{options.port}/docs", flush=True)
        become("-m", "service", "--host", options.host, "--port", str(options.port))
    install("dev")
    if options.command == "test":
        return call("-m", "pytest", *options.pytest_arguments)
    if options.command == "check":
        return check()
    if options.command == "bench":
        return call("-m", "benchmarks", *options.names)
    if options.command == "openapi":
        return call("-m", "service.openapi")
    return lock()


def call(*command: str) -> int:
    """Run the environment's Python from the project's root; its exit status."""
    return subprocess.run([PYTHON, *command], cwd=ROOT, check=False).returncode


def become(*command: str) -> None:
    """Replace this process, so that Ctrl-C and SIGTERM reach the service itself."""
    os.chdir(ROOT)
    sys.stdout.flush()
    if os.name == "nt":  # there exec returns to the shell at once
        sys.exit(call(*command))
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
        uv = [PYTHON, "-m", "uv", "pip", "compile", "-q", "--no-header", "--upgrade"]
        subprocess.run([*uv, *pins, *extras, "pyproject.toml", "-o", path], cwd=ROOT, check=True)
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
        subprocess.run([*pip, "--require-hashes", "-r", REQUIREMENTS[kind]], cwd=ROOT, check=True)
        make_importable()
        STAMPS.mkdir(exist_ok=True)
        for old in STAMPS.glob(f"{kind}-*"):
            old.unlink()
        stamp(kind).touch()
        if kind == "dev":  # it contains everything "serve" needs
            stamp("serve").touch()


def make_importable() -> None:
    """Let .venv import the packages of this folder from anywhere, as they are edited."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = subprocess.run([PYTHON, "-c", where], check=True, capture_output=True, text=True).stdout
    Path(site_packages.strip(), "anglewise.pth").write_text(f"{ROOT}\n", encoding="utf-8")


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
