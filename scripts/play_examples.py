"""Run the example notebooks that are written by hand, and keep what their cells show.

Usage: ``python scripts/play_examples.py [NOTEBOOK…]``, in an environment with everything. Each runs
from top to bottom in a fresh kernel, in its own folder; it is written again only when every cell
ran. Times and other traces of the machine are not kept, so that a second time changes little.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "example_notebooks"


def by_hand() -> list[Path]:
    """Return the notebooks that are no exports of a run."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    return [p for p in paths if "kernel_agent" not in nbformat.read(p, as_version=4).metadata]


def play(path: Path) -> None:
    """Run one notebook and write it back."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, kernel_name="python3", timeout=600, resources=resources, record_timing=False
    ).execute()
    notebook.metadata.language_info = {"name": "python"}
    path.write_text(nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    for chosen in [Path(name).resolve() for name in sys.argv[1:]] or by_hand():
        play(chosen)
        sys.stdout.write(f"{chosen.name}: played\n")
