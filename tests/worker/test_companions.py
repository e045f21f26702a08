"""Trainings that several processes of one worker share: done, stopped, and hit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from worker_helpers import Bench, eventually

from anglewise.errors import InvalidInput
from jobs import paths
from jobs.record import Step
from jobs.states import Reason, ReasonCode, State
from jobs.training_spec import TrainingSpec
from worker import companion_process
from worker import companions as companions_module
from worker.companion import BYSTANDER
from worker.companion_process import Companion, CompanionFailed
from worker.companions import wanted_processes
from worker.devices import runner_environment
from worker.failures import reason_for
from worker.training.processes import PeerLost

MakeBench = Callable[..., Bench]
SHARED: dict[str, Any] = {
    "data": {"generator": {"classes": 3, "samples_per_class": 20, "dimension": 4}},
    "encoder": {"name": "linear"},
    "loss": {"name": "supcon"},
    "precision": "float64",
    "device": "cpu",
    "processes": 2,
}
LONG = {**SHARED, "steps": 10**6, "evaluate_every": 10**5, "checkpoint_every": 50}


def companions(here: Bench) -> list[int]:
    """Processes started by the runner of a bench."""
    runner = here.supervisor._runner
    if runner is None or runner.ended:
        return []
    text = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text()
    return [int(word) for word in text.split()]


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_job_shared_by_two_processes_survives_the_loss_of_one(bench: MakeBench) -> None:
    here = bench()
    steps = {**SHARED, "steps": 200, "evaluate_every": 100, "checkpoint_every": 10}
    job_id = here.submit("training", **steps)
    thread = here.begin(job_id)
    eventually(lambda: here.journal.store.names(paths.checkpoints(job_id, 1)))
    os.kill(companions(here)[0], signal.SIGKILL)
    thread.join(60)
    assert here.journal.read(job_id).state is State.QUEUED
    second = here.supervisor.work(job_id)
    assert second is not None
    assert (second.state, second.attempt, second.losses) == (State.SUCCEEDED, 2, 1)
    resumed = here.result(job_id)
    told = [event.data["message"] for event in here.events(job_id) if event.type == "log"]
    assert any("Going on from step" in message for message in told)

    whole_id = here.submit("training", **steps)
    done = here.supervisor.work(whole_id)
    assert done is not None
    assert done.state is State.SUCCEEDED
    whole = here.result(whole_id)
    assert (whole["processes"], whole["steps"]) == (2, 200)
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["measured_gram"] == whole["measured_gram"]


@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_no_companion_outlives_its_run(how: str, bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("training", **LONG)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    (companion,) = companions(here)
    runner = here.supervisor._runner
    assert runner is not None
    assert runner.memory() > 2**20
    if how == "cancel":
        here.journal.request_cancel(job_id)
    else:
        os.kill(runner.pid, signal.SIGKILL)
    thread.join(30)
    last = here.journal.read(job_id).entries[-1].step
    assert last is {"cancel": Step.CANCELLED, "kill": Step.LOST}[how]
    eventually(lambda: gone(companion), 10)


def test_a_long_spec_reaches_the_companions(bench: MakeBench) -> None:
    here = bench()
    targets = [[float(i * j) for j in range(4096)] for i in range(3)]
    targets = [[value + 0.123456789 for value in row] * 16 for row in targets]
    loss = {"name": "y_aware", "sigma": 1e5, "temperature": 0.5, "targets": targets}
    job_id = here.submit("training", **{**SHARED, "loss": loss, "steps": 3})
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.SUCCEEDED
    assert here.result(job_id)["processes"] == 2


def test_a_companion_that_never_joins_ends_the_attempt(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("training", **LONG)
    thread = here.begin(job_id)
    os.kill(eventually(lambda: companions(here))[0], signal.SIGKILL)  # it still loads torch
    thread.join(30)
    assert here.journal.read(job_id).entries[-1].step is Step.LOST


def test_a_companion_says_why_it_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reason = Reason(code=ReasonCode.OUT_OF_MEMORY, message="it needed more memory than it may use")
    module = tmp_path / "companion.py"
    module.write_text(f"print({reason.model_dump_json()!r}); raise SystemExit(1)", encoding="utf-8")
    monkeypatch.setattr(companion_process, "REASON_SECONDS", 600.0)  # it would end this process
    start = subprocess.Popen

    def instead(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([command[0], str(module)], **options)

    monkeypatch.setattr(subprocess, "Popen", instead)
    companion = Companion(1, {"spec": "x" * 200_000})  # which it does not even read
    try:
        with pytest.raises(CompanionFailed, match="more memory") as error:
            companion.wait_ready()
    finally:
        companion.end()
    assert reason_for(error.value) == reason


def test_a_bystander_is_not_the_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of three that end, one lost its connection, one says why, and one has nothing to say yet."""
    reason = Reason(code=ReasonCode.OUT_OF_MEMORY, message="it needed more memory than it may use")
    scripts = [
        f"raise SystemExit({BYSTANDER})",
        f"print({reason.model_dump_json()!r}); raise SystemExit(1)",
        "import time; time.sleep(60)",
    ]
    start = subprocess.Popen
    monkeypatch.setattr(companion_process, "REASON_SECONDS", 600.0)
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: start([command[0], "-c", scripts.pop(0)], **options)
    )
    group = [Companion(rank, {}) for rank in (1, 2, 3)]
    try:
        with pytest.raises(CompanionFailed, match="more memory"):
            companions_module._explain(PeerLost("Connection closed by peer"), group)
    finally:
        for companion in group:
            companion.end()


def test_a_run_that_diverges_says_so(bench: MakeBench) -> None:
    here = bench()
    optimizer = {"name": "sgd", "lr": 1e4}
    loss = {"name": "euclidean", "sigma": 1.0, "temperature": 1e-3}
    job_id = here.submit("training", **{**SHARED, "loss": loss, "optimizer": optimizer, "steps": 500})
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.reason is not None
    assert (record.state, record.reason.code) == (State.FAILED, "diverged")


@pytest.mark.parametrize(
    ("fields", "gpus", "expected"),
    [
        ({}, 0, 1),
        ({"processes": 3}, 0, 3),
        ({}, 2, 2),
        ({"processes": 1}, 2, 1),
        ({"device": "cpu"}, 2, 1),
        ({"batch_size": 5}, 4, 2),
        ({"batch_size": 1}, 4, 1),
        ({"data": {"generator": {"classes": 2, "samples_per_class": 3}}}, 4, 3),
        ({"objective": "exact", "encoder": {"name": "free"}}, 4, 1),
    ],
)
def test_how_many_processes_share_a_run(
    fields: dict[str, Any], gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    document = {key: value for key, value in SHARED.items() if key not in ("processes", "device")}
    assert wanted_processes(TrainingSpec.model_validate({**document, **fields})) == expected


@pytest.mark.parametrize(
    ("gpus", "processes", "message"), [(1, 2, "ANGLEWISE_DEVICES"), (0, 5, "4 processor cores")]
)
def test_more_processes_than_there_is_room_for(
    gpus: int, processes: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    spec = TrainingSpec.model_validate({**SHARED, "device": "auto", "processes": processes})
    with pytest.raises(InvalidInput, match=message) as error:
        wanted_processes(spec)
    assert error.value.field == ("processes",)


def test_a_worker_may_have_several_gpus() -> None:
    assert runner_environment("cuda:0+2", 1, {})["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert (
        runner_environment("cuda:0+2", 1, {"CUDA_VISIBLE_DEVICES": "5,6,7"})["CUDA_VISIBLE_DEVICES"] == "5,7"
    )
