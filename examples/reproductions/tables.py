"""Results as tables in Markdown, and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | float | int


@dataclass(frozen=True)
class Result:
    """One experiment.

    Attributes:
        title: of its section.
        claim: what the paper states.
        head, rows: the table.
        finding: some sentences; says so where the claim was not met.
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
        lines += ["", f"*Measured:* {self.finding}", ""]
        return "\n".join([*lines, f"*Claim met:* {'yes' if self.holds else 'no'}.", ""])

    def document(self) -> dict[str, Any]:
        """JSON values; a number that is not finite becomes null."""
        return {
            "title": self.title,
            "claim": self.claim,
            "head": list(self.head),
            "rows": [[_value(cell) for cell in row] for row in self.rows],
            "finding": self.finding,
            "holds": self.holds,
        }


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _value(cell: Cell) -> Cell | None:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
