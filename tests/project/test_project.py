"""What the files of the project say of each other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anglewise
import run

ROOT = Path(run.__file__).parent


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_newest_release_of_the_changelog_is_this_version() -> None:
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert releases[0] == anglewise.__version__


def test_every_reference_cited_in_code_is_in_the_bibliography() -> None:
    known = set(re.findall(r"^\| (\w+) \|", text("docs/references.md"), flags=re.MULTILINE))
    cited = {
        key
        for path in (ROOT / "anglewise").rglob("*.py")
        for key in re.findall(r"\[(P[12]|[A-Z][A-Za-z]+[12]\d{3})[,\]]", path.read_text(encoding="utf-8"))
    }
    assert {"P1", "P2"} <= cited
    assert cited <= known


def test_requirements_are_pinned_by_hash_and_carry_no_addresses() -> None:
    for path in run.REQUIREMENTS.values():
        content = path.read_text(encoding="utf-8")
        packages = re.findall(r"^([a-z0-9][\w.-]*)==", content, flags=re.MULTILINE)
        assert {"numpy", "scipy", "fastapi"} <= set(packages)
        assert len(re.findall(r"--hash=sha256:", content)) >= len(packages)
        assert "://" not in content


def test_importing_the_core_loads_no_server_and_no_slow_solver() -> None:
    code = "import sys, anglewise; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in ("fastapi", "pydantic", "torch", "cvxpy", "matplotlib"):
        assert f"'{name}'" not in loaded
    assert "'anglewise'" in loaded


def test_class_counts_of_the_examples_are_the_tested_ones() -> None:
    shown = json.loads(text("examples/data/class_counts.json"))
    tested = json.loads(text("tests/data/real_class_counts.json"))
    for name, entry in shown.items():
        assert entry["class_counts"] == tested.get(name, tested.get(f"{name}_100"))
        assert entry["source"]


def test_run_names_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run.main(["fly"])
    assert stop.value.code == 2
    assert "fly" in capsys.readouterr().err


def test_a_port_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORT", "eighty")
    with pytest.raises(SystemExit) as stop:
        run.main(["serve"])
    assert stop.value.code == 2
    assert "--port" in capsys.readouterr().err
