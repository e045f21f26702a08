"""A runner: its reports, its files, its limits, and how it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_kinds import state_after
from worker_helpers import eventually, next_report, order, reports, start_runner

from jobs import paths
from jobs.ids import new_job_id
from jobs.store import ObjectStore
from worker.messages import Order
from worker.runner_process import RunnerProcess

MIB = 2**20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path_factory.mktemp('store')}")


@pytest.fixture
def runner(store: ObjectStore) -> Iterator[RunnerProcess]:
    runner = start_runner(store.url)
    yield runner
    runner.kill()


def steps_spec(steps: int, seconds: float = 0.0, checkpoint_every: int = 10) -> bytes:
    return json.dumps({"steps": steps, "seconds": seconds, "checkpoint_every": checkpoint_every}).encode()


def test_computations_are_stored_as_they_would_be_sent(store: ObjectStore, runner: RunnerProcess) -> None:
    first, second = new_job_id(), new_job_id()
    for job_id in (first, second):  # the runner is used again
        order(runner, job_id, "collapse_threshold", b'{"classes": 10}')
        accepted, done = reports(runner)
        assert accepted["type"] == "accepted"
        assert not accepted["cooperative"]
        assert done["type"] == "done"
        assert done["reusable"]
    answer = store.get(paths.artifact(first, 1, "result.json"))
    assert done["artifacts"] == [
        {"name": "result.json", "bytes": len(answer), "media_type": "application/json"}
    ]
    assert 0 < json.loads(answer)["exact_threshold"] < 1
    assert store.get(paths.artifact(second, 1, "result.json")) == answer


def test_large_answers_come_as_archives_too(store: ObjectStore, runner: RunnerProcess) -> None:
    job_id = new_job_id()
    order(runner, job_id, "optimal_geometry", b'{"class_counts": [9, 3, 1]}')
    names = [artifact["name"] for artifact in reports(runner)[-1]["artifacts"]]
    assert names == ["result.json", "result.npz"]
    assert store.get(paths.artifact(job_id, 1, "result.npz"))[:2] == b"PK"


def test_invalid_specs_fail_with_their_field(store: ObjectStore, runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "collapse_threshold", b'{"classes": -1}')
    failed = reports(runner)[-1]
    assert failed["type"] == "failed"
    assert failed["reason"]["code"] == "invalid_data"
    assert "/classes" in failed["reason"]["message"]


def test_unknown_kinds_fail(runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "alchemy")
    (failed,) = reports(runner)
    assert failed["reason"] == {"code": "invalid_data", "message": "'alchemy' is no kind of job here"}


def test_mistakes_of_the_software_keep_their_text_in_the_log(runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "mistake")
    failed = reports(runner)[-1]
    assert failed["reason"]["code"] == "internal"
    assert "RuntimeError" in failed["reason"]["message"]
    assert "secret" not in failed["reason"]["message"]


def test_numbers_that_are_not_finite_become_null_with_a_reason(runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "nan")
    _, metrics, failed = reports(runner)
    assert metrics["data"] == {
        "step": 1,
        "values": {"loss": None, "nc1": None, "r2": 0.5, "gap": None},
        "reasons": {"loss": "not a finite number: nan", "nc1": "not a finite number: inf"},
    }
    assert failed["reason"] == {"code": "diverged", "message": "the loss became nan in step 2"}


def test_names_of_artifacts_cannot_leave_their_folder(store: ObjectStore, runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "wrong_result")
    assert reports(runner)[-1]["type"] == "failed"
    assert not any("escape" in name for name in store.names(""))


def test_output_of_libraries_does_not_disturb_the_conversation(
    store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    runner = start_runner(store.url, CUDA_VISIBLE_DEVICES="3")
    job_id = new_job_id()
    order(runner, job_id, "talk")
    assert [report["type"] for report in reports(runner)] == ["accepted", "log", "done"]
    assert json.loads(store.get(paths.artifact(job_id, 1, "result.json"))) == {"cuda": "3"}
    runner.kill()
    output = capfd.readouterr()
    assert output.out == ""
    for text in ("printed", "written to 1", "written to 2", "logged", "warned"):
        assert text in output.err


def test_checkpoints_keep_the_last_two_and_let_another_attempt_go_on(store: ObjectStore) -> None:
    job_id = new_job_id()
    first = start_runner(store.url)
    order(first, job_id, "steps", steps_spec(1000, seconds=0.001))
    while next_report(first)[0].get("data", {}).get("step") != 35:
        first.send(Order.FLUSHED, {"stored": True})
    first.kill()
    names = store.names(paths.checkpoints(job_id, 1))
    assert len(names) == 2
    saved = int(Path(names[-1]).stem)

    second = start_runner(store.url)
    order(second, job_id, "steps", steps_spec(50), attempt=2)
    found = reports(second)
    assert found[1] == {"type": "resumed", "data": {"step": saved, "attempt": 1}}
    assert [r["data"]["step"] for r in found if r["type"] == "metrics"] == list(range(saved + 1, 51))
    result = json.loads(store.get(paths.artifact(job_id, 2, "result.json")))
    assert result == {"value": state_after(50)}
    eventually(lambda: second.ended)  # it gives its device back
    second.kill()


def test_a_checkpoint_needs_its_events_stored(store: ObjectStore, runner: RunnerProcess) -> None:
    job_id = new_job_id()
    order(runner, job_id, "steps", steps_spec(10))
    found = []
    while not found or found[-1]["type"] != "done":
        found.append(next_report(runner)[0])
        if found[-1]["type"] == "flush":
            runner.send(Order.FLUSHED, {"stored": False})
    messages = [report["data"]["message"] for report in found if report["type"] == "log"]
    assert len(messages) == 1
    assert "step 10" in messages[0]
    assert store.names(paths.checkpoints(job_id, 1)) == []


@pytest.mark.parametrize(("why", "checkpointed"), [("cancel", False), ("shutdown", True)])
def test_it_stops_when_it_is_told_to(
    why: str, checkpointed: bool, store: ObjectStore, runner: RunnerProcess
) -> None:
    job_id = new_job_id()
    order(runner, job_id, "steps", steps_spec(10**6, seconds=0.001, checkpoint_every=10**6))
    while next_report(runner)[0]["type"] != "metrics":
        pass
    runner.send(Order.STOP, {"why": why})
    assert reports(runner)[-1]["type"] == "stopped"
    assert bool(store.names(paths.checkpoints(job_id, 1))) is checkpointed


def test_memory_beyond_the_limit_is_a_failure(store: ObjectStore) -> None:
    runner = start_runner(store.url, memory_bytes=1024 * MIB)
    order(runner, new_job_id(), "memory")
    failed = reports(runner)[-1]
    runner.kill()
    assert failed["type"] == "failed"
    assert failed["reason"]["code"] == "out_of_memory"


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        ("die", b"{}", -signal.SIGKILL),
        ("die", json.dumps({"signal": signal.SIGSEGV}).encode(), -signal.SIGSEGV),
        ("exit", b"{}", 7),
    ],
)
def test_sudden_death_is_noticed(kind: str, spec: bytes, status: int, runner: RunnerProcess) -> None:
    order(runner, new_job_id(), kind, spec)
    with pytest.raises(EOFError):
        reports(runner)
    runner.kill()
    assert runner.exit_status == status


def test_it_can_be_killed_while_native_code_holds_the_interpreter(runner: RunnerProcess) -> None:
    order(runner, new_job_id(), "native_loop")
    while next_report(runner)[0]["type"] != "progress":
        pass
    runner.send(Order.STOP, {"why": "cancel"})
    assert runner.receive(0.2) is None
    assert runner.memory() > MIB
    runner.kill()
    assert runner.exit_status == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(runner.pid, 0)
