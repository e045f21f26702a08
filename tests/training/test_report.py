"""The report of a training: complete, self-contained, and safe whatever the labels are."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import numpy as np
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


def test_the_page_says_what_was_trained_and_where_it_is_off() -> None:
    name, rng = "ds_01KBCJ6ZT0000000000000000Z", np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cat"], [40, 15, 5])
    context = MemoryContext(datasets={name: (rng.standard_normal((60, 4)), y)})
    loss = {"name": "supcon", "temperature": 0.3}
    document = {"data": {"dataset": name}, "encoder": {"name": "linear"}, "loss": loss, "batch_size": 16}
    summary = train(TrainingSpec.model_validate({**document, "steps": 8}), context)
    page = html.unescape(files_of(context)["report.html"].decode())
    for reason in (summary["verdict"], *summary["reasons"]):
        assert reason in page
    assert "supcon, temperature 0.3" in page
    assert summary["spec"]["loss"] == {**loss, "self_pairs": "excluded"}
    worst = summary["furthest_pairs"][0]
    measured, predicted = np.array(summary["measured_gram"]), np.array(summary["predicted"]["gram"])
    assert abs(worst["measured"] - worst["predicted"]) == pytest.approx(np.abs(measured - predicted).max())
    assert len(summary["furthest_pairs"]) == 3
    assert {label for pair in summary["furthest_pairs"] for label in pair["classes"]} == {"ant", "bee", "cat"}
    assert any(f"{worst['classes'][0]} (" in reason for reason in summary["reasons"])
    assert "A batch of 16 holds 1.3 samples of class cat, the rarest, on average (5 samples in all)." in page
    assert [each["label"] for each in summary["classes"]] == ["ant", "bee", "cat"]
    assert all(each["within_variance"] > 0 for each in summary["classes"])
