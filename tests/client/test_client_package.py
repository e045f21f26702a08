"""The client as a distribution: what it exports, what it needs, what it must never import."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import anglewise_client

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients/python"
PACKAGE = FOLDER / "anglewise_client"
SERVER_SIDE = {"anglewise", "jobs", "service", "worker", "torch", "celery", "redis", "fastapi"}
OPTIONAL = {"matplotlib", "pandas", "lightning", "transformers", "IPython"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def at_import(tree: ast.AST) -> Iterator[str]:
    """Top names of the modules that importing a module imports; not those inside functions or for types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_import(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_of_the_server_is_imported(path: Path) -> None:
    names = set(at_import(ast.parse(path.read_text())))
    assert not names & (SERVER_SIDE | OPTIONAL)
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    declared = {line.partition(">=")[0] for line in project["dependencies"]}
    declared |= {"pydantic_core", "anglewise_client"}
    assert names <= declared | set(sys.stdlib_module_names)


def test_one_version_for_both() -> None:
    core = (ROOT / "anglewise/version.py").read_text()
    assert f'__version__ = "{anglewise_client.__version__}"' in core


def test_exports_are_what_is_there() -> None:
    names = anglewise_client.__all__
    assert len(names) == len(set(names))
    public = {
        name
        for name, value in vars(anglewise_client).items()
        if not name.startswith("_") and not isinstance(value, type(sys))
    }
    assert public | {"__version__"} == set(names)


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"anglewise": "anglewise_client.cli:main"}
    assert set(project["optional-dependencies"]) == {"plot", "dataframe", "lightning", "transformers"}


def test_files_are_short() -> None:
    assert max(len(path.read_text().splitlines()) for path in MODULES) <= 350
