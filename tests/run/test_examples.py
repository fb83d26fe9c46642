"""The example notebooks are real exported runs: they reproduce, on this machine, now."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from kernel_agent import verify

FOLDER = Path(__file__).parents[2] / "example_notebooks"
EXAMPLES = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reproduces(path: Path) -> None:
    report = verify(path)
    assert report.reproduces, report.summary
    assert report.counts["same"] >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_was_made_and_shows_a_picture(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "rule-based analyst" in notebook.cells[0].source
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert pictures
