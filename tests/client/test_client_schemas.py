"""The client's models against the published contract, field by field, in both directions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import anglewise_client as client
from anglewise_client import Client
from anglewise_client.calls import computations, jobs
from anglewise_client.job_models import Event, Point

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi/openapi.json").read_text())
SCHEMAS: Mapping[str, Any] = DOCUMENT["components"]["schemas"]

ANSWERS: Mapping[str, type[BaseModel]] = {
    "Axis": client.Axis,
    "CertificateAnswer": client.Certificate,
    "ClassAnswer": client.ClassReport,
    "CollapseAnswer": client.Collapse,
    "CollapseMapAnswer": client.CollapseMap,
    "CollapseThresholdAnswer": client.Threshold,
    "DiagnoseAnswer": client.Diagnosis,
    "FieldError": client.FieldError,
    "GeometryAnswer": client.Geometry,
    "GroupsAnswer": client.Groups,
    "Health": client.Health,
    "MetricsAnswer": client.Metrics,
    "MinorityCollapseAnswer": client.MinorityCollapse,
    "NamedAnswer": client.NamedWeights,
    "NearAnswer": client.NearMerge,
    "OffsetAnswer": client.Offset,
    "ProblemDocument": client.ProblemDocument,
    "Readiness": client.Readiness,
    "RealizabilityAnswer": client.Realizability,
    "ReasonAnswer": client.Reason,
    "SolverAnswer": client.SolverReport,
    "WeightedGeometryAnswer": client.WeightedGeometry,
    "WeightsAnswer": client.Design,
    "WitnessAnswer": client.Witness,
}
DRAWN = ("InfoNCE", "Logistic", "Exponential", "SquaredHinge", "Triplet")
NAMED = ("SupCon", "SoftSupCon", "YAware", "EuclideanWeights", "XCLR")
LOSSES: Mapping[str, type[BaseModel]] = {name: getattr(client, name) for name in (*DRAWN, *NAMED)}
REQUESTS: Mapping[str, Callable[..., Any]] = {
    "ClassGeometryRequest": computations.optimal_geometry,
    "WeightedGeometryRequest": computations.optimal_geometry,
    "CollapseThresholdRequest": computations.collapse_threshold,
    "CollapseMapRequest": computations.collapse_map,
    "RealizabilityRequest": computations.realizability,
    "WeightsRequest": computations.weights,
    "DiagnoseRequest": computations.diagnose,
}
OWN_PARAMETERS = {"full", "job", "gram", "squared_distances", "simplex_class_counts"}
"""Of the client alone; the last three make the ``target`` of /weights."""


def properties(name: str) -> set[str]:
    return set(SCHEMAS[name]["properties"])


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_have_the_fields_of_the_contract(name: str) -> None:
    assert set(ANSWERS[name].model_fields) == properties(name)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_the_fields_and_defaults_of_the_contract(name: str) -> None:
    fields = LOSSES[name].model_fields
    assert set(fields) == properties(name)
    for field, schema in SCHEMAS[name]["properties"].items():
        if "default" in schema:
            assert fields[field].default == schema["default"], field


@pytest.mark.parametrize("name", REQUESTS)
def test_every_field_of_a_request_is_a_parameter(name: str) -> None:
    parameters = inspect.signature(REQUESTS[name]).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    assert properties(name) - {"target"} <= set(parameters)


def test_every_parameter_is_a_field_of_some_request() -> None:
    known: dict[str, set[str]] = {}
    for name, build in REQUESTS.items():
        known.setdefault(build.__name__, set(OWN_PARAMETERS)).update(properties(name))
    for build in set(REQUESTS.values()):
        assert set(inspect.signature(build).parameters) <= known[build.__name__], build.__name__


def answer_schemas() -> set[str]:
    """Every schema that a successful answer of the computations can contain."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                visit(item)
        elif isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                visit(SCHEMAS[name])
            for key, item in node.items():
                if key not in ("example", "examples"):
                    visit(item)

    for path in PATHS:
        for operation in DOCUMENT["paths"][path].values():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    visit(response)
    return found


PATHS = (
    "/optimal-geometry",
    "/collapse-threshold",
    "/collapse-map",
    "/realizability",
    "/weights",
    "/diagnose",
    "/health/live",
    "/health/ready",
)


def test_no_answer_has_a_schema_without_a_model() -> None:
    unions = {name for name in SCHEMAS if "properties" not in SCHEMAS[name]}
    assert answer_schemas() - unions <= set(ANSWERS) | set(LOSSES)


def test_every_route_is_a_method_of_the_same_name() -> None:
    for path in PATHS[:6]:
        operation = next(iter(DOCUMENT["paths"][path].values()))
        assert operation["operationId"] == path.strip("/").replace("-", "_")
        assert hasattr(Client, operation["operationId"])
        assert hasattr(client.AsyncClient, operation["operationId"])


def test_job_models_are_what_the_client_sends_and_reads() -> None:
    assert set(Event.model_fields) == {"id", "type", "data"}
    assert set(Point.model_fields) == {"step", "value"}
    assert "idempotency_key" in inspect.signature(jobs.submit).parameters
