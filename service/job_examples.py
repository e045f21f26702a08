"""Jobs for the documentation."""

from __future__ import annotations

from typing import Any

JOB_EXAMPLES: dict[str, dict[str, Any]] = {
    "the optimum for many classes": {
        "kind": "optimal_geometry",
        "name": "long tail",
        "spec": {"class_counts": [5000, 2997, 1796, 1077, 645], "loss": {"name": "infonce"}},
    },
    "train free features and compare": {
        "kind": "training",
        "spec": {"data": {"class_counts": [60, 30, 10]}, "steps": 200},
    },
    "a map of many cells": {
        "kind": "collapse_map",
        "spec": {
            "classes": 10,
            "x": {"name": "majority_proportion", "values": [0.2, 0.4, 0.6, 0.8]},
            "y": {"name": "temperature", "values": [0.1, 0.5, 1.0]},
        },
    },
    "diagnose what a training left": {
        "kind": "diagnose",
        "spec": {"job": "job_01KBCJ6ZT0000000000000000Z", "prediction": {}},
    },
}

_ID = "job_01KBCJ6ZT0000000000000000Z"
_SPEC = {"classes": 10, "sampling": "supervised"}
_LINKS = {name: f"/jobs/{_ID}/{name}" for name in ("spec", "events", "metrics", "result", "artifacts")}
SUBMITTED_JOB: dict[str, Any] = {
    "id": _ID,
    "kind": "collapse_threshold",
    "name": None,
    "state": "queued",
    "attempt": 0,
    "progress": None,
    "reason": None,
    "created_at": "2026-12-01T09:30:00.125000+00:00",
    "started_at": None,
    "finished_at": None,
    "spec": _SPEC,
    "artifacts": [],
    "links": {"self": f"/jobs/{_ID}", **_LINKS, "cancel": f"/jobs/{_ID}/cancel"},
}
LISTED_JOB: dict[str, Any] = {
    **SUBMITTED_JOB,
    "state": "succeeded",
    "attempt": 1,
    "started_at": "2026-12-01T09:30:00.250000+00:00",
    "finished_at": "2026-12-01T09:30:01.500000+00:00",
    "artifacts": [{"name": "result.json", "bytes": 512, "media_type": "application/json"}],
    "links": {"self": f"/jobs/{_ID}", **_LINKS},
}

ANSWERS: dict[str, Any] = {
    "JobAnswer": LISTED_JOB,
    "JobPageAnswer": {"items": [LISTED_JOB], "next_cursor": None},
    "JobMetricsAnswer": {"series": {"loss": [{"step": 10, "value": 0.69}, {"step": 20, "value": None}]}},
    "ArtifactListAnswer": {"items": LISTED_JOB["artifacts"]},
}
"""By the name of the answer's model."""
