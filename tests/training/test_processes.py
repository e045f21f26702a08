"""Two processes that share a run find what one finds; they are started by torch's own launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from memory_context import MemoryContext
from shared_runs import RUNS, STOP_AFTER, outcome, spec_of

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec
from worker.training.plan import make_plan
from worker.training.processes import ALONE, Next, PeerLost, Processes
from worker.training.trainer import train

HERE = Path(__file__).parent
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SECONDS = 240


def launch(*arguments: str | Path) -> str:
    """The output of two processes that torch's launcher started."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*LAUNCHER, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes found, by run."""
    folder = tmp_path_factory.mktemp("shared")
    launch(HERE / "shared_runs.py", folder)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in RUNS}


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"convolutions"}))
def test_two_processes_find_what_one_finds(name: str, found: dict[str, Any]) -> None:
    alone = MemoryContext()
    expected = outcome(alone, train(spec_of(name), alone))
    shared = found[name]["whole"]
    assert (shared["processes"], expected["processes"]) == (2, 1)
    assert shared["embeddings"] == pytest.approx(expected["embeddings"], abs=1e-9)
    assert list(shared["series"]) == [str(step) for step in expected["series"]]
    for step, values in expected["series"].items():
        found_values = shared["series"][str(step)]
        missing = {metric for metric, value in values.items() if value is None}
        assert missing == {metric for metric, value in found_values.items() if value is None}
        for metric in set(values) - missing:
            assert found_values[metric] == pytest.approx(values[metric], rel=1e-6, abs=1e-9), metric


def test_normalization_sees_the_part_of_a_process(found: dict[str, Any]) -> None:
    alone = MemoryContext()
    expected = outcome(alone, train(spec_of("convolutions"), alone))
    shared = found["convolutions"]["whole"]
    last = [each["series"][step]["loss"] for each, step in ((shared, "6"), (expected, 6))]
    assert last[0] != last[1]
    assert last[0] == pytest.approx(last[1], rel=0.2)
    assert np.isfinite(shared["embeddings"]).all()


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_shared_run_resumes_bit_for_bit(name: str, found: dict[str, Any]) -> None:
    whole, resumed = found[name]["whole"], found[name]["resumed"]
    assert found[name]["stopped"] == {"steps": STOP_AFTER}
    assert resumed["embeddings"] == whole["embeddings"]
    assert resumed["series"]["6"] == whole["series"]["6"]


def test_the_command_shares_a_run(tmp_path: Path) -> None:
    document = {"data": {}, "encoder": {"name": "linear"}, "loss": {"name": "supcon"}, "steps": 4}
    spec, data, folder = tmp_path / "spec.json", tmp_path / "data.npz", tmp_path / "result"
    spec.write_text(json.dumps({**document, "processes": 2, "precision": "float64"}))
    rng = np.random.default_rng(0)
    np.savez(data, x=rng.standard_normal((30, 5)), y=np.arange(30) % 3)
    said = launch("-m", "worker.training", spec, folder, "--data", data)
    assert "step 4: loss" in said
    result = json.loads((folder / "result.json").read_text())
    assert (result["processes"], result["steps"]) == (2, 4)
    assert np.load(folder / "embeddings.npy").shape == (30, 3)


def test_parts_cover_every_item_once() -> None:
    for size in (1, 2, 3, 7):
        for items in (size, size + 1, 64, 65):
            parts = [Processes(rank, size).part(items) for rank in range(size)]
            rows = np.concatenate([np.arange(items)[part] for part in parts])
            assert rows.tolist() == list(range(items))
            lengths = [part.stop - part.start for part in parts]
            assert max(lengths) - min(lengths) <= 1
            assert min(lengths) >= 1


def test_one_process_exchanges_nothing() -> None:
    z = torch.ones(3, 2, requires_grad=True)
    assert ALONE.gather(z, 3) is z
    assert ALONE.first_decides(Next.STEP) is Next.STEP
    assert ALONE.from_first(b"abc") == b"abc"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("Connection closed by peer [127.0.0.1]:1234\nmore"), PeerLost),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), torch.OutOfMemoryError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), RuntimeError),
    ],
)
def test_the_end_of_memory_is_no_lost_peer(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(torch.distributed, "broadcast", fail)
    with pytest.raises(expected) as raised:
        Processes(0, 2).first_decides(Next.STEP)
    assert type(raised.value) is expected
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"processes": 2}, "the exact objective is not shared"),
        ({"processes": 9, "objective": "sampled", "batch_size": 8}, "fewer samples"),
        ({"chunk_size": 8}, "no batches"),
    ],
)
def test_runs_that_cannot_be_shared(fields: dict[str, Any], message: str) -> None:
    spec = TrainingSpec.model_validate({"data": {"class_counts": [8, 4]}, **fields})
    with pytest.raises(InvalidInput, match=message) as error:
        spec.check()
    assert error.value.field[0] in fields


def test_a_batch_smaller_than_its_processes() -> None:
    spec = TrainingSpec.model_validate({"data": {"class_counts": [2, 1]}, "objective": "sampled"})
    with pytest.raises(InvalidInput, match="cannot be shared by 4"):
        make_plan(spec, [2, 1], Processes(0, 4))


def test_normalization_needs_two_samples_in_each_process() -> None:
    document = {"data": {"builtin": "digits"}, "encoder": {"name": "cnn"}, "loss": {"name": "supcon"}}
    spec = TrainingSpec.model_validate({**document, "batch_size": 3})
    make_plan(spec, [9] * 10, Processes(0, 1))
    with pytest.raises(InvalidInput, match="two samples") as error:
        make_plan(spec, [9] * 10, Processes(0, 2))
    assert error.value.field == ("batch_size",)
