from __future__ import annotations

import errno
import json

import numpy as np
import orjson
import pytest

from anglewise.errors import InvalidInput, NumericalFailure, TooLarge
from jobs.computations.computation import Computation, Outcome
from jobs.computations.encoding import encode
from jobs.computations.limits import Limits
from jobs.computations.schemas import Answer, Strict
from jobs.frames import PREFIX
from jobs.problems import problem_from
from service import solver
from service.cache import AnswerCache


class TestEncode:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("wrap", [float, np.float64, lambda x: np.array([[1.0, x]]), lambda x: [(x,)]])
    def test_nothing_but_finite_numbers(self, value: float, wrap: object) -> None:
        with pytest.raises(NumericalFailure, match="gram"):
            encode({"a": {"gram": wrap(value)}})  # type: ignore[operator]

    def test_round_trip(self) -> None:
        A = np.random.default_rng(0).normal(size=(7, 5))
        document = json.loads(
            encode({"A": A, "At": A.T, "i": np.arange(3), "none": None, "t": ("x", True, 10**18)})
        )
        np.testing.assert_array_equal(document["A"], A)
        np.testing.assert_array_equal(document["At"], A.T)
        assert document["i"] == [0, 1, 2]
        assert document["t"] == ["x", True, 10**18]
        assert document["none"] is None


class TestProblemFrom:
    def test_core_errors(self) -> None:
        assert problem_from(InvalidInput(("loss", "a/b", 0), "no")).errors == [("/loss/a~1b/0", "no")]
        assert problem_from(TooLarge(("x",), "no")).code == "too_large"
        assert problem_from(NumericalFailure("no")).status == 422
        assert problem_from(MemoryError()).code == "too_large"
        assert problem_from(OSError(errno.ENOSPC, "No space left on device")).status == 507

    def test_says_nothing_of_unforeseen_errors(self) -> None:
        problem = problem_from(ZeroDivisionError("/secret/path"))
        assert problem.status == 500
        assert "secret" not in problem.detail


class _Empty(Strict):
    pass


class TestSolver:
    """What a solver process makes of a computation that breaks."""

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (RuntimeError("bug"), "internal_error"),
            (MemoryError(), "too_large"),
            (RecursionError(), "internal_error"),
            (NumericalFailure("no"), "numerical_failure"),
        ],
    )
    def test_every_error_is_a_problem(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
    ) -> None:
        def run(request: object, limits: Limits) -> Outcome:
            raise error

        monkeypatch.setitem(solver.COMPUTATIONS, "broken", Computation("broken", _Empty, Answer, run))
        assert self.problem()["code"] == code

    def test_nan_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        computation = Computation("broken", _Empty, Answer, lambda *_: Outcome(lambda: {"risk": np.nan}))
        monkeypatch.setitem(solver.COMPUTATIONS, "broken", computation)
        assert self.problem()["code"] == "numerical_failure"

    def problem(self) -> dict[str, object]:
        frame = solver._reply({"computation": "broken"}, b"{}", Limits())
        header_length, _ = PREFIX.unpack(frame[: PREFIX.size])
        problem: dict[str, object] = orjson.loads(frame[PREFIX.size :][:header_length])["problem"]
        return problem


class TestAnswerCache:
    def test_drops_the_least_recently_used(self) -> None:
        cache = AnswerCache(capacity=100)
        for name in (b"a", b"b", b"c", b"d"):
            cache.put(name, name * 25)
        assert cache.get(b"a") == b"a" * 25
        cache.put(b"e", b"e" * 20)
        assert cache.get(b"b") is None
        assert cache.get(b"a") is not None

    def test_size_is_bounded_when_answers_are_replaced(self) -> None:
        cache = AnswerCache(capacity=100)
        for size in range(1, 26):
            cache.put(b"a", b"x" * size)
        cache.put(b"b", b"y" * 25)
        assert cache.get(b"a") == b"x" * 25
        assert cache.get(b"b") == b"y" * 25

    def test_keeps_no_giants(self) -> None:
        cache = AnswerCache(capacity=100)
        cache.put(b"a", b"x" * 26)
        assert cache.get(b"a") is None
