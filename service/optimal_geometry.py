"""POST /optimal-geometry: the certified optimum for given class counts, sampling and loss."""

from __future__ import annotations

from jobs.computations.optimal_geometry import COMPUTATION
from service.routes import computation_router

router = computation_router(
    COMPUTATION,
    path="/optimal-geometry",
    tag="geometry",
    summary="Optimal class means, with a certificate",
    description="The Gram matrix of class means that minimizes the expected contrastive loss for these class "
    "counts, its exact risk, a proven bound on how far it is from the optimum, and which classes collapse. "
    "With `weights` or `log_weights`: the best achievable geometry of weighted InfoNCE. "
    "With `Accept: application/x-npz` the full arrays come as an archive of .npy files.",
    examples={
        "three classes, without supervision": {
            "class_counts": [900, 60, 40],
            "sampling": "unsupervised",
            "loss": {"name": "infonce", "negatives": 16, "temperature": 1.0},
        },
        "ten classes, long tail": {
            "class_counts": [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50],
            "sampling": "supervised",
            "loss": {"name": "infonce", "negatives": 256, "temperature": 0.1},
        },
        "one majority, infinitely many negatives": {
            "class_proportions": [0.98, 0.01, 0.01],
            "loss": {"name": "infonce", "negatives": "infinite", "temperature": 1.0},
        },
        "SupCon": {"weights": {"name": "supcon", "class_counts": [60, 20, 20]}, "temperature": 0.5},
        "weights between items": {
            "weights": [[1.0, 0.9, 0.1], [0.9, 1.0, 0.4], [0.1, 0.4, 1.0]],
            "metric": "euclidean",
            "temperature": 1.0,
        },
    },
)
