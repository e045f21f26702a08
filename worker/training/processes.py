"""Several processes, or GPUs, that share one run.

Each encodes its part of every batch; all compute the loss of the whole batch from the gathered embeddings,
and the sum of their gradients is that of one process. So a run does not depend on how many share it, except
by rounding and by normalization layers, which see the part of a process. The first one decides and reports.

Shapes: N samples of a batch, n of them in this process, D dimensions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from worker.out_of_memory import is_out_of_memory

PATIENCE = timedelta(days=1)
"""The others wait while the first one predicts and evaluates; a process that ends is noticed at once."""
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torch's launcher sets."""


class Next(IntEnum):
    """What all processes do next."""

    STEP = 0
    FINISH = 1
    """Embed all samples, and end."""
    STOP = 2
    """End now."""


class PeerLost(Exception):
    """Another process of the run is gone, or the connection to it: never the fault of this one."""


@contextmanager
def _among_peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise PeerLost(str(error).partition("\n")[0]) from error


@dataclass(frozen=True)
class Processes:
    """The place of this process among those of its run; one that is alone exchanges nothing.

    Attributes:
        rank: 0 for the first one.
        size: how many there are.
        local_rank: the number among those of its machine, which is that of its GPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    def part(self, items: int) -> slice:
        """Which of N items this process takes."""
        return self._part(items, self.rank)

    def _part(self, items: int, rank: int) -> slice:
        return slice(rank * items // self.size, (rank + 1) * items // self.size)

    def gather(self, part_nD: Tensor, items: int) -> Tensor:
        """(N, D) the parts of all processes, in order; differentiable in this one's.

        All processes must then compute the same from it: its gradient is taken to be known to each.
        """
        if self.size == 1:
            return part_nD
        gathered_ND: Tensor = _Gather.apply(part_nD, items, self)  # type: ignore[no-untyped-call]
        return gathered_ND

    def gathered(self, part_nD: Tensor, items: int) -> Tensor:
        """`gather` without a gradient. Parts differ by one item at most, and are sent padded."""
        most = -(-items // self.size)
        padded = part_nD.new_zeros((most, *part_nD.shape[1:]))
        padded[: len(part_nD)] = part_nD
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        with _among_peers():
            dist.all_gather(parts, padded)
        places = [self._part(items, rank) for rank in range(self.size)]
        return torch.cat([part[: at.stop - at.start] for part, at in zip(parts, places, strict=True)])

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by the sum over all processes, the same bits in each."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with _among_peers():
            dist.all_reduce(total)
        parts = torch.split(total, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite these by those of the first process."""
        if self.size > 1:
            for tensor in tensors:
                _from_first(tensor)

    def first_decides(self, choice: Next) -> Next:
        """What the first process chose; what the others pass does not count."""
        if self.size == 1:
            return choice
        word = torch.tensor(choice)
        _from_first(word)
        return Next(int(word))

    def from_first(self, data: bytes) -> bytes:
        """The bytes that the first process passed, in all."""
        if self.size == 1:
            return data
        length = torch.tensor([len(data)])
        _from_first(length)
        if length.item() == 0:
            return b""
        content = torch.empty(int(length.item()), dtype=torch.uint8)
        if self.first:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        _from_first(content)
        return content.numpy().tobytes()


def _from_first(tensor: Tensor) -> None:
    """Overwrite it by that of the first process."""
    with _among_peers():
        dist.broadcast(tensor, src=0)


ALONE = Processes()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part_nD: Tensor, items: int, processes: Processes) -> Tensor:
        ctx.part = processes.part(items)
        return processes.gathered(part_nD, items)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0][ctx.part], None, None


def take_device(processes: Processes) -> None:
    """Of the GPUs of this machine, the one with the number of the process."""
    if torch.cuda.is_available():
        torch.cuda.set_device(processes.local_rank)


@contextmanager
def joined(processes: Processes, meeting: str = "env://") -> Iterator[Processes]:
    """Connects the processes of a run; all must enter.

    Args:
        meeting: where they find each other: ``file:///a/new/file``, or as torch's launcher says.
    """
    take_device(processes)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "cpu:gloo"
    with _among_peers():
        dist.init_process_group(
            backend, init_method=meeting, rank=processes.rank, world_size=processes.size, timeout=PATIENCE
        )
    try:
        yield processes
    finally:
        dist.destroy_process_group()


def leave(status: int) -> NoReturn:
    """End a process that was joined to others, once all it has to say is said.

    Its libraries still have threads, which abort the orderly end of an interpreter every few times.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def of_torchrun() -> Processes | None:
    """The place that torch's launcher gave to this process; None if it was started without."""
    if any(name not in os.environ for name in TORCHRUN):
        return None
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return Processes(rank, size, local)
