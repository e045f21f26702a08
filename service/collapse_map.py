"""POST /collapse-map: one quantity of minority collapse over a grid of two parameters."""

from __future__ import annotations

from jobs.computations.collapse_map import COMPUTATION
from service.routes import computation_router

router = computation_router(
    COMPUTATION,
    path="/collapse-map",
    tag="collapse",
    summary="A map of minority collapse",
    description="A quantity over two parameters, for one majority and C - 1 equal minorities.",
    examples={
        "threshold over temperature and number of negatives": {
            "classes": 10,
            "x": {"name": "temperature", "values": [0.2, 0.5, 1.0]},
            "y": {"name": "negatives", "values": [1, 16, 256]},
            "quantity": "exact_threshold",
        }
    },
)
