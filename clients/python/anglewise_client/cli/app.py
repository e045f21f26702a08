"""The application, and what its exit status means.

0  done
1  the service, or something on this machine, failed
2  the call or the request is wrong
3  no service answers
4  the job failed or was cancelled
5  the job has not ended in time
130  interrupted
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import httpx2
import typer

from anglewise_client.cli import compute, stored
from anglewise_client.cli.session import Session
from anglewise_client.errors import AnglewiseError, InvalidRequest, JobFailed, NoService, WaitTimeout
from anglewise_client.version import __version__

EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (InvalidRequest, 2),
    (NoService, 3),
    (JobFailed, 4),
    (WaitTimeout, 5),
)
"""The first that fits; everything else is 1."""
INTERRUPTED = 130
JOB_HINT_CODES = ("too_large", "deadline")

app = typer.Typer(
    name="anglewise",
    help="The optimal representation geometry of contrastive learning, with certificates.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failure, 2 wrong call, 3 no service, 4 job failed, 5 job still running. "
    "The API key is read from ANGLEWISE_API_KEY.",
)
app.command("geometry")(compute.geometry)
app.command("threshold")(compute.threshold)
app.command("map")(compute.collapse_map)
app.command("realizability")(compute.realizability)
app.command("weights")(compute.weights)
app.command("diagnose")(compute.diagnose)
app.add_typer(stored.jobs, name="jobs")
app.add_typer(stored.datasets, name="datasets")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anglewise {__version__}")
        raise typer.Exit


@app.callback()
def common(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", envvar="ANGLEWISE_URL", help="Default: http://127.0.0.1:8000")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one answer.")] = 60.0,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    session = ctx.ensure_object(Session)
    session.url, session.timeout = url, timeout


@app.command("health")
def health(ctx: typer.Context) -> None:
    """Whether a service answers."""
    session: Session = ctx.obj
    with session.client() as client:
        ready = client.health()
        session.out.print(f"{client.config.base_url} is ready with {ready.workers} workers", markup=False)


def run(arguments: Sequence[str] | None = None, transport: httpx2.BaseTransport | None = None) -> int:
    """Run one command; its exit status."""
    session = Session(transport=transport)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="anglewise", obj=session)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:  # the reader of a pipe has seen enough; Python would complain when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (AnglewiseError, OSError, ValueError, ImportError) as error:
        session.err.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        for line in _hints(error):
            session.err.print(line, markup=False, highlight=False, soft_wrap=True)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def exit_code(error: Exception) -> int:
    """The exit status that an error becomes."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def _hints(error: Exception) -> list[str]:
    if getattr(error, "code", None) in JOB_HINT_CODES:
        return ["as a job it may take longer: anglewise jobs submit KIND '{…}' --wait"]
    fields = getattr(error, "errors", [])
    return [f"  {field.pointer or 'the request'}: {field.message}" for field in fields[1:]]


def main() -> NoReturn:
    """Entry point of the command ``anglewise``."""
    sys.exit(run())
