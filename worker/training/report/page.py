"""The page of a report: one file that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

MAX_CLASSES = 200
"""Classes in the table; pictures show more."""
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1rem 0; overflow-x: auto; } img { max-width: 100%; min-width: 40rem; background: white; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.2rem 1.2rem 0.2rem 0; vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-size: 1.1rem; border-left: 0.3rem solid; padding-left: 0.8rem; }
"""


def render(summary: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """HTML.

    Args:
        summary: of the run, as `train` returns it.
        pictures: PNG images by caption.
    """
    predicted = summary["predicted"]
    metrics = [(name.replace("_", " "), _number(value)) for name, value in summary["metrics"].items()]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Report of a training</title><style>{STYLE}</style></head><body>\n"
        "<h1>Measured beside predicted</h1>\n"
        f'<p class="verdict">{escape(summary["verdict"])}</p>\n'
        + _list([*summary["reasons"], *predicted["warnings"]])
        + "".join(_figure(caption, png) for caption, png in pictures.items())
        + _pairs(summary["furthest_pairs"])
        + "<h2>At the end</h2>\n"
        + _table(("metric", "value"), metrics)
        + "<h2>The run</h2>\n"
        + _table((), _facts(summary), words=2)
        + "<h2>Classes</h2>\n"
        + _classes(summary["classes"])
        + "</body></html>\n"
    )


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, object]]:
    spec, certificate = summary["spec"], summary["predicted"]["certificate"]
    proof = "none" if certificate is None else f"proven to a gap of {_number(certificate['gap'])}"
    return [
        ("loss", _named(spec["loss"])),
        ("encoder", _named(spec["encoder"])),
        ("parameters", summary["parameters"]),
        ("dimension", summary["dimension"]),
        ("data", _named(spec["data"])),
        ("samples", sum(described["count"] for described in summary["classes"])),
        ("steps", f"{summary['steps']}{' (ended early)' if summary['stopped_early'] else ''}"),
        ("optimizer", f"{summary['optimizer']['name']}, lr {_number(summary['optimizer']['lr'])}"),
        ("seed", summary["seed"]),
        ("time", f"{summary['seconds']:.1f} s on {summary['device']}, {summary['precision']}"),
        ("processes", summary["processes"]),
        ("optimal loss", f"{_number(summary['predicted']['risk'])}, {proof}"),
        *((f"{package} version", number) for package, number in summary["versions"].items()),
    ]


def _named(fields: Mapping[str, Any]) -> str:
    """Its name, then the other fields in words; lists would fill the page."""
    told = {key.replace("_", " "): value for key, value in fields.items() if value is not None}
    name = told.pop("name", None)
    parts = [
        f"{key} {f'({len(value)})' if isinstance(value, list) and len(value) > 8 else _plain(value)}"
        for key, value in told.items()
    ]
    return ", ".join([name.replace("_", " "), *parts] if name else parts)


def _plain(value: Any) -> str:
    return _named(value) if isinstance(value, dict) else str(value)


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in sentences)
    return f"<ul>{items}</ul>\n" if items else ""


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> str:
    if not pairs:
        return ""
    rows = [
        (*pair["classes"], *(f"{value:.3f}" for value in (pair["measured"], pair["predicted"])))
        for pair in pairs
    ]
    head = ("class", "class", "measured cosine", "predicted")
    return "<h2>Furthest from the prediction</h2>\n" + _table(head, rows, words=2)


def _figure(caption: str, png: bytes) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return (
        f'<figure><img alt="{escape(caption)}" src="{source}"><figcaption>{escape(caption)}</figcaption>'
        "</figure>\n"
    )


def _classes(classes: Sequence[Mapping[str, Any]]) -> str:
    columns = {
        "label": "label",
        "samples": "count",
        "length of mean": "norm",
        "spread": "within_variance",
        "cosine to predicted mean": "cosine_to_predicted",
    }
    there = {title: key for title, key in columns.items() if key in classes[0]}
    rows = (
        [value if isinstance(value := each[key], int | str) else _number(value) for key in there.values()]
        for each in classes[:MAX_CLASSES]
    )
    left = len(classes) - MAX_CLASSES
    more = f"<p>and {left} more classes</p>\n" if left > 0 else ""
    return _table(tuple(there), rows) + more


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> str:
    """The first ``words`` cells of a row are words, the others numbers."""
    titles = f"<tr>{_cells('th', head, words)}</tr>" if head else ""
    lines = "".join(f"<tr>{_cells('td', row, words)}</tr>" for row in rows)
    return f"<table>{titles}{lines}</table>\n"


def _cells(tag: str, row: Sequence[object], words: int) -> str:
    kinds = ("" if i < words else ' class="number"' for i in range(len(row)))
    return "".join(f"<{tag}{kind}>{escape(str(cell))}</{tag}>" for kind, cell in zip(kinds, row, strict=True))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
