"""The devices of this machine, and what a runner on one of them finds in its environment."""

from __future__ import annotations

import glob
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"
COUNT_SECONDS = 120.0


def torch_installed() -> bool:
    """Without loading it."""
    return importlib.util.find_spec("torch") is not None


def count_gpus() -> int:
    """How many GPUs torch finds. It is asked in a process of its own: none here may touch CUDA."""
    if not torch_installed() or not glob.glob("/dev/nvidia[0-9]*"):
        return 0
    command = [sys.executable, "-c", COUNT_GPUS]
    try:
        output = subprocess.run(command, capture_output=True, timeout=COUNT_SECONDS, check=True, text=True)
        return int(output.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def runner_environment(device: str, share: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of a runner that sees its device, or devices, and no other.

    Args:
        device: "cpu", "cuda:0", "cuda:0+1", "mps".
        share: how many runners there are on this machine; each has its share of the processor cores.

    >>> runner_environment("cuda:1", 1, {"CUDA_VISIBLE_DEVICES": "4,6"})["CUDA_VISIBLE_DEVICES"]
    '6'
    """
    threads = str(max(1, (os.cpu_count() or 1) // share))
    changed = {name: environment.get(name, threads) for name in THREADS}
    kind, _, numbers = device.partition(":")
    indices = map(int, numbers.split("+")) if kind == "cuda" else ()
    changed[VISIBLE] = ",".join(_visible(index, environment.get(VISIBLE)) for index in indices)
    return {**environment, **changed}


def _visible(index: int, inherited: str | None) -> str:
    """The name of the GPU that is number ``index`` among those this process may see."""
    names: Sequence[str] = inherited.split(",") if inherited else ()
    return names[index].strip() if index < len(names) else str(index)
