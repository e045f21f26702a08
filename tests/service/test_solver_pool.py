"""Concurrency, and what happens when solver processes die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

import httpx2
import pytest
from service_helpers import pids, slow_map, wait_ready, wait_until
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette.types import Message

from jobs.computations import optimal_geometry
from jobs.computations.limits import Limits
from jobs.computations.optimal_geometry import OptimalGeometryRequest
from jobs.computations.registry import COMPUTATIONS
from jobs.problems import Problem
from service.app import create_app
from service.cache import AnswerCache
from service.engine import ClientGone, Engine
from service.pool import SolverPool
from service.process import SolverProcess
from service.settings import Settings

Background = Callable[..., Future[httpx2.Response]]


def busy(client: TestClient) -> bool:
    """Whether every process has a computation."""
    pool = client.app_state["engine"].pool
    return len(pool.pids) == 2 and not pool._idle


class TestConcurrency:
    def test_equal_and_different_requests_at_once(self, client: TestClient, background: Background) -> None:
        equal = {"class_counts": [31, 17, 11, 5]}
        bodies = [body for i in range(50) for body in (equal, {"class_counts": [100 + i, 20, 10, 3]})]
        futures = [background(client.post, "/optimal-geometry", json=body) for body in bodies]
        responses = [future.result() for future in futures]
        assert {response.status_code for response in responses} == {200}
        shared, different = responses[0::2], responses[1::2]
        assert len({response.content for response in shared}) == 1
        assert len({response.json()["risk"] for response in different}) == 50

    def test_equal_requests_share_one_computation(self, client: TestClient, background: Background) -> None:
        flights = client.app_state["engine"]._flights
        futures = [background(client.post, "/collapse-map", json=slow_map(700)) for _ in range(10)]
        wait_until(lambda: any(flight.waiting == 10 for flight in flights.values()), "ten waiting for one")
        assert len(flights) == 1
        assert len({future.result().content for future in futures}) == 1
        assert not flights


class TestDeath:
    def test_during_a_computation(self, client: TestClient, background: Background) -> None:
        """It is tried once more; the computation of the other process is not touched."""
        futures = [background(client.post, "/collapse-map", json=slow_map(i)) for i in (800, 900)]
        wait_until(lambda: busy(client), "both busy")
        killed = pids(client)[0]
        os.kill(killed, signal.SIGKILL)
        assert [future.result().status_code for future in futures] == [200, 200]
        wait_until(lambda: len(pids(client)) == 2, "two processes again")
        assert killed not in pids(client)

    def test_of_a_computation_that_always_kills(self, client: TestClient, background: Background) -> None:
        future = background(client.post, "/collapse-map", json=slow_map(1700, cells=2500))
        seen: set[int] = set()
        while not future.done():
            for pid in pids(client):
                if pid not in seen and busy_with(client, pid):
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
        response = future.result()
        assert (response.status_code, response.json()["code"]) == (503, "worker_lost")
        assert len(seen) == 2
        wait_until(lambda: len(pids(client)) == 2, "two processes again")

    def test_while_idle(self, client: TestClient) -> None:
        before = pids(client)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: len(pids(client)) == 2 and not set(before) & set(pids(client)), "two new processes"
        )
        assert client.post("/collapse-threshold", json={"classes": 7}).status_code == 200


def busy_with(client: TestClient, pid: int) -> bool:
    pool = client.app_state["engine"].pool
    solver = next(solver for solver in pool._solvers if solver is not None and solver.pid == pid)
    return solver._answer is not None and not solver._answer.done()


class IdleProcess:
    """Stands for a solver process that is dead before anybody noticed."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = True


class TestUnnoticedDeath:
    def test_of_many_idle_processes_is_not_blamed_on_the_job(self) -> None:
        async def scenario() -> None:
            pool = SolverPool(Limits(), workers=3, max_waiting=1)
            job = pool.submit("collapse_threshold", b'{"classes": 3}')
            for _ in range(3):
                await pool._serve(cast(SolverProcess, IdleProcess()))
            assert list(pool._waiting) == [job]
            assert not job.future.done()
            assert job.attempts == 0
            job.settle(({}, b""))

        asyncio.run(scenario())

    def test_without_another_process_ends_at_the_deadline(self) -> None:
        async def scenario() -> None:
            pool = SolverPool(Limits(deadline_seconds=0.05), workers=1, max_waiting=1)
            job = pool.submit("collapse_threshold", b'{"classes": 3}')
            job.start()
            pool._waiting.clear()
            pool._try_again(job)
            with pytest.raises(Problem) as raised:
                await asyncio.wait_for(job.future, 10)
            assert raised.value.code == "deadline"

        asyncio.run(scenario())


class TestHangUp:
    """A client that closes its connection before its answer is there."""

    def test_takes_what_waits_out_of_the_queue(self) -> None:
        async def scenario() -> None:
            pool = SolverPool(Limits(), workers=1, max_waiting=1)  # never started: everything waits
            engine = Engine(Limits(), pool, AnswerCache(0))
            for classes in (3, 4, 5):
                body = json.dumps({"classes": classes}).encode()
                with pytest.raises(ClientGone):
                    await engine.answer(COMPUTATIONS["collapse_threshold"], body, hung_up())
            assert not engine._flights

        asyncio.run(scenario())

    def test_does_not_disturb_others_with_the_same_request(self) -> None:
        async def scenario() -> None:
            pool = SolverPool(Limits(), workers=1, max_waiting=1)
            engine = Engine(Limits(), pool, AnswerCache(0))
            ask = lambda client: engine.answer(COMPUTATIONS["collapse_threshold"], b'{"classes": 3}', client)  # noqa: E731
            patient = asyncio.create_task(ask(waiting()))
            await asyncio.sleep(0)
            with pytest.raises(ClientGone):
                await ask(hung_up())
            (job,) = pool._waiting
            job.settle(({"final": True}, b"{}"))
            assert (await patient).body == b"{}"

        asyncio.run(scenario())


class TestFinal:
    """Answers cut short by the deadline are not kept."""

    def test_is_said_of_what_is_certified_or_finished(self) -> None:
        body = {"class_proportions": (proportions := [i / 20100 for i in range(1, 201)])}
        assert sum(proportions) == pytest.approx(1)
        request = OptimalGeometryRequest.model_validate(body)
        assert optimal_geometry.run(request, Limits()).final
        assert not optimal_geometry.run(request, Limits(deadline_seconds=1e-3)).final

    @pytest.mark.parametrize("final", [True, False])
    def test_decides_what_is_cached(self, final: bool) -> None:
        async def scenario() -> None:
            pool = SolverPool(Limits(), workers=1, max_waiting=1)
            engine = Engine(Limits(), pool, AnswerCache(1000))
            for expected in (1, 0 if final else 1):
                asked = asyncio.create_task(
                    engine.answer(COMPUTATIONS["collapse_threshold"], b'{"classes": 3}', waiting())
                )
                await asyncio.sleep(0)
                assert len(pool._waiting) == expected
                while pool._waiting:
                    pool._waiting.popleft().settle(({"final": final}, b"{}"))
                assert (await asked).body == b"{}"

        asyncio.run(scenario())


def hung_up() -> Request:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


def waiting() -> Request:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http"}, receive)


class TestMemory:
    def test_is_bounded(self) -> None:
        """A Gram matrix of 3 GiB does not fit into 1 GiB; the process goes on."""

        async def scenario() -> None:
            limits = Limits(worker_memory_bytes=2**30, max_inline_classes=20_000, warm_up=False)
            solver = await SolverProcess.start(limits)
            try:
                for counts, code in (([5] * 20_000, "too_large"), ([5, 3], None)):
                    body = json.dumps({"class_counts": counts}).encode()
                    header, _ = await solver.ask({"computation": "optimal_geometry"}, body)
                    assert header.get("problem", {}).get("code") == code
            finally:
                await solver.kill()

        asyncio.run(scenario())


class TestRestart:
    def test_of_one_application_object(self) -> None:
        app = create_app(Settings(workers=1, warm_up=False))
        for _ in range(2):
            with TestClient(app) as running:
                wait_ready(running)
                pid = pids(running)[0]
                assert running.post("/collapse-threshold", json={"classes": 3}).status_code == 200
            assert not os.path.exists(f"/proc/{pid}")
