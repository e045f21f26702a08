"""A training without a service: its folder, its refusals, and how it goes on."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.training_spec import TrainingSpec
from worker.training.__main__ import STOPPED, main
from worker.training.checkpoint import pack
from worker.training.folder import FolderContext

CLOUDS = {"generator": {"classes": 3, "samples_per_class": 12, "dimension": 4}}
RUN: dict[str, Any] = {
    "data": CLOUDS,
    "encoder": {"name": "linear"},
    "loss": {"name": "supcon"},
    "steps": 6,
    "evaluate_every": 3,
}


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The command takes over signals; give them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def command(folder: Path, document: Any, *more: str | Path) -> int:
    spec = folder / "spec.json"
    spec.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return main([str(spec), str(folder / "result"), *map(str, more)])


def test_a_run_leaves_what_a_job_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, RUN) == 0
    names = {path.name for path in (tmp_path / "result").iterdir()}
    artifacts = {"embeddings.npy", "labels.npy", "checkpoint.safetensors", "result.json"}
    assert names == artifacts | {f"report.{end}" for end in ("html", "json", "png")} | {
        "run.json",
        ".lock",
        "resume.safetensors",
    }
    result = json.loads((tmp_path / "result" / "result.json").read_text())
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said[:3]] == ["step 0", "step 3", "step 6"]
    assert said[3:] == [result["verdict"], *result["reasons"]]
    assert len(said) > 5
    assert np.load(tmp_path / "result" / "embeddings.npy").shape == (36, 3)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longer = {**RUN, "steps": 100_000, "evaluate_every": 100_000}
    timer = threading.Timer(2.0, lambda: signal.raise_signal(signal.SIGTERM))
    timer.start()
    assert command(tmp_path, longer) == STOPPED
    assert "goes on from" in capsys.readouterr().err
    assert not (tmp_path / "result" / "result.json").exists()
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    assert command(tmp_path, longer) == STOPPED
    assert "Going on from step" in capsys.readouterr().err


def test_a_folder_is_for_one_set_of_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, without = tmp_path / "samples.npz", {key: value for key, value in RUN.items() if key != "data"}
    for seed, expected in ((0, 0), (0, 0), (1, 2)):
        np.savez(file, x=np.random.default_rng(seed).standard_normal((20, 3)), y=np.arange(20) % 2)
        assert command(tmp_path, without, "--data", file) == expected
    assert "another spec" in capsys.readouterr().err


def test_a_folder_has_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = TrainingSpec.model_validate({**RUN, "processes": 1})
    with FolderContext(tmp_path / "result", None).held_for(spec):
        assert command(tmp_path, RUN) == 2
    assert "in use by another run" in capsys.readouterr().err
    assert command(tmp_path, RUN) == 0


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert command(tmp_path, RUN) == 0
    said = capsys.readouterr().err
    assert f"Nothing keeps another run from {tmp_path / 'result'}: No locks available." in said


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, RUN) == 0
    resume = tmp_path / "result" / "resume.safetensors"
    for content in (
        pack({"step": 1}),
        pack([1, 2]),
        (tmp_path / "result/checkpoint.safetensors").read_bytes(),
    ):
        resume.write_bytes(content)
        assert command(tmp_path, RUN) == 2
        assert capsys.readouterr().err == "the checkpoint is that of another run\n"
    resume.write_bytes(b"no checkpoint at all")
    assert command(tmp_path, RUN) == 0
    assert "Starting over: the checkpoint cannot be read" in capsys.readouterr().err


def test_a_refused_run_leaves_the_folder_free(tmp_path: Path) -> None:
    assert command(tmp_path, {**RUN, "encoder": {"name": "cnn"}}) == 2
    assert command(tmp_path, RUN) == 0


def test_a_spec_may_lie_in_its_own_folder(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(RUN))
    for _ in range(2):
        assert main([str(spec), str(tmp_path)]) == 0
    assert json.loads(spec.read_text()) == RUN


def test_a_folder_is_for_one_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, RUN) == 0
    assert command(tmp_path, RUN) == 0
    assert command(tmp_path, {**RUN, "seed": 1}) == 2
    assert "another spec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "the spec: Expecting property name"),
        ("[]", "must be an object"),
        ({**RUN, "steps": "six"}, "/steps: must be an integer"),
        ({**RUN, "data": []}, "/data: must be an object"),
        ({**RUN, "processes": 2}, "/processes: torch's launcher started 1"),
        ({**RUN, "data": {"dataset": "ds_01KBCJ6ZT0000000000000000Z"}}, "/data/dataset: "),
        ({"data": {"class_counts": [3, 0]}}, "/data/class_counts/1"),
        ({**RUN, "encoder": {"name": "cnn"}}, "/encoder/name: needs images"),
    ],
)
def test_refusals_name_the_field(
    document: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, document) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "result" / "result.json").exists()


def classes(folder: Path) -> dict[int | str, int]:
    """Samples of each class, as the result says."""
    result = json.loads((folder / "result" / "result.json").read_text())
    return {each["label"]: each["count"] for each in result["classes"]}


def test_samples_come_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    good = tmp_path / "good.npz"
    np.savez(good, x=rng.standard_normal((20, 3)), y=np.repeat(["a", "b"], 10))
    without = {key: value for key, value in RUN.items() if key != "data"}
    assert command(tmp_path, {**without, "data": {"class_counts": [10, 5]}}, "--data", good) == 0
    assert classes(tmp_path) == {"a": 10, "b": 5}
    table = tmp_path / "table.csv"
    table.write_text("u,v,label\n" + "".join(f"{i},{i * i},{i % 2}\n" for i in range(12)))
    shutil.rmtree(tmp_path / "result")
    assert command(tmp_path, without, "--data", table) == 0
    assert classes(tmp_path) == {0: 6, 1: 6}


BAD_FILES: dict[str, bytes | dict[str, Any]] = {
    "empty": b"",
    "truncated": b"PK\x03\x04 and no more",
    "other": {"images": np.zeros(3)},
    "pickled": {"x": np.array([{}], dtype=object), "y": np.zeros(1)},
    "scalar": {"x": np.float64(1.0), "y": np.zeros(1)},
    "lengths": {"x": np.zeros((4, 2)), "y": np.zeros(3, dtype=int)},
    "nan": {"x": np.full((4, 2), np.nan), "y": np.arange(4)},
    "labels": {"x": np.zeros((4, 2)), "y": np.full(4, np.nan)},
    "bytes": {"x": np.zeros((4, 2)), "y": np.array([b"a"] * 4)},
    "dates": {"x": np.zeros((4, 2)), "y": np.array(["2026-01-01"] * 4, dtype="datetime64[D]")},
    "features": {"x": np.zeros((4, 0)), "y": np.arange(4)},
}


@pytest.mark.parametrize("name", [*BAD_FILES, "missing"])
def test_bad_samples_are_refused_before_anything_is_done(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "samples.npz"
    content = BAD_FILES.get(name)
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.savez(file, **content)
    without = {key: value for key, value in RUN.items() if key != "data"}
    assert command(tmp_path, without, "--data", file) == 2
    said = capsys.readouterr().err
    assert said.startswith("/")
    assert "Traceback" not in said
    assert not (tmp_path / "result").exists()
