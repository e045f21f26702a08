"""The dual method for the exact class geometry: a low-rank dual matrix Z = YYᵀ and a matched surrogate (A6).

`method` repeats: build a `surrogate` of the risk at the current Gram matrix, minimize it exactly through
its dual (`staircase`: `ascent` on Y for a fixed `partition` of the classes and a fixed rank), evaluate the
exact risk.
"""

from __future__ import annotations

from anglewise.dual.method import DualAnswer, solve_dual

__all__ = ["DualAnswer", "solve_dual"]
