"""The README's first commands, word for word."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import run
from service.app import create_app
from service.settings import Settings

ROOT = Path(run.__file__).parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Contents of the code blocks of one language; "" for blocks without one."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [content for label, content in fenced if label == language]


def run_python() -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(blocks("python")[0], "README.md", "exec"), {})
    return output.getvalue()


def curl() -> tuple[str, dict[str, Any]]:
    """Path and body of the first curl."""
    command = next(block for block in blocks("sh") if block.startswith("curl"))
    words = shlex.split(command)
    assert words[:2] == ["curl", "-s"]
    assert words[3:5] == ["-H", "Content-Type: application/json"]
    return words[2].removeprefix("http://127.0.0.1:8000"), json.loads(words[words.index("-d") + 1])


def test_the_two_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^python3 run\.py (\w+)", README, flags=re.MULTILINE)
    assert commands[:2] == ["serve", "test"]
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            run.main([command, "--help"])
        assert stop.value.code == 0
        assert f"run.py {command}" in capsys.readouterr().out


def test_the_first_python_lines_print_what_is_shown() -> None:
    printed = run_python()
    assert blocks("")[0].strip() == printed[: printed.rindex("]") + 1].strip()
    gap, angle = map(float, printed.splitlines()[-1].split())
    assert 0 <= gap <= 1e-8
    assert round(angle) == 73


def test_all_python_lines_run_and_give_the_numbers_beside_them() -> None:
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks("python")), "README.md", "exec"), names)
    shown = re.findall(r"^(.+?)  # (\d+\.\d+)\b", blocks("python")[1], flags=re.MULTILINE)
    assert len(shown) == 2
    for expression, value in shown:
        assert eval(expression, names) == pytest.approx(float(value), rel=1e-4)


def test_the_first_curl_gives_the_same_geometry() -> None:
    from starlette.testclient import TestClient

    path, body = curl()
    with TestClient(create_app(Settings(workers=1))) as client:
        answer = client.post(path, json=body).json()
    shown = np.array([row.strip(" []").split() for row in blocks("")[0].strip().splitlines()], dtype=float)
    np.testing.assert_allclose(answer["gram"], shown, rtol=0, atol=6e-4)
    assert answer["certificate"]["certified"]


def test_settings_in_the_table_exist_with_their_defaults() -> None:
    rows = re.findall(r"^\| `ANGLEWISE_(\w+)` \| (\d+) \|", README, flags=re.MULTILINE)
    assert len(rows) >= 8
    for name, default in rows:
        assert Settings.model_fields[name.lower()].default == int(default), name
