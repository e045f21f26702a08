"""The examples run and print what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import real_counts


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
