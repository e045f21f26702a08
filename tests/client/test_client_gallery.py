"""The examples of the client do what they say, on real digits and real class counts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from anglewise_client import Client

EXAMPLES = Path(__file__).parents[2] / "clients/python/examples"
METRICS = {"nc1", "nc2", "gram_distance_max", "minority_collapse_index", "entropic_gap", "r2_procrustes"}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_every_picture_of_the_gallery_is_drawn(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = importlib.import_module("gallery").main(client, tmp_path)
    assert [path.stem for path in written] == ["angles", "means", "collapse", "verdict", "diagnosis"]
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5_000
    shown = {path.name for path in (EXAMPLES / "gallery").glob("*.png")}
    assert shown == {path.name for path in written}


def test_a_plain_loop_approaches_the_prediction_and_ends_with_a_verdict(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monitor = importlib.import_module("torch_loop").main(client, epochs=20)
    first, last = (eval(line.rpartition(" ")[0]) for line in capsys.readouterr().out.splitlines())
    assert {f"anglewise/{name}" for name in METRICS} <= set(first)
    assert last["anglewise/gram_distance_fro"] < first["anglewise/gram_distance_fro"]
    assert last["anglewise/r2_procrustes"] > first["anglewise/r2_procrustes"] > 0.5
    assert "class" in monitor.last.verdict.lower()


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_every_metric_and_ends_with_a_verdict(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
    }
    monitor, trainer = importlib.import_module("lightning_digits").main(client, epochs=20, **quiet)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert {f"anglewise/{name}" for name in METRICS} <= set(logged)
    assert logged["anglewise/r2_procrustes"] > 0.5
    assert monitor.last.verdict
