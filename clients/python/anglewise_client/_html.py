"""Matrices in a notebook."""

from __future__ import annotations

from anglewise_client._arrays import Floats

SHOWN = 16


def gram_table(rows: Floats, classes: int) -> str:
    """The leading rows and columns, positive cosines in red and negative ones in blue."""
    few = rows[:SHOWN, :SHOWN]
    body = "".join(f"<tr><th>{i}</th>{''.join(map(_cell, row))}</tr>" for i, row in enumerate(few))
    head = "".join(f"<th>{j}</th>" for j in range(len(few)))
    rest = f"<p>the first {SHOWN} of {classes} classes</p>" if classes > SHOWN else ""
    return f"<table><tr><th></th>{head}</tr>{body}</table>{rest}"


def _cell(value: float) -> str:
    color = "214,39,40" if value > 0 else "31,119,180"
    opacity = min(abs(float(value)), 1.0) * 0.6
    return f"<td style='background:rgba({color},{opacity:.2f})'>{value:.3f}</td>"
