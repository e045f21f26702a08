"""POST /weights: which weights have the wanted geometry as their optimum?"""

from __future__ import annotations

from jobs.computations.weights import COMPUTATION
from service.routes import computation_router

router = computation_router(
    COMPUTATION,
    path="/weights",
    tag="weights",
    summary="Weights for a wanted geometry",
    description="Weights of weighted InfoNCE whose entropy bound the target attains at this temperature, "
    "with the proof, and the largest temperature at which they still do.",
    examples={
        "a simplex of three classes": {
            "target": {"simplex": {"class_counts": [60, 20, 20]}},
            "temperature": 0.5,
        },
        "wanted cosines": {
            "target": {"gram": [[1.0, 0.8, -0.3], [0.8, 1.0, -0.3], [-0.3, -0.3, 1.0]]},
            "temperature": 0.2,
        },
        "wanted squared distances": {
            "target": {"squared_distances": [[0, 1.0, 4.0], [1.0, 0, 1.0], [4.0, 1.0, 0]]},
            "metric": "euclidean",
        },
    },
)
