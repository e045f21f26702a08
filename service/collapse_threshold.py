"""POST /collapse-threshold: from which majority proportion on do all minorities merge?"""

from __future__ import annotations

from jobs.computations.collapse_threshold import COMPUTATION
from service.routes import computation_router

router = computation_router(
    COMPUTATION,
    path="/collapse-threshold",
    tag="collapse",
    summary="Exact threshold of minority collapse",
    description="The majority proportion from which on the optimal class means of all minorities coincide, "
    "for one majority and C - 1 equal minorities; necessary and sufficient.",
    examples={
        "ten classes at temperature 1": {"classes": 10, "loss": {"name": "infonce", "temperature": 1.0}},
        "logistic loss": {"classes": 3, "sampling": "unsupervised", "loss": {"name": "logistic"}},
    },
)
