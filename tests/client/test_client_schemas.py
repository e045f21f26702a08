"""The client's models against the published contract, field by field, in both directions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import anglewise_client as client
from anglewise_client import Client
from anglewise_client.calls import computations, jobs, training
from anglewise_client.job_models import JobKind, Point

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi/openapi.json").read_text())
SCHEMAS: Mapping[str, Any] = DOCUMENT["components"]["schemas"]

ANSWERS: Mapping[str, type[BaseModel]] = {
    "ArtifactAnswer": client.Artifact,
    "Axis": client.Axis,
    "CertificateAnswer": client.Certificate,
    "ClassAnswer": client.ClassReport,
    "CollapseAnswer": client.Collapse,
    "CollapseMapAnswer": client.CollapseMap,
    "CollapseThresholdAnswer": client.Threshold,
    "DatasetAnswer": client.Dataset,
    "DatasetPageAnswer": client.DatasetPage,
    "DiagnoseAnswer": client.Diagnosis,
    "FieldError": client.FieldError,
    "GeometryAnswer": client.Geometry,
    "GroupsAnswer": client.Groups,
    "Health": client.Health,
    "JobAnswer": client.JobRecord,
    "JobMetricsAnswer": client.JobMetrics,
    "JobPageAnswer": client.JobPage,
    "MetricsAnswer": client.Metrics,
    "MinorityCollapseAnswer": client.MinorityCollapse,
    "NamedAnswer": client.NamedWeights,
    "NearAnswer": client.NearMerge,
    "OffsetAnswer": client.Offset,
    "PointAnswer": Point,
    "ProblemDocument": client.ProblemDocument,
    "ProgressAnswer": client.Progress,
    "Readiness": client.Readiness,
    "RealizabilityAnswer": client.Realizability,
    "JobReasonAnswer": client.JobReason,
    "ReasonAnswer": client.Reason,
    "SolverAnswer": client.SolverReport,
    "WeightedGeometryAnswer": client.WeightedGeometry,
    "WeightsAnswer": client.Design,
    "WitnessAnswer": client.Witness,
}
NO_MODEL = {"ArtifactListAnswer"}
"""The client reads the same list from the job itself."""
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


def schema(name: str) -> Mapping[str, Any]:
    return dict(SCHEMAS[name])


def properties(name: str) -> set[str]:
    return set(schema(name)["properties"])


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_have_the_fields_of_the_contract(name: str) -> None:
    assert set(ANSWERS[name].model_fields) == properties(name)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_the_fields_and_defaults_of_the_contract(name: str) -> None:
    fields = LOSSES[name].model_fields
    assert set(fields) == properties(name)
    for field, described in schema(name)["properties"].items():
        if "default" in described:
            assert fields[field].default == described["default"], field


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

    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    visit(response)
    return found


def test_no_answer_has_a_schema_without_a_model() -> None:
    objects = {name for name in answer_schemas() if "properties" in SCHEMAS[name]}
    assert objects - NO_MODEL <= set(ANSWERS) | set(LOSSES)


COMPUTATIONS = (
    *("/optimal-geometry", "/collapse-threshold", "/collapse-map"),
    *("/realizability", "/weights", "/diagnose"),
)


def test_every_route_is_a_method_of_the_same_name() -> None:
    for path in COMPUTATIONS:
        operation = next(iter(DOCUMENT["paths"][path].values()))
        assert operation["operationId"] == path.strip("/").replace("-", "_")
        assert hasattr(Client, operation["operationId"])
        assert hasattr(client.AsyncClient, operation["operationId"])


def test_every_field_of_a_training_is_a_parameter() -> None:
    parameters = set(inspect.signature(training.train).parameters)
    of_the_loss = {"sampling", "temperature", "self_pairs"}
    of_the_job = {"name", "webhook", "idempotency_key"}
    assert parameters == properties("TrainingSpec") | {"class_counts"} | of_the_loss | of_the_job


def test_every_field_of_an_upload_is_a_parameter() -> None:
    form = DOCUMENT["paths"]["/datasets"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    parameters = set(inspect.signature(jobs.create_dataset).parameters)
    assert {"path" if name == "file" else name for name in form["properties"]} == parameters


def test_jobs_have_the_states_kinds_and_reasons_of_the_contract() -> None:
    assert [state.value for state in client.State] == schema("State")["enum"]
    assert list(get_args(JobKind)) == schema("JobAnswer")["properties"]["kind"]["enum"]


def test_results_of_every_kind_have_a_model() -> None:
    assert set(get_args(JobKind)) == {*jobs.RESULTS, "optimal_geometry"}
