"""Progress of a job in a terminal or a notebook; nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anglewise_client.job_models import JobRecord

Show = Callable[[JobRecord], None]


@contextmanager
def progress_bar(wanted: bool, console: Console | None = None) -> Iterator[Show]:
    """A function that shows a record; it does nothing where nobody looks."""
    if wanted and in_notebook():
        yield _notebook_bar()
        return
    console = console or Console(stderr=True)
    if not (wanted and console.is_terminal):
        yield lambda record: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("waiting", total=None)

        def show(record: JobRecord) -> None:
            steps = record.progress
            total, step = (steps.total, steps.step) if steps else (None, None)
            bar.update(task, description=f"{record.id} {record.state}", total=total, completed=step or 0)

        yield show


def in_notebook() -> bool:
    """Whether this runs in a kernel whose display shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def bar_html(record: JobRecord) -> str:
    """One line with an HTML progress bar."""
    steps = record.progress
    step, total = (steps.step or 0, steps.total) if steps else (0, None)
    bar = f"<progress value='{step}' max='{total}'></progress> {step}/{total}" if total else ""
    left = f", {steps.eta_s:.0f} s left" if steps and steps.eta_s is not None else ""
    return f"<code>{escape(record.id)}</code> {escape(record.state)} {bar}{left}"


def _notebook_bar() -> Show:
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    return lambda record: handle.update(HTML(bar_html(record)))
