"""The reference is what the code says, and every page is in the book."""

from __future__ import annotations

import dataclasses
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

sys.path.insert(0, str(ROOT / "scripts"))
import reference  # noqa: E402

BOOK = runpy.run_path(str(DOCS / "conf.py"))
LATER = {
    "first-answer", "jupyter", "models", "every-month", "troubleshooting", "how-a-run-works",
    "trust-a-notebook", "how-measured", "fixed", "sandbox-internals",
}  # fmt: skip
"""Pages that the book has a place for."""


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    """Where it is not: ``make reference``."""
    assert (reference.FOLDER / f"{name}.md").read_text() == reference.PAGES[name]()


def test_only_the_glossary_is_written_by_hand() -> None:
    written = {page.stem for page in reference.FOLDER.iterdir()} - set(reference.PAGES)
    assert written == {"glossary"}
    assert (
        len(re.findall(r"^\*\*", (reference.FOLDER / "glossary.md").read_text(), re.MULTILINE))
        <= 40
    )


def test_each_note_is_on_a_field_that_exists() -> None:
    for kind, notes in reference.NOTES.items():
        assert set(notes) <= {field.name for field in dataclasses.fields(kind)}, kind


def test_every_page_has_one_place_in_the_book() -> None:
    placed = [ROOT / BOOK["path_of"](page) for part in BOOK["PARTS"].values() for page in part]
    assert len(placed) == len(set(placed))
    pages = {*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "example_notebooks").glob("*.ipynb")}
    assert {page.with_suffix("") for page in pages} - set(placed) == {DOCS / "README"}
    there = {path for path in placed if [*path.parent.glob(f"{path.name}.*")]}
    assert {path.name for path in placed} - {path.name for path in there} <= LATER
