"""Contrastive losses of one batch, the torch twins of the core's risks.

Both kinds return the mean over the anchors that have something to compare, and how many those are.
"""

from worker.training.losses.batch_loss import BatchLoss
from worker.training.losses.drawn import averaged_loss, drawn_loss
from worker.training.losses.negatives import allowed_negatives, draw_negatives
from worker.training.losses.weighted import weighted_infonce

__all__ = [
    "BatchLoss",
    "allowed_negatives",
    "averaged_loss",
    "draw_negatives",
    "drawn_loss",
    "weighted_infonce",
]
