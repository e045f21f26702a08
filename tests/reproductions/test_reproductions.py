"""The experiments of the papers, in small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproductions import collapse_sweep, label_text, sampled_negatives, soft_supcon
from examples.reproductions.__main__ import EXPERIMENTS, main
from examples.reproductions.tables import Result
from examples.reproductions.thickness import line_thickness

DOCUMENT = Path(__file__).parents[2] / "docs" / "reproductions.md"


@pytest.mark.parametrize("width", [3, 5, 8])
def test_the_thickness_of_a_bar_is_its_width(width: int) -> None:
    image = np.zeros((40, 40))
    image[5:35, 15 : 15 + width] = 200
    assert line_thickness(image) == pytest.approx(width, rel=0.15)
    assert line_thickness(image.T) == pytest.approx(line_thickness(image), rel=1e-6)


def test_a_thicker_line_is_thicker_whatever_its_direction() -> None:
    y, x = np.mgrid[:40, :40]
    distance = np.abs(x - y) / np.sqrt(2)
    thin, thick = (line_thickness((distance < half).astype(float)) for half in (1.5, 3.0))
    assert thin == pytest.approx(3.0, abs=0.8)
    assert thick == pytest.approx(6.0, abs=0.8)


def test_collapse_is_crossed_at_the_exact_threshold() -> None:
    result = collapse_sweep.experiment(around=1)
    assert result.holds
    assert [row[0] for row in result.rows] == ["supervised", "supervised", "unsupervised", "unsupervised"]


def test_soft_supcon_is_the_simplex_and_supcon_is_not() -> None:
    result = soft_supcon.experiment()
    assert result.holds
    supcon, soft = result.rows
    assert float(supcon[5]) > 0.01 > 1e-6 > float(soft[5])


def test_label_texts_are_realized() -> None:
    assert label_text.experiment().holds


def test_sampled_negatives_approach_the_optimum() -> None:
    assert sampled_negatives.experiment(steps=(50, 600)).holds


def test_tables_are_markdown() -> None:
    result = Result("T", "claimed", ("a", "b"), [(1, 0.123456)], "found", True)
    assert "| a | b |\n| --- | --- |\n| 1 | 0.1235 |" in result.markdown()


def test_an_unknown_experiment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["levitation"])
    assert "levitation" in capsys.readouterr().err


def test_the_document_has_every_experiment() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count("\n## ") == text.count("*Paper:*") == text.count("*Measured:*") == len(EXPERIMENTS)
