"""POST /realizability: can any embedding attain the entropy bound of these weights?"""

from __future__ import annotations

from jobs.computations.realizability import ARRAY_COMPUTATION, COMPUTATION
from service.realizability_array import MEDIA_TYPE, query_parameters, receive
from service.routes import OtherBody, computation_router

router = computation_router(
    COMPUTATION,
    path="/realizability",
    tag="weights",
    summary="Whether weights are realizable",
    description="Whether similarities in this metric and dimension can attain the entropy bound of weighted "
    "InfoNCE for these weights, with a proof: an embedding, two embeddings, or a witness of impossibility. "
    "The matrix may also be sent as an .npy file of float32 or float64, with the settings in the query "
    "string. With `Accept: application/x-npz` the full matrices come as an archive.",
    examples={
        "soft labels over four classes": {
            "weights": {"name": "soft_supcon", "class_counts": [3, 2, 2, 1], "epsilon": 0.09},
            "temperature": 0.5,
        },
        "a matrix, one item not compared with itself": {
            "weights": [[0, 1.0, 0.5], [1.0, 0, 0.5], [0.5, 0.5, 0]],
            "self_pairs": "excluded",
            "temperature": 1.0,
        },
        "logarithms, with a weight of zero": {
            "log_weights": [[0.0, -1.0, None], [-1.0, 0.0, -2.0], [None, -2.0, 0.0]],
            "metric": "euclidean",
        },
    },
    other=OtherBody(
        MEDIA_TYPE,
        ARRAY_COMPUTATION,
        receive,
        schema={"type": "string", "format": "binary", "description": "an n × n .npy array"},
        parameters=query_parameters(),
    ),
)
