"""Results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | float | int


@dataclass(frozen=True)
class Result:
    """One experiment.

    Attributes:
        title: of its section.
        claim: what the paper states.
        head, rows: the table.
        finding: one or two sentences; says so where the claim was not met.
        holds: whether the claim was met.
    """

    title: str
    claim: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    finding: str
    holds: bool

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", f"*Paper:* {self.claim}", ""]
        lines += [_line(self.head), _line(["---"] * len(self.head))]
        lines += [_line([_text(cell) for cell in row]) for row in self.rows]
        return "\n".join([*lines, "", f"*Measured:* {self.finding}", ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
