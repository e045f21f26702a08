"""No CUDA in a forked child: what starts processes never loads torch, and every child is a new program."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("jobs", "service", "worker") for path in (ROOT / folder).rglob("*.py"))
PARENTS = "worker.__main__, worker.node, worker.supervisor, worker.attempt, worker.runner_process"


def test_parents_never_load_torch() -> None:
    """What is not loaded has no CUDA context; the GPUs are counted too."""
    code = (
        f"import sys, service.app, {PARENTS}\n"
        "from worker.devices import count_gpus, torch_installed\n"
        "torch_installed(); count_gpus()\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_forks(path: Path) -> None:
    """Neither by name nor by a pool whose children are forks."""
    names = {"fork", "forkpty", "ProcessPoolExecutor", "multiprocessing"}
    used = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            used |= {part for alias in node.names for part in alias.name.split(".")}
            used |= set((getattr(node, "module", None) or "").split("."))
    assert not used & names
