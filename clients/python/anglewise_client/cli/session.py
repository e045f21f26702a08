"""What the commands of one call share: the service to ask, and where to print."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import typer
from rich.console import Console
from rich.table import Table

from anglewise_client._answer import Answer, show
from anglewise_client.client import Client

MAX_ROWS = 40


@dataclass
class Session:
    """Set up by the options before the command."""

    url: str | None = None
    timeout: float = 60.0
    transport: httpx2.BaseTransport | None = None
    out: Console = field(default_factory=Console)
    err: Console = field(default_factory=lambda: Console(stderr=True))

    def client(self) -> Client:
        """A client that does not insist: a person waits."""
        return Client(self.url, timeout=self.timeout, retries=2, transport=self.transport)

    def note(self, text: str) -> None:
        """Something about what happens, beside the output."""
        self.err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Wanted:
    """How an answer leaves: as a table, as JSON, and into files."""

    as_json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def __post_init__(self) -> None:
        if self.save is not None and self.save.suffix not in (".json", ".npz"):
            raise typer.BadParameter("the name must end in .json or .npz", param_hint="--save")

    def deliver(self, session: Session, answer: Answer, *tables: Table) -> None:
        if self.save is not None:
            session.note(f"saved to {answer.save(self.save)}")
        if self.plot is not None:
            answer.plot().figure.savefig(self.plot, dpi=150)  # type: ignore[union-attr]
            session.note(f"drawn to {self.plot}")
        if self.as_json:
            print_json(json.loads(answer.model_dump_json()))
            return
        for table in tables:
            session.out.print(table)


def print_json(document: Any) -> None:
    """One document a call, for programs: no colors, no wrapping."""
    json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def facts_table(answer: Answer, title: str | None = None, **more: Any) -> Table:
    """Name and value a line."""
    table = Table(title=title, show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in (dict(answer.facts()) | more).items():
        text = str(value) if isinstance(value, str) else show(value)
        table.add_row(name.replace("_", " "), text)
    return table


def rows_table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None, left_out: int = 0
) -> Table:
    """A table of at most `MAX_ROWS` rows, which says how many more there are."""
    table = Table(title=title)
    for name in header:
        table.add_column(name)
    for row in rows[:MAX_ROWS]:
        table.add_row(*(str(cell) if isinstance(cell, str) else show(cell) for cell in row))
    left_out += max(0, len(rows) - MAX_ROWS)
    if left_out:
        table.caption = f"{left_out} more; --json gives all"
    return table
