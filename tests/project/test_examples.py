"""The examples run and print what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import real_counts, weightings


def test_real_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real_counts.main(["--output", str(tmp_path), "cifar10_lt", "credit_card_fraud"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cifar10_lt: 10 classes, imbalance 100:1"
    assert lines[6] == "credit_card_fraud: 2 classes, imbalance 578:1"
    geometries = lines[1:5] + lines[7:11]
    assert [line.split()[2] for line in geometries] == ["imbalanced"] * 4 + ["simplex_etf"] * 4
    for line in geometries:
        assert float(line.rsplit(maxsplit=1)[1]) <= 1e-8
    for name in ("cifar10_lt", "credit_card_fraud"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_data_set_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        real_counts.main(["cifar11"])
    assert stop.value.code == 2
    assert "cifar11" in capsys.readouterr().err


def test_weightings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weightings.main(["--output", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    verdicts = {line[2:50].strip(): line[50:].split()[0] for line in lines[1:11]}
    assert verdicts == {
        "SupCon, 4 classes": "inconsistent",
        "Soft SupCon, epsilon at the simplex": "realizable",
        "Soft SupCon, epsilon 10 x smaller": "inconsistent",
        "y-Aware, scalar labels": "inconsistent",
        "y-Aware, labels on a circle, R < sigma/sqrt(T)": "realizable",
        "y-Aware, labels on a circle, R > sigma/sqrt(T)": "inconsistent",
        "Euclidean, scalar labels": "realizable",
        "X-CLR, T/T_w = 0.5": "realizable",
        "X-CLR, T/T_w = 1": "realizable",
        "X-CLR, T/T_w = 3": "inconsistent",
    }
    for line in lines[1:11]:
        excess, gap = float(line.split("bound by ")[1].split()[0]), float(line.split("proven to ")[1][:-1])
        assert gap <= 1e-8
        realizable = verdicts[line[2:50].strip()] == "realizable"
        assert excess < 1e-12 if realizable else excess - gap > 1e-4
    assert (tmp_path / "supcon_ham10000.png").read_bytes().startswith(b"\x89PNG")
