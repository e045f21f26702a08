"""Answers as people meet them: in a console, a notebook, a picture, a table, a file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_helpers import THRESHOLD

import anglewise_client
from anglewise_client import (
    Answer,
    Client,
    CollapseMap,
    Diagnosis,
    Geometry,
    JobMetrics,
    Realizability,
    SupCon,
    Threshold,
    TrainingSummary,
    load,
)
from anglewise_client.plots import factor

LABELS = np.arange(40) % 4
EMBEDDINGS = np.eye(6)[LABELS] + 0.1 * np.random.default_rng(0).normal(size=(40, 6))


@pytest.fixture(scope="module")
def answers(client: Client) -> dict[str, Answer]:
    """One of each kind."""
    directions = EMBEDDINGS[:5] / np.linalg.norm(EMBEDDINGS[:5], axis=1, keepdims=True)
    weights = np.exp(directions @ directions.T)
    return {
        "geometry": client.optimal_geometry(class_counts=[50, 20, 20, 5], groups=True),
        "weighted": client.best_geometry(weights=SupCon(class_counts=[9, 4, 2]), temperature=0.5),
        "euclidean": client.best_geometry(weights=weights, metric="euclidean", temperature=0.5),
        "threshold": client.collapse_threshold(classes=10),
        "map": client.collapse_map(
            x=("temperature", [0.1, 0.5, 1.0]), y=("majority_proportion", [0.3, 0.9]), classes=4
        ),
        "realizable": client.realizability(weights=weights, temperature=0.5),
        "refused": client.realizability(weights=[[1, 2, 1], [1, 1, 1], [1, 1, 1]]),
        "weights": client.weights(simplex_class_counts=[5, 3, 2], temperature=0.5),
        "diagnosis": client.diagnose(
            embeddings=EMBEDDINGS, labels=LABELS, prediction={"loss": {"temperature": 0.5}}
        ),
        "measured": client.diagnose(embeddings=EMBEDDINGS, labels=LABELS),
    }


COMPUTED = ("geometry", "weighted", "euclidean", "threshold", "map")
KINDS = (*COMPUTED, "realizable", "refused", "weights", "diagnosis", "measured")


@pytest.mark.parametrize("kind", KINDS)
def test_a_console_shows_little(answers: dict[str, Answer], kind: str) -> None:
    text = repr(answers[kind])
    assert text.startswith(type(answers[kind]).__name__)
    assert "\n" not in text
    assert len(text) < 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_table(answers: dict[str, Answer], kind: str) -> None:
    html = answers[kind]._repr_html_()
    assert html.startswith("<table>")
    assert html.count("<table>") == html.count("</table>")


def test_a_notebook_escapes_what_comes_from_elsewhere(answers: dict[str, Answer]) -> None:
    found = answers["refused"].model_copy(deep=True)
    assert isinstance(found, Realizability)
    found.reason.message = "<script>alert(1)</script>"
    assert "<script>" not in found._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_files_give_back_what_was_saved(
    answers: dict[str, Answer], kind: str, suffix: str, tmp_path: Path
) -> None:
    answer, path = answers[kind], tmp_path / f"answer{suffix}"
    assert answer.save(path) == path
    again = load(path)
    assert type(again) is type(answer)
    assert again == answer
    assert type(answer).load(path) == answer
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_saved_json_is_plain(answers: dict[str, Answer], tmp_path: Path) -> None:
    document = json.loads(answers["geometry"].save(tmp_path / "g.json").read_text())
    assert document["kind"] == "Geometry"
    assert document["version"] == anglewise_client.__version__
    assert len(document["answer"]["gram"]) == 4


def test_missing_cells_survive(tmp_path: Path) -> None:
    document = {
        "x": {"name": "classes", "values": [3, 4]},
        "y": {"name": "negatives", "values": ["infinite"]},
        "quantity": "exact_threshold",
        "values": [[0.5, None]],
        "reasons": [[None, "none"]],
    }
    grid = CollapseMap.model_validate(document)
    assert np.isnan(grid.values[0, 1])
    for suffix in (".json", ".npz"):
        assert load(grid.save(tmp_path / f"map{suffix}")) == grid
    assert json.loads(grid.model_dump_json())["values"] == [[0.5, None]]


def test_new_fields_of_a_newer_service_are_kept(tmp_path: Path) -> None:
    newer = Threshold.model_validate(THRESHOLD | {"hint": "new"})
    assert newer.hint == "new"  # type: ignore[attr-defined]
    assert load(newer.save(tmp_path / "t.json")).hint == "new"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["answer.pkl", "answer", "answer.txt"])
def test_other_files_are_not_written(answers: dict[str, Answer], name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end in"):
        answers["threshold"].save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_not_read(answers: dict[str, Answer], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"kind": "Client", "answer": {}}')
    (tmp_path / "b.json").write_text("not JSON")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 cut off")
    np.savez(tmp_path / "d.npz", x=np.zeros(2))
    for file in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match="not a saved answer"):
            load(file)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.json")
    answers["threshold"].save(tmp_path / "t.json")
    with pytest.raises(ValueError, match="holds a Threshold"):
        Geometry.load(tmp_path / "t.json")


def test_a_failed_save_leaves_the_old_file(answers: dict[str, Answer], tmp_path: Path) -> None:
    path = answers["threshold"].save(tmp_path / "t.json")
    before = path.read_bytes()
    broken = answers["threshold"].model_copy()
    broken.exact_threshold = float("nan")  # type: ignore[attr-defined]
    broken.extra = object()  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="serializ"):
        broken.save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "threshold"])
def test_pictures(answers: dict[str, Answer], kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    axes = answers[kind].plot()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes.figure.savefig(tmp_path / "picture.png")  # type: ignore[union-attr]
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_diagnosis_is_drawn_beside_its_prediction(answers: dict[str, Answer]) -> None:
    figure: Any = answers["diagnosis"].plot().figure
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["measured cosines", "predicted cosines", "measured - predicted"]
    alone: Any = answers["measured"].plot().figure
    assert [axes.get_title() for axes in alone.axes if axes.get_title()] == ["measured cosines"]


def test_a_verdict_is_drawn_with_its_words(answers: dict[str, Answer]) -> None:
    title = " ".join(answers["refused"].plot().get_title().split())
    assert title.startswith("inconsistent")
    refused = answers["refused"]
    assert isinstance(refused, Realizability)
    assert refused.witness is not None
    assert refused.witness.statement[:30] in title


def test_axes_may_be_given(answers: dict[str, Answer]) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert answers["geometry"].plot(axes) is axes


@pytest.mark.parametrize("dimensions", [2, 3])
def test_class_means_keep_their_angles(answers: dict[str, Answer], dimensions: int) -> None:
    geometry = answers["geometry"]
    assert isinstance(geometry, Geometry)
    axes = geometry.plot_means(dimensions=dimensions)  # type: ignore[arg-type]
    assert len(axes.lines) == 4
    points = factor(geometry.cosines, 3)
    np.testing.assert_allclose(points @ points.T, geometry.cosines, atol=1e-6)


def test_few_curves_or_many_cells(answers: dict[str, Answer]) -> None:
    grid = answers["map"]
    assert isinstance(grid, CollapseMap)
    assert len(grid.plot().lines) == 2
    many = CollapseMap.model_validate(
        {
            "x": {"name": "temperature", "values": list(np.linspace(0.1, 1, 12))},
            "y": {"name": "classes", "values": list(range(2, 22))},
            "quantity": "largest_cosine",
            "values": np.zeros((20, 12)),
            "reasons": [[None] * 12] * 20,
        }
    )
    assert len(many.plot().images) == 1


def test_curves_of_a_training() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    points = [{"step": 0, "value": 1.0}, {"step": 10, "value": None}]
    metrics = JobMetrics.model_validate({"series": {"loss": points, "nc1": points[:1]}})
    assert len(metrics.plot().lines) == 2
    assert len(metrics.plot(names=["nc1"]).lines) == 1
    assert metrics.steps("loss").tolist() == [0, 10]
    table = metrics.to_dataframe()
    assert list(table.columns) == ["loss", "nc1"]
    assert list(table.index) == [0, 10]
    assert np.isnan(table.loc[10, "nc1"])


def test_a_training_is_drawn_beside_its_prediction(tmp_path: Path) -> None:
    summary = TrainingSummary.model_validate(
        {
            "steps": 60,
            "classes": [{"label": "ant", "count": 3}, {"label": "bee", "count": 1}],
            "metrics": {"loss": 4.2, "nc1": None},
            "predicted": {"gram": [[1, -1], [-1, 1]], "risk": 0.1, "warnings": []},
            "measured_gram": [[1, -0.5], [-0.5, 1]],
            "verdict": "close",
            "device": "cpu",
        }
    )
    assert summary.facts() == {"steps": 60, "loss": 4.2, "verdict": "close", "device": "cpu"}
    assert repr(summary) == "TrainingSummary(steps=60): close"
    assert load(summary.save(tmp_path / "s.npz")) == summary
    pytest.importorskip("matplotlib")
    figure: Any = summary.plot().figure
    assert len([axes for axes in figure.axes if axes.get_title()]) == 3
    pytest.importorskip("pandas")
    assert list(summary.to_dataframe()["label"]) == ["ant", "bee"]


def test_large_geometries_are_shown_in_part(client: Client) -> None:
    large = client.optimal_geometry(class_counts=[100] * 700 + [10] * 700)
    assert "the first 16 of 1400 classes" in large._repr_html_()
    np.testing.assert_array_equal(large.cosine_rows(699, 702), large.cosines[699:702])


def test_tables(answers: dict[str, Answer]) -> None:
    pytest.importorskip("pandas")
    assert answers["geometry"].to_dataframe().shape == (4, 4)
    assert answers["map"].to_dataframe().shape == (2, 3)
    assert list(answers["diagnosis"].to_dataframe().index) == [0, 1, 2, 3]
    assert answers["threshold"].to_dataframe().shape[0] == 1
    assert answers["realizable"].to_dataframe().shape[0] == 5


def test_diagnoses_say_their_verdict(answers: dict[str, Answer]) -> None:
    found = answers["diagnosis"]
    assert isinstance(found, Diagnosis)
    assert found.verdict in repr(found)
