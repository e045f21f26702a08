"""The optimal representation geometry of contrastive learning, with certificates."""

from anglewise.class_geometry import Geometry
from anglewise.comparators import SELI, Comparator
from anglewise.errors import AnglewiseError, InvalidInput, NumericalFailure, TooLarge
from anglewise.geometry import Certificate, Collapse, MinorityCollapse, NearMerge, SolverReport
from anglewise.losses import LOSSES, Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.maps import Axis, CollapseMap, collapse_map
from anglewise.optimum import optimal_geometry
from anglewise.sampling import Groups, Sampling
from anglewise.thresholds import Threshold, collapse_threshold
from anglewise.version import __version__

__all__ = [
    "LOSSES",
    "SELI",
    "AnglewiseError",
    "Axis",
    "Certificate",
    "Collapse",
    "CollapseMap",
    "Comparator",
    "Exponential",
    "Geometry",
    "Groups",
    "InfoNCE",
    "InvalidInput",
    "Logistic",
    "Loss",
    "MinorityCollapse",
    "NearMerge",
    "NumericalFailure",
    "Sampling",
    "SolverReport",
    "SquaredHinge",
    "Threshold",
    "TooLarge",
    "Triplet",
    "__version__",
    "collapse_map",
    "collapse_threshold",
    "optimal_geometry",
]
