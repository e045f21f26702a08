"""Which samples a batch holds, and their embeddings.

Batch m of the run depends on (seed, m) alone: each epoch goes once through a random order of the samples
and drops what does not fill a batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from anglewise.errors import InvalidInput
from worker.training.chunks import encode_in_chunks
from worker.training.data import IntArray, TrainingData
from worker.training.plan import Plan, Stream, generator
from worker.training.processes import ALONE, Processes
from worker.training.views import random_view

MAX_RESIDENT = 2**29
"""Samples of up to so many numbers stay on the device."""


class Batches:
    """Batches of anchors, by number."""

    def __init__(self, data: TrainingData, plan: Plan) -> None:
        self.data, self.plan = data, plan
        self.per_epoch = max(1, len(data) // plan.batch)
        self.first_C = np.concatenate([[0], np.cumsum(data.counts)[:-1]]).astype(np.int64)
        self.counts_C = np.asarray(data.counts, dtype=np.int64)
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def anchors(self, number: int) -> IntArray:
        """(B,) samples of batch ``number``."""
        epoch, place = divmod(number, self.per_epoch)
        if epoch != self._epoch:
            order = generator(self.plan.seed, Stream.ORDER, epoch).permutation(len(self.data))
            self._epoch, self._order = epoch, order.astype(np.int64)
        return self._order[place * self.plan.batch : (place + 1) * self.plan.batch]

    def positives(self, anchors: IntArray, number: int) -> IntArray:
        """(B,) another sample of the class of each anchor; the anchor itself where it is alone."""
        classes = self.data.y[anchors]
        counts, first = self.counts_C[classes], self.first_C[classes]
        steps = generator(self.plan.seed, Stream.POSITIVES, number).integers(1, np.maximum(counts, 2))
        return first + (anchors - first + steps) % counts


class Embedder:
    """The encoder on rows of the data, or on random views of them, shared by the processes of the run."""

    def __init__(
        self,
        encoder: nn.Module,
        data: TrainingData,
        plan: Plan,
        processes: Processes = ALONE,
        *,
        views: bool = False,
    ) -> None:
        self.encoder, self.plan, self.processes = encoder, plan, processes
        self.x: Tensor | None = None
        if data.x is not None:
            self.x = torch.from_numpy(data.x)
            if self.x.numel() <= MAX_RESIDENT:
                self.x = self.x.to(plan.device)
            if views and self.x.ndim != 4:
                raise InvalidInput(("positives",), "views need images")

    def samples(self, rows: IntArray) -> Tensor:
        """The samples themselves, or rows of the table of free features, on the device."""
        index = torch.from_numpy(rows)
        if self.x is None:
            return index.to(self.plan.device)
        samples = self.x.index_select(0, index.to(self.x.device))
        return samples.to(self.plan.device, self.plan.dtype)

    def __call__(self, rows: IntArray) -> Tensor:
        """(b, d) embeddings."""
        part = self.processes.part(len(rows))
        z = encode_in_chunks(self.encoder, self.samples(rows[part]), self.plan.chunk)
        return self.processes.gather(z, len(rows))

    def two_views(self, rows: IntArray, number: int) -> Tensor:
        """(2b, d) embeddings of one random view of every row, then of another."""
        seeds = generator(self.plan.seed, Stream.VIEWS, number).integers(0, 2**63, 2).tolist()
        x = self.samples(rows)
        views = torch.cat([random_view(x, seed) for seed in seeds])
        z = encode_in_chunks(self.encoder, views[self.processes.part(len(views))], self.plan.chunk)
        return self.processes.gather(z, len(views))

    @torch.no_grad()
    def all(self, rows: IntArray, block: int = 1024) -> Tensor:
        """(n, d) embeddings of many rows as after training, in blocks, on the CPU."""
        self.processes.copy_from_first(self.encoder.buffers())
        self.encoder.eval()
        mine = rows[self.processes.part(len(rows))]
        parts = [self._after_training(mine[start : start + block]) for start in range(0, len(mine), block)]
        self.encoder.train()
        z = torch.cat(parts)
        return z if self.processes.size == 1 else self.processes.gathered(z, len(rows))

    def _after_training(self, rows: IntArray) -> Tensor:
        z: Tensor = self.encoder(self.samples(rows))
        return z.cpu()
