"""The page of a report: one file that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

MAX_CLASSES = 200
"""Classes in the table; pictures show more."""
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1rem 0; overflow-x: auto; } img { max-width: 100%; min-width: 40rem; background: white; }
table { border-collapse: collapse; } th, td { text-align: left; padding: 0.2rem 1.2rem 0.2rem 0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-size: 1.1rem; border-left: 0.3rem solid; padding-left: 0.8rem; }
"""


def render(summary: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """HTML.

    Args:
        summary: of the run, as `train` returns it.
        pictures: PNG images by caption.
    """
    certificate = summary["predicted"]["certificate"]
    proof = "none" if certificate is None else f"proven to a gap of {_number(certificate['gap'])}"
    facts = {
        "steps": f"{summary['steps']}{' (ended early)' if summary['stopped_early'] else ''}",
        "time": f"{summary['seconds']:.1f} s on {summary['device']}, {summary['precision']}",
        "processes": summary["processes"],
        "samples": sum(described["count"] for described in summary["classes"]),
        "dimension": summary["dimension"],
        "parameters": summary["parameters"],
        "optimizer": summary["optimizer"]["name"],
        "seed": summary["seed"],
        "optimal loss": f"{_number(summary['predicted']['risk'])}, {proof}",
        **{f"{package} version": version for package, version in summary["versions"].items()},
    }
    metrics = {name.replace("_", " "): _number(value) for name, value in summary["metrics"].items()}
    warnings = "".join(f"<li>{escape(text)}</li>" for text in summary["predicted"]["warnings"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Report of a training</title><style>{STYLE}</style></head><body>\n"
        "<h1>Measured beside predicted</h1>\n"
        f'<p class="verdict">{escape(summary["verdict"])}</p>\n'
        + (f"<ul>{warnings}</ul>\n" if warnings else "")
        + "".join(_figure(caption, png) for caption, png in pictures.items())
        + "<h2>At the end</h2>\n"
        + _table(("metric", "value"), metrics.items())
        + "<h2>The run</h2>\n"
        + _table(("", ""), facts.items())
        + "<h2>Classes</h2>\n"
        + _classes(summary["classes"])
        + "</body></html>\n"
    )


def _figure(caption: str, png: bytes) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return (
        f'<figure><img alt="{escape(caption)}" src="{source}"><figcaption>{escape(caption)}</figcaption>'
        "</figure>\n"
    )


def _classes(classes: list[Mapping[str, Any]]) -> str:
    shown = _table(("label", "samples"), ((item["label"], item["count"]) for item in classes[:MAX_CLASSES]))
    left = len(classes) - MAX_CLASSES
    return shown + (f"<p>and {left} more classes</p>\n" if left > 0 else "")


def _table(head: tuple[str, str], rows: Iterable[tuple[Any, Any]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head) if any(head) else ""
    lines = "".join(
        f'<tr><td>{escape(str(name))}</td><td class="number">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table>{f'<tr>{titles}</tr>' if titles else ''}{lines}</table>\n"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
