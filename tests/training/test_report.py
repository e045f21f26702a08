"""The report of a training: complete, self-contained, and safe whatever the labels are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from memory_context import MemoryContext

from jobs.training_spec import TrainingSpec
from worker.training.report import report_files
from worker.training.trainer import train

EVIL = "<script>alert('$x^2$')</script>"


def spec(**fields: Any) -> TrainingSpec:
    return TrainingSpec.model_validate({"data": {"class_counts": [30, 10, 5]}, "steps": 20, **fields})


@pytest.fixture(scope="module")
def trained() -> tuple[dict[str, Any], MemoryContext]:
    context = MemoryContext()
    return train(spec(), context), context


def files_of(context: MemoryContext) -> dict[str, bytes]:
    return {name: data for name, (data, _) in context.artifacts.items() if name.startswith("report.")}


def test_a_training_leaves_a_page_its_data_and_a_picture(
    trained: tuple[dict[str, Any], MemoryContext],
) -> None:
    summary, context = trained
    files = files_of(context)
    assert files["report.png"].startswith(b"\x89PNG")
    page = files["report.html"].decode()
    assert summary["verdict"] in page
    assert page.count("<img") == 2
    data = json.loads(files["report.json"])
    assert data["summary"]["verdict"] == summary["verdict"]
    assert [point["step"] for point in data["history"]] == list(context.series)
    assert data["history"][-1]["gram_distance_max"] == summary["metrics"]["gram_distance_max"]


def test_the_page_loads_nothing(trained: tuple[dict[str, Any], MemoryContext]) -> None:
    page = files_of(trained[1])["report.html"].decode()
    sources = re.findall(r'(?:src|href)\s*=\s*"([^"]{0,22})', page)
    assert sources
    assert all(source.startswith("data:image/png;base64") for source in sources)
    assert not re.search(r"<(script|link|iframe|object)\b|url\(|@import", page)


def test_labels_are_text(trained: tuple[dict[str, Any], MemoryContext]) -> None:
    summary = {**trained[0], "verdict": EVIL}
    summary["classes"] = [{"label": EVIL, "count": 1}, *summary["classes"][1:]]
    files = report_files(summary, [(0, {"loss": None})], angular=True)
    page = files["report.html"][0].decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_euclidean_loss_has_no_cosines_to_show() -> None:
    context = MemoryContext()
    train(spec(loss={"name": "euclidean", "sigma": 1.0, "targets": [[0.0], [1.0], [2.0]]}), context)
    assert files_of(context)["report.html"].decode().count("<img") == 1


def test_thousands_of_classes_make_no_endless_table(trained: tuple[dict[str, Any], MemoryContext]) -> None:
    many = [{"label": label, "count": 1} for label in range(3000)]
    summary = {**trained[0], "classes": many, "measured_gram": None}
    page = report_files(summary, [], angular=True)["report.html"][0].decode()
    assert "and 2800 more classes" in page
    assert len(page) < 500_000
