"""The optimal representation geometry of contrastive learning, with certificates."""

from anglewise.class_geometry import Geometry
from anglewise.comparators import SELI, Comparator
from anglewise.design import Design, design_weights
from anglewise.diagnosis import Diagnosis, diagnose
from anglewise.errors import AnglewiseError, InvalidInput, NumericalFailure, TooLarge
from anglewise.geometry import Certificate, Collapse, MinorityCollapse, NearMerge, SolverReport
from anglewise.losses import LOSSES, Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.maps import Axis, CollapseMap, collapse_map
from anglewise.metrics import Metrics
from anglewise.named import NamedWeighting, euclidean, named_weighting, soft_supcon, supcon, x_clr, y_aware
from anglewise.optimum import optimal_geometry
from anglewise.realizability import realizability
from anglewise.sampling import Groups, Sampling
from anglewise.thresholds import Threshold, collapse_threshold
from anglewise.verdict import Offset, Reason, Verdict, Witness
from anglewise.version import __version__
from anglewise.weighted import best_geometry
from anglewise.weighted_geometry import WeightedGeometry
from anglewise.weights import LogWeights

__all__ = [
    "LOSSES",
    "SELI",
    "AnglewiseError",
    "Axis",
    "Certificate",
    "Collapse",
    "CollapseMap",
    "Comparator",
    "Design",
    "Diagnosis",
    "Exponential",
    "Geometry",
    "Groups",
    "InfoNCE",
    "InvalidInput",
    "LogWeights",
    "Logistic",
    "Loss",
    "Metrics",
    "MinorityCollapse",
    "NamedWeighting",
    "NearMerge",
    "NumericalFailure",
    "Offset",
    "Reason",
    "Sampling",
    "SolverReport",
    "SquaredHinge",
    "Threshold",
    "TooLarge",
    "Triplet",
    "Verdict",
    "WeightedGeometry",
    "Witness",
    "__version__",
    "best_geometry",
    "collapse_map",
    "collapse_threshold",
    "design_weights",
    "diagnose",
    "euclidean",
    "named_weighting",
    "optimal_geometry",
    "realizability",
    "soft_supcon",
    "supcon",
    "x_clr",
    "y_aware",
]
