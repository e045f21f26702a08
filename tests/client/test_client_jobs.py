"""Jobs and data sets against scripted servers: handles, waiting, events, and what survives a restart."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from client_helpers import THRESHOLD, Script, answer, async_client_of, client_of, job, problem, sse

from anglewise_client import (
    Client,
    Conflict,
    InfoNCE,
    Job,
    JobCancelled,
    JobFailed,
    NoService,
    NotFound,
    State,
    Threshold,
    UnexpectedAnswer,
    WaitTimeout,
)
from anglewise_client._progress import bar_html
from anglewise_client._waiting import Waiting

QUEUED = answer(job("queued"), 202, Location="/jobs/job_01")
RUNNING = answer(job("running"))
DONE = answer(job("succeeded"))
REFUSED = httpx2.ConnectError("refused")


def submitted(*answers: httpx2.Response | Exception, **options: Any) -> tuple[Job, Script, list[float]]:
    """A job whose submission is answered, and the script of what follows."""
    server = Script([QUEUED, *answers])
    client, pauses = client_of(server, **options)
    return client.jobs.submit(kind="training", spec={"steps": 3}), server, pauses


def test_submitting_gives_a_handle() -> None:
    job, server, _ = submitted()
    assert (job.id, job.state) == ("job_01", State.QUEUED)
    assert server.body() == {"kind": "training", "spec": {"steps": 3}}
    assert repr(job) == "Job(id=job_01, kind=training, state=queued, progress=3 of 10)"
    assert "Job" in job._repr_html_()


def test_a_service_without_jobs_says_so() -> None:
    client, _ = client_of(Script([answer(THRESHOLD)]))
    with pytest.raises(UnexpectedAnswer, match="runs no jobs"):
        client.jobs.collapse_threshold(classes=10)


def test_a_wish_not_to_wait() -> None:
    server = Script([REFUSED, QUEUED])
    client, _ = client_of(server)
    job = client.jobs.optimal_geometry(class_counts=[3, 1])
    assert job.id == "job_01"
    assert server.requests[-1].headers["Prefer"] == "respond-async"
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 1
    import inspect

    assert inspect.signature(client.jobs.weights).return_annotation == "Job"


def test_one_key_is_kept_over_all_attempts() -> None:
    server = Script([REFUSED, problem(503, "busy"), httpx2.ReadTimeout("lost answer"), QUEUED])
    client, _ = client_of(server)
    client.jobs.submit(kind="training", spec={})
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 4
    assert len(keys) == 1
    client.jobs.submit(kind="training", spec={})
    assert server.requests[-1].headers["Idempotency-Key"] not in keys
    client.jobs.submit(kind="training", spec={}, idempotency_key="mine")
    assert server.requests[-1].headers["Idempotency-Key"] == "mine"


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ({"data": "digits", "encoder": "mlp"}, {"data": {"builtin": "digits"}, "encoder": {"name": "mlp"}}),
        ({"data": "ds_1", "seed": 0}, {"data": {"dataset": "ds_1"}, "seed": 0}),
        ({"class_counts": np.array([5, 2])}, {"data": {"class_counts": [5, 2]}}),
        (
            {
                "data": {"generator": {"classes": 3}},
                "class_counts": [9, 3, 1],
                "optimizer": {"name": "sgd"},
            },
            {
                "data": {"generator": {"classes": 3}, "class_counts": [9, 3, 1]},
                "optimizer": {"name": "sgd"},
            },
        ),
        ({"data": "mnist5k", "accumulate": 4}, {"data": {"builtin": "mnist5k"}, "accumulate": 4}),
        (
            {"data": "mnist5k", "chunk_size": 32, "processes": 2},
            {"data": {"builtin": "mnist5k"}, "chunk_size": 32, "processes": 2},
        ),
    ],
    ids=str,
)
def test_trainings_are_written_briefly(arguments: dict[str, Any], spec: dict[str, Any]) -> None:
    server = Script([QUEUED])
    client, _ = client_of(server)
    client.jobs.train(**arguments, name="a run", webhook="https://example.org/hook")
    assert server.body() == {
        "kind": "training",
        "spec": spec,
        "name": "a run",
        "webhook": {"url": "https://example.org/hook"},
    }


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        ({"loss": "supcon", "temperature": 0.5}, {"name": "supcon", "temperature": 0.5}),
        ({"sampling": "unsupervised"}, {"sampling": "unsupervised"}),
        ({"loss": {"name": "soft_supcon", "epsilon": 0.1}}, {"name": "soft_supcon", "epsilon": 0.1}),
    ],
    ids=str,
)
def test_losses_by_name(arguments: dict[str, Any], loss: dict[str, Any]) -> None:
    server = Script([QUEUED])
    client, _ = client_of(server)
    client.jobs.train(class_counts=[2, 1], **arguments)
    assert server.body()["spec"]["loss"] == loss


def test_losses_are_models_or_dictionaries() -> None:
    server = Script([QUEUED])
    client, _ = client_of(server)
    client.jobs.train(class_counts=[2, 1], loss=InfoNCE(temperature=0.5, negatives=8))
    loss = server.body()["spec"]["loss"]
    assert (loss["name"], loss["temperature"], loss["negatives"]) == ("infonce", 0.5, 8)
    assert "reduction" not in loss


def test_waiting_until_the_end() -> None:
    job, server, pauses = submitted(RUNNING, RUNNING, DONE)
    record = job.wait(progress=True, timeout=60)
    assert record.state is State.SUCCEEDED
    assert [request.method for request in server.requests] == ["POST", "GET", "GET", "GET"]
    assert pauses == pytest.approx([0.1, 0.14])
    assert job.wait() is record


def test_waiting_survives_a_restart() -> None:
    lost = [REFUSED, httpx2.ReadError("reset"), problem(503, "not_ready"), httpx2.Response(502), RUNNING]
    job, _server, pauses = submitted(RUNNING, *lost, DONE)
    assert job.wait(progress=False).state is State.SUCCEEDED
    assert len(pauses) == 6


@pytest.mark.parametrize(
    ("state", "kind"), [("failed", JobFailed), ("cancelled", JobCancelled)], ids=["failed", "cancelled"]
)
def test_a_bad_end_is_an_error(state: str, kind: type[JobFailed]) -> None:
    reason = {"code": "diverged", "message": "the loss is not finite"}
    waiting, _, _ = submitted(answer(job(state, reason=reason)))
    with pytest.raises(kind, match=r"the loss is not finite \(diverged\)") as caught:
        waiting.wait()
    assert type(caught.value) is kind
    assert caught.value.job.id == "job_01"
    assert caught.value.reason is not None
    assert caught.value.reason.code == "diverged"
    assert waiting.reason == caught.value.reason


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    server = Script([QUEUED, RUNNING])
    client, _ = client_of(server)
    client._sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    waiting = client.jobs.submit(kind="training", spec={})
    with pytest.raises(WaitTimeout, match=r"running after 5\.0 s") as caught:
        waiting.wait(timeout=5.0)
    assert isinstance(caught.value, TimeoutError)
    assert now[0] == pytest.approx(5.0)


def test_nobody_waits_for_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    client, _ = client_of(Script([QUEUED, REFUSED]))
    client._sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    with pytest.raises(NoService):
        client.jobs.submit(kind="training", spec={}).wait()
    assert 600 < now[0] < 610
    with pytest.raises(WaitTimeout):
        client_of(Script([QUEUED, REFUSED]))[0].jobs.submit(kind="training", spec={}).wait(timeout=0.0)


def test_a_deleted_job_is_not_waited_for() -> None:
    job, _, _ = submitted(problem(404, "not_found"))
    with pytest.raises(NotFound):
        job.wait()


def test_requests_end_with_the_wait() -> None:
    waiting = Waiting.begin(10.0, 100.0)
    assert waiting.request_seconds(100.0) == 10.0
    assert waiting.request_seconds(109.0) == 1.0
    assert waiting.pause(109.95) == pytest.approx(0.05)
    assert waiting.pause(110.0) is None
    assert Waiting.begin(None, 0.0).request_seconds(1e6) == 30.0


STREAM = [
    ("1", "state", {"state": "running", "attempt": 1}),
    ("2", "progress", {"step": 1, "total": 2, "eta_s": 0.5}),
    ("3", "metrics", {"step": 1, "values": {"loss": 0.5, "nc1": None}}),
    ("4", "state", {"state": "succeeded", "attempt": 1}),
]


def stream(*events: tuple[str, str, Any], heartbeat: bool = False) -> httpx2.Response:
    content = (b": alive\n\n" if heartbeat else b"") + sse(*events)
    return httpx2.Response(200, content=content, headers={"Content-Type": "text/event-stream"})


def test_events_are_replayed_until_the_end() -> None:
    job, server, pauses = submitted(stream(*STREAM, heartbeat=True))
    events = list(job.events())
    assert [(event.id, event.type) for event in events] == [
        ("1", "state"),
        ("2", "progress"),
        ("3", "metrics"),
        ("4", "state"),
    ]
    assert events[2].data["values"] == {"loss": 0.5, "nc1": None}
    assert [event.state for event in events] == [State.RUNNING, None, None, State.SUCCEEDED]
    assert server.requests[-1].headers["Accept"].startswith("text/event-stream")
    assert "Last-Event-ID" not in server.requests[-1].headers
    assert pauses == []


@pytest.mark.parametrize(
    "broken",
    [
        stream(*STREAM[:2]),
        httpx2.Response(
            200,
            content=sse(*STREAM[:2]) + b'id: 3\nevent: metrics\ndata: {"cut',
            headers={"Content-Type": "text/event-stream"},
        ),
    ],
    ids=["between events", "inside an event"],
)
def test_broken_streams_are_taken_up_where_they_broke(broken: httpx2.Response) -> None:
    job, server, pauses = submitted(broken, REFUSED, problem(503, "not_ready"), stream(*STREAM[2:]))
    assert [event.id for event in job.events()] == ["1", "2", "3", "4"]
    known = [request.headers.get("Last-Event-ID") for request in server.requests[1:]]
    assert known == [None, "2", "2", "2"]
    assert len(pauses) == 3


def test_a_long_stream_may_break_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lost: list[httpx2.Response | Exception] = [REFUSED, REFUSED]
    job, _, _ = submitted(stream(*STREAM[:2]), *lost, stream(*STREAM[2:]))
    found = []
    for event in job.events():
        found.append(event.id)
        now[0] += 1000.0  # longer than anyone waits for a service that is gone
    assert found == ["1", "2", "3", "4"]


def test_events_of_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    job, _, _ = submitted(REFUSED)
    job._client._sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    with pytest.raises(NoService):
        list(job.events())
    assert 600 < now[0] < 620


def test_events_may_begin_in_the_middle() -> None:
    job, server, _ = submitted(stream(*STREAM[2:]))
    assert [event.id for event in job.events(after="2")] == ["3", "4"]
    assert server.requests[-1].headers["Last-Event-ID"] == "2"


def test_a_stream_of_an_ended_job_may_be_empty() -> None:
    job, _, _ = submitted(stream(), DONE)
    assert list(job.events(after="4")) == []


def test_a_service_may_go_between_stream_and_look() -> None:
    job, _, _ = submitted(stream(), REFUSED, stream(*STREAM), retries=0)
    assert [event.id for event in job.events()] == ["1", "2", "3", "4"]


def test_a_stream_of_an_ended_job_may_be_refused() -> None:
    job, server, _ = submitted(httpx2.Response(204))
    assert list(job.events(after="4")) == []
    assert len(server.requests) == 2


def test_a_page_is_not_a_stream() -> None:
    job, _, _ = submitted(answer({"not": "a stream"}))
    with pytest.raises(UnexpectedAnswer, match="event-stream"):
        list(job.events())


def test_files_may_be_elsewhere(tmp_path: Path) -> None:
    elsewhere = httpx2.Response(307, headers={"Location": "http://store.test/object?signature=1"})
    handle, server, _ = submitted(elsewhere, httpx2.Response(200, content=b"tensors"), api_key="secret")
    assert handle.checkpoint(tmp_path / "model").read_bytes() == b"tensors"
    assert server.requests[1].headers["Authorization"] == "Bearer secret"
    assert server.requests[2].url.host == "store.test"
    assert "Authorization" not in server.requests[2].headers


def test_other_files_and_the_spec(tmp_path: Path) -> None:
    handle, server, _ = submitted(httpx2.Response(200, content=b"png"), answer({"steps": 3}))
    assert handle.download("picture.png", tmp_path / "p.png").read_bytes() == b"png"
    assert server.requests[-1].url.path == "/jobs/job_01/artifacts/picture.png"
    assert handle.spec() == {"steps": 3}


def test_a_stream_may_name_its_types_in_the_data() -> None:
    whole = {"sequence": 7, "type": "state", "data": {"state": "failed"}}
    job, _, _ = submitted(stream(("7", "message", whole)))
    events = list(job.events())
    assert [(event.type, event.state) for event in events] == [("state", State.FAILED)]


def test_events_of_no_job() -> None:
    job, _, _ = submitted(problem(404, "not_found"))
    with pytest.raises(NotFound):
        list(job.events())


def test_what_a_training_leaves(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, embeddings=np.eye(3), labels=np.array(["a", "b", "c"]))
    archive = httpx2.Response(200, content=file.getvalue(), headers={"Content-Type": "application/x-npz"})
    alone = io.BytesIO()
    np.save(alone, np.ones((2, 2)))
    array = httpx2.Response(200, content=alone.getvalue(), headers={"Content-Type": "application/x-npy"})
    series = {"series": {"loss": [{"step": 0, "value": 2.0}, {"step": 5, "value": 1.0}]}}
    page = httpx2.Response(200, text="<h1>Report</h1>", headers={"Content-Type": "text/html; charset=utf-8"})
    handle, server, _ = submitted(
        archive,
        array,
        answer(series),
        answer({"loss": 0.5, "gap": 1e-3}),
        answer({"verdict": "close"}),
        page,
        httpx2.Response(200, content=b"tensors"),
        answer(job("cancelling")),
        httpx2.Response(204),
    )
    left = handle.embeddings()
    assert left.embeddings.shape == (3, 3)
    assert left.labels.tolist() == ["a", "b", "c"]
    assert np.load(left.write_npz(tmp_path / "e.npz"))["labels"].tolist() == ["a", "b", "c"]
    assert handle.embeddings().labels is None
    assert handle.metrics().values("loss").tolist() == [2.0, 1.0]
    assert handle.result().facts() == {"loss": 0.5, "gap": 1e-3}
    assert handle.report().document == {"verdict": "close"}
    assert handle.report()._repr_html_() == "<h1>Report</h1>"
    assert handle.checkpoint(tmp_path / "model").read_bytes() == b"tensors"
    assert handle.cancel().state is State.CANCELLING
    handle.delete()
    parts = [request.url.path.removeprefix("/jobs/job_01") for request in server.requests[1:]]
    assert parts[:4] == ["/embeddings", "/embeddings", "/metrics", "/result"]
    assert parts[4:] == ["/report", "/report", "/checkpoint", "/cancel", ""]


def test_results_are_those_of_the_routes() -> None:
    server = Script([answer(job("succeeded", kind="collapse_threshold")), answer(THRESHOLD)])
    client, _ = client_of(server)
    assert isinstance(client.jobs.get("job_01").result(), Threshold)


def test_there_is_no_result_before_the_end() -> None:
    job, _, _ = submitted(problem(409, "not_finished"))
    with pytest.raises(Conflict):
        job.result()


def test_jobs_are_listed_page_by_page() -> None:
    pages = [
        answer({"items": [job(id="job_03"), job(id="job_02")], "next_cursor": "c2"}),
        answer({"items": [job(id="job_01")], "next_cursor": None}),
    ]
    server = Script(pages)
    client, _ = client_of(server)
    assert [found.id for found in client.jobs.iterate(state=State.RUNNING)] == ["job_03", "job_02", "job_01"]
    assert dict(server.requests[1].url.params) == {"cursor": "c2", "state": "running"}
    page = client_of(Script(pages))[0].jobs.list(limit=2, kind="training")
    assert repr(page) == "JobPage(jobs=2, more=True)"
    pytest.importorskip("pandas")
    assert page.to_dataframe().shape[0] == 2


def test_names_are_not_paths() -> None:
    server = Script([problem(404, "not_found")])
    client, _ = client_of(server)
    with pytest.raises(NotFound):
        client.jobs.get("../datasets/x")
    assert server.requests[0].url.raw_path == b"/jobs/..%2Fdatasets%2Fx"


DATASET = {
    "id": "ds_1",
    "name": "cells",
    "samples": 3,
    "shape": [2],
    "dtype": "float32",
    "classes": {"a": 2, "b": 1},
    "sha256": "0" * 64,
    "created_at": "2026-12-01T00:00:00Z",
}


def uploads() -> dict[str, Callable[[Client, Path], Any]]:
    return {
        "path": lambda client, path: client.datasets.create(path=path, name="cells"),
        "arrays": lambda client, path: client.datasets.create(x=np.zeros((3, 2)), y=[0, 0, 1], name="cells"),
    }


@pytest.mark.parametrize("how", ["path", "arrays"])
def test_data_sets_are_uploaded(how: str, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("x,y\n1,a\n")
    server = Script([REFUSED, answer(DATASET, 201)])
    client, pauses = client_of(server)
    stored = uploads()[how](client, path)
    assert stored.class_counts == [2, 1]
    assert len(pauses) == 1
    body = server.requests[-1].content
    assert b'name="name"\r\n\r\ncells' in body
    assert (b'filename="cells.csv"' if how == "path" else b"PK\x03\x04") in body
    assert server.requests[0].content == body or how == "path" or len(server.requests[0].content) == len(body)


def test_an_upload_that_may_have_arrived_is_not_repeated(tmp_path: Path) -> None:
    server = Script([httpx2.ReadTimeout("slow")])
    client, _ = client_of(server)
    with pytest.raises(NoService):
        client.datasets.create(x=np.zeros((3, 2)), y=[0, 0, 1])
    assert len(server.requests) == 1
    for wrong in ({}, {"x": [1]}, {"path": tmp_path, "x": [1], "y": [1]}):
        with pytest.raises(ValueError, match="give a path, or x and y"):
            client.datasets.create(**wrong)


def test_data_sets_are_listed_and_removed() -> None:
    server = Script([answer([DATASET]), answer({"items": [DATASET], "next_cursor": None}), answer(DATASET)])
    client, _ = client_of(server)
    assert client.datasets.list().items == client.datasets.list().items
    assert client.datasets.get("ds_1").classes == {"a": 2, "b": 1}
    client_of(Script([httpx2.Response(204)]))[0].datasets.delete("ds_1")


def test_the_async_handle_does_the_same() -> None:
    lost = [REFUSED, problem(503, "not_ready")]
    server = Script([QUEUED, RUNNING, *lost, DONE, stream(*STREAM[:2]), REFUSED, stream(*STREAM[2:])])

    async def run() -> tuple[State, list[str]]:
        client, _ = async_client_of(server)
        async with client:
            handle = await client.jobs.train(class_counts=[3, 1])
            record = await handle.wait(progress=False, timeout=60)
            return record.state, [event.id async for event in handle.events()]

    assert asyncio.run(run()) == (State.SUCCEEDED, ["1", "2", "3", "4"])
    assert server.requests[-1].headers["Last-Event-ID"] == "2"


def test_the_async_handle_fails_alike() -> None:
    async def run(end: httpx2.Response) -> None:
        client, _ = async_client_of(Script([QUEUED, end]))
        async with client:
            handle = await client.jobs.submit(kind="training", spec={})
            assert "AsyncJob" in repr(handle)
            await handle.wait(progress=False, timeout=0.0)

    with pytest.raises(JobFailed):
        asyncio.run(run(answer(job("failed"))))
    with pytest.raises(WaitTimeout):
        asyncio.run(run(RUNNING))


def test_the_async_handle_reads_what_is_left(tmp_path: Path) -> None:
    series = {"series": {"loss": [{"step": 0, "value": 2.0}]}}
    page = {"items": [job()], "next_cursor": None}
    left = [answer(series), answer({"loss": 1.0}), answer({"a": 1}), httpx2.Response(200, content=b"t")]
    left.append(answer({"embeddings": [[1.0]], "labels": [0]}))
    left += [httpx2.Response(200, content=b"file"), answer({"steps": 1})]
    server = Script([DONE, *left, DONE, httpx2.Response(204), answer(page), answer(page), answer([DATASET])])

    async def run() -> None:
        client, _ = async_client_of(server)
        async with client:
            handle = await client.jobs.get("job_01")
            assert (await handle.metrics()).values("loss").tolist() == [2.0]
            assert (await handle.result()).facts() == {"loss": 1.0}
            assert (await handle.report()).document == {"a": 1}
            assert (await handle.checkpoint(tmp_path / "model")).read_bytes() == b"t"
            assert (await handle.embeddings()).labels == [0]
            assert (await handle.download("a", tmp_path / "a")).read_bytes() == b"file"
            assert await handle.spec() == {"steps": 1}
            await handle.cancel()
            await handle.delete()
            assert [found.id async for found in client.jobs.iterate()] == ["job_01"]
            assert len((await client.jobs.list()).items) == 1
            assert (await client.datasets.list()).items[0].id == "ds_1"

    asyncio.run(run())


def test_progress_in_a_notebook() -> None:
    from anglewise_client import JobRecord

    html = bar_html(JobRecord.model_validate(job("running", id="<b>")))
    assert "<progress value='3' max='10'>" in html
    assert "&lt;b&gt;" in html


def test_progress_in_a_terminal() -> None:
    from rich.console import Console

    from anglewise_client import JobRecord
    from anglewise_client._progress import progress_bar

    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress_bar(True, console) as show:
        show(JobRecord.model_validate(job("running")))
    assert isinstance(console.file, io.StringIO)
    assert "job_01 running" in console.file.getvalue()
    assert "3/10" in console.file.getvalue()
