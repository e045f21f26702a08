"""A solver process compiles before its first request, not during it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from service import solver

ENTRIES = """
from jobs.computations.limits import Limits
from service.solver import _warm_up
_warm_up(Limits())
from anglewise.dual.kernels import dual_state, v_hessian, y_matrices
from anglewise.quadrature import log_sum_rows, single_draw_rows
from anglewise.tilted_quadrature import weighted_log_sum_rows
for kernel in (dual_state, v_hessian, y_matrices, log_sum_rows, single_draw_rows, weighted_log_sum_rows):
    assert kernel.signatures, kernel
print("every kernel is there")
"""


def test_every_kernel_of_a_request_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", ENTRIES], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "every kernel is there", done.stderr


def test_a_short_deadline_does_not_cut_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    class Nothing(BaseModel):
        pass

    def run(_: Any, limits: Limits) -> Outcome:
        seen.append(limits.deadline_seconds)
        return Outcome(document=dict)

    stub = Computation(name="stub", request=Nothing, answer=Nothing, run=run, warm_up=({},))
    monkeypatch.setattr(solver, "COMPUTATIONS", {"stub": stub})
    solver._warm_up(Limits(deadline_seconds=0.5))
    assert seen == [solver.WARM_UP_SECONDS]
