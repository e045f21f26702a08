"""The command line, called as a function: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from client_helpers import AppTransport, Script, answer, job, problem, sse

from anglewise_client import Client, load
from anglewise_client.cli import run
from anglewise_client.cli.compute import axis

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(client: Client, running: Any, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command against the real application; its exit status, output and messages."""

    def called(*arguments: Any) -> tuple[int, str, str]:
        code = run([str(a) for a in ("--url", "http://testserver", *arguments)], AppTransport(running))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return called


@pytest.fixture
def scripted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command against prepared answers."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def called(answers: list[Any], *arguments: Any) -> tuple[int, str, str, Script]:
        server = Script(answers)
        code = run([str(a) for a in arguments], httpx2.MockTransport(server))
        printed = capsys.readouterr()
        return code, printed.out, printed.err, server

    return called


def test_geometry(call: Call) -> None:
    code, out, err = call("geometry", 900, 90, 10, "--temperature", 0.5, "--sampling", "unsupervised")
    assert code == 0
    assert "nearest class" in out
    assert "certified" in out
    assert err == ""


def test_geometry_of_many_classes(call: Call) -> None:
    code, out, _ = call("geometry", ",".join(["50"] * 60 + ["5"] * 60))
    assert code == 0
    assert "80 more" in out


def test_geometry_of_a_file_as_json(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("a\na\na\nb\nb\nc\n")
    code, out, err = call("geometry", path, "--json", "-k", "infinite")
    assert code == 0
    assert np.array(json.loads(out)["gram"]).shape == (3, 3)
    assert err == f"read 6 labels of 3 classes in {path}\n"


def test_geometry_into_files(call: Call, tmp_path: Path) -> None:
    code, _, err = call(
        "geometry", "9,3,1", "--plot", tmp_path / "g.png", "--save", tmp_path / "g.npz", "--loss", "logistic"
    )
    assert code == 0
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    assert load(tmp_path / "g.npz").facts()["classes"] == 3
    assert "saved to" in err
    assert "drawn to" in err


def test_threshold(call: Call) -> None:
    code, out, _ = call("threshold", 10, "-T", 0.1)
    assert code == 0
    assert "0.999955" in out
    assert json.loads(call("threshold", 10, "--json")[1])["classes"] == 10


def test_map(call: Call, tmp_path: Path) -> None:
    code, out, _ = call(
        *("map", "--x", "temperature=0.1,1", "--y", "majority_proportion=0.3:0.9:3", "--classes", 4),
        *("--plot", tmp_path / "m.png"),
    )
    assert code == 0
    assert "largest cosine" in out
    assert (tmp_path / "m.png").is_file()


def test_realizability(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.array([[1, 0.8, 0.3], [0.8, 1, 0.3], [0.3, 0.3, 1]]))
    code, out, _ = call("realizability", tmp_path / "w.npy", "-T", 0.5)
    assert code == 0
    assert "realizable" in out
    (tmp_path / "w.txt").write_text("1, 2, 1\n1, 1, 1\n1 1 1\n")
    code, out, _ = call("realizability", tmp_path / "w.txt")
    assert code == 0
    assert "inconsistent" in out
    assert "witness" in out
    code, out, _ = call("realizability", tmp_path / "w.txt", "--best")
    assert code == 0
    assert "entropy gap" in out
    assert call("realizability", tmp_path / "w.txt", "--log", "--metric", "euclidean")[0] == 0


def test_weights(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("weights", 6, 3, 1, "-T", 0.5)
    assert code == 0
    assert "epsilon" in out
    (tmp_path / "gram.txt").write_text("1 0.2\n0.2 1\n")
    assert json.loads(call("weights", "--gram", tmp_path / "gram.txt", "--json")[1])["level"] == "item"
    assert call("weights")[0] == 2
    assert call("weights", 6, 3, "--gram", tmp_path / "gram.txt")[0] == 2


def test_diagnose(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    embeddings = np.eye(4)[labels] + 0.1 * rng.normal(size=(60, 4))
    np.savez(tmp_path / "e.npz", embeddings=embeddings, labels=labels)
    code, out, _ = call("diagnose", tmp_path / "e.npz", "-T", 0.5, "--plot", tmp_path / "d.png")
    assert code == 0
    assert "verdict" in out
    assert "to predicted" in out
    np.save(tmp_path / "e.npy", embeddings)
    (tmp_path / "l.txt").write_text("\n".join(map(str, labels)))
    code, out, _ = call(
        *("diagnose", tmp_path / "e.npy", "--labels", tmp_path / "l.txt", "--json"),
        *("--prediction", '{"weights": {"name": "supcon"}, "temperature": 0.5}'),
    )
    assert json.loads(out)["predicted"]["metric"] == "cosine"
    code, out, _ = call("diagnose", tmp_path / "e.npz", "--measure-only", "--raw", "--json")
    assert json.loads(out)["predicted"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("geometry",),
        ("geometry", "x"),
        ("geometry", "3", "--loss", "mystery"),
        ("geometry", "3", "2", "-k", "none"),
        ("geometry", "3", "2", "--save", "answer.pkl"),
        ("geometry", "3", "2", "--temperature", "hot"),
        ("geometry", "3", "2", "--margin", "1"),
        ("geometry", "5", "-1"),
        ("threshold",),
        ("threshold", "1"),
        ("map", "--x", "temperature", "--y", "classes=3"),
        ("map", "--x", "temperature=a,b", "--y", "classes=3"),
        ("realizability", "missing.npy"),
        ("diagnose", "missing.npz"),
        ("diagnose", "missing.npz", "--prediction", "[1]"),
        ("mystery",),
        ("--mystery",),
    ],
    ids=" ".join,
)
def test_wrong_calls_end_with_2(call: Call, arguments: tuple[str, ...]) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert err


def test_the_service_names_the_wrong_field(call: Call) -> None:
    code, _, err = call("geometry", "3", "2", "--temperature", "-1")
    assert code == 2
    assert "/loss/temperature" in err


def test_no_service_ends_with_3(scripted: Callable[..., Any]) -> None:
    code, out, err, _ = scripted([httpx2.ConnectError("refused")], "--url", "http://127.0.0.1:9", "health")
    assert code == 3
    assert out == ""
    assert "python3 run.py serve" in err
    assert "http://127.0.0.1:9" in err


def test_failures_of_the_service_end_with_1(scripted: Callable[..., Any]) -> None:
    assert scripted([problem(500, "internal_error")], "geometry", 3, 2)[0] == 1
    assert scripted([httpx2.Response(200, text="hello")], "geometry", 3, 2)[0] == 1


def test_too_much_points_to_jobs(scripted: Callable[..., Any]) -> None:
    code, _, err, _ = scripted([problem(422, "too_large")], "geometry", 3, 2)
    assert code == 2
    assert "anglewise jobs submit" in err


def test_help_and_version(call: Call) -> None:
    for arguments in (["--help"], ["-h"], ["geometry", "--help"], ["jobs", "--help"], ["datasets", "-h"]):
        code, out, _ = call(*arguments)
        assert code == 0
        assert "Usage" in out
    from anglewise_client import __version__

    assert call("--version")[1] == f"anglewise {__version__}\n"


def test_completion(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_ANGLEWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "anglewise geo")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run([]) == 0
    assert capsys.readouterr().out.split() == ["geometry"]


def test_health(call: Call) -> None:
    assert call("health") == (0, "http://testserver is ready with 1 workers\n", "")


RUNNING, DONE = answer(job("running")), answer(job("succeeded"))
FAILED = answer(job("failed", reason={"code": "diverged", "message": "not finite"}))


def test_jobs_are_submitted_and_awaited(scripted: Callable[..., Any], tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"class_counts": [3, 1]}')
    code, out, err, server = scripted(
        [answer(job(), 202), RUNNING, DONE],
        *("jobs", "submit", "optimal_geometry", f"@{spec}", "--wait", "--json", "--idempotency-key", "k"),
    )
    assert code == 0
    assert json.loads(out)["state"] == "succeeded"
    assert "waiting for job_01" in err
    assert server.body(0) == {"kind": "optimal_geometry", "spec": {"class_counts": [3, 1]}}
    assert server.requests[0].headers["Idempotency-Key"] == "k"


def test_trainings_are_started(scripted: Callable[..., Any]) -> None:
    code, out, _, server = scripted(
        [answer(job(), 202)],
        *("jobs", "train", "--data", "digits", "--class-counts", "100,10,1", "--encoder", "mlp", "-T", 0.5),
        *("--epochs", 3, "--more", '{"accumulate": 2}'),
    )
    assert code == 0
    assert "job_01" in out
    assert server.body(0)["spec"] == {
        "data": {"builtin": "digits", "class_counts": [100, 10, 1]},
        "encoder": {"name": "mlp"},
        "loss": {"temperature": 0.5},
        "epochs": 3,
        "accumulate": 2,
    }
    assert scripted([DONE], "jobs", "train", "--class-counts", "a,b")[0] == 2


def test_a_job_that_fails_ends_with_4(scripted: Callable[..., Any]) -> None:
    code, _, err, _ = scripted([RUNNING, FAILED], "jobs", "wait", "job_01")
    assert code == 4
    assert "not finite" in err


def test_a_job_that_goes_on_ends_with_5(scripted: Callable[..., Any]) -> None:
    code, _, err, _ = scripted([RUNNING], "jobs", "wait", "job_01", "--timeout", 0)
    assert code == 5
    assert "running" in err


def test_jobs_are_shown(scripted: Callable[..., Any]) -> None:
    page = answer({"items": [job("running"), job("failed", id="job_00")], "next_cursor": None})
    code, out, _, server = scripted([page], "jobs", "list", "--state", "running", "--limit", 2)
    assert code == 0
    assert "job_00" in out
    assert dict(server.requests[0].url.params) == {"limit": "2", "state": "running"}
    assert len(json.loads(scripted([page], "jobs", "list", "--json")[1])["items"]) == 2
    assert "3 of 10" in scripted([RUNNING], "jobs", "show", "job_01")[1]
    assert "cancelling" in scripted([RUNNING, answer(job("cancelling"))], "jobs", "cancel", "job_01")[1]
    assert scripted([DONE, httpx2.Response(204)], "jobs", "delete", "job_01")[0] == 0
    assert scripted([problem(404, "not_found")], "jobs", "show", "job_02")[0] == 1


def test_what_jobs_leave(scripted: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    series = answer({"series": {"loss": [{"step": 0, "value": 2.0}, {"step": 1, "value": 0.5}]}})
    code, out, _, _ = scripted([DONE, series], "jobs", "metrics", "job_01", "--plot", tmp_path / "c.png")
    assert code == 0
    assert "0.5" in out
    assert (tmp_path / "c.png").is_file()
    assert "0.25" in scripted([DONE, answer({"loss": 0.25})], "jobs", "result", "job_01")[1]
    left = answer({"embeddings": [[1.0, 0.0]], "labels": [0]})
    assert scripted([DONE, left], "jobs", "embeddings", "job_01", tmp_path / "e.npz")[0] == 0
    assert (tmp_path / "e.npz").is_file()


def test_events_are_lines(scripted: Callable[..., Any]) -> None:
    content = sse(("1", "progress", {"step": 1}), ("2", "state", {"state": "succeeded"}))
    stream = httpx2.Response(200, content=content, headers={"Content-Type": "text/event-stream"})
    code, out, _, _ = scripted([RUNNING, stream], "jobs", "events", "job_01")
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["1", "2"]


DATASET = {"id": "ds_1", "name": "cells", "samples": 3, "shape": [2], "dtype": "float32"} | {
    "classes": {"a": 2, "b": 1}
}


def test_data_sets(scripted: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("x,y\n1,a\n")
    code, out, _, server = scripted([answer(DATASET, 201)], "datasets", "add", path, "--name", "cells")
    assert code == 0
    assert "ds_1" in out
    assert b"cells.csv" in server.requests[0].content
    assert "ds_1" in scripted([answer([DATASET])], "datasets", "list")[1]
    assert "samples" in scripted([answer(DATASET)], "datasets", "show", "ds_1")[1]
    assert scripted([httpx2.Response(204)], "datasets", "delete", "ds_1")[0] == 0
    assert scripted([DATASET], "datasets", "add", tmp_path / "missing.csv")[0] == 2


def test_interrupted_waits_say_how_to_go_on(
    scripted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anglewise_client.jobs.Job.wait", interrupt)
    code, _, err, _ = scripted([RUNNING], "jobs", "wait", "job_01")
    assert code == 130
    assert "anglewise jobs wait job_01" in err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("temperature=0.1,0.5", [0.1, 0.5]),
        ("negatives=1,inf", [1, "infinite"]),
        ("classes=2:4:3", [2, 3, 4]),
    ],
)
def test_axes_are_lists_or_ranges(text: str, values: list[Any]) -> None:
    assert repr(axis(text)["values"]) == repr(values)
