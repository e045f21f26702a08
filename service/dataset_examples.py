"""Data sets for the documentation."""

from __future__ import annotations

from typing import Any

DATASET: dict[str, Any] = {
    "id": "ds_01KBCJ6ZT0000000000000000Z",
    "name": "cells.npz",
    "samples": 700,
    "shape": [28, 28],
    "dtype": "uint8",
    "classes": {"basophil": 500, "eosinophil": 150, "monocyte": 50},
    "label_type": "string",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "bytes": 551_856,
    "builtin": False,
    "created_at": "2026-12-01T09:30:00.125000Z",
}


def _file(description: str) -> dict[str, Any]:
    return {"type": "string", "format": "binary", "description": description}


FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "`file`, or `x` and `y`",
    "additionalProperties": False,
    "oneOf": [{"required": ["file"]}, {"required": ["x", "y"]}],
    "properties": {
        "file": _file(
            "`.npz` with arrays `x` and `y`; or a table with numbers in every column but one, which has the "
            "labels: `.parquet`, or `.csv` whose first row names the columns"
        ),
        "x": _file("`.npy`: n × d, n × h × w or n × c × h × w floating-point numbers or integers"),
        "y": _file("`.npy`: n integers or strings, the labels"),
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "for people; without it the name of the file",
        },
        "label": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "column of labels in a table; without it `label`, `y` or the last",
        },
    },
}
"""The form of POST /datasets."""
