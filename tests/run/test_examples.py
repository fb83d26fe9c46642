"""The example notebooks are what they say: they run from a clean state and show what they show."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from kernel_agent import verify
from kernel_agent.notebook.compare import Verdict, compare

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "example_notebooks"
EXAMPLES = sorted(FOLDER.glob("*.ipynb"))
READ = {path: nbformat.read(path, as_version=4) for path in EXAMPLES}
EXPORTED = [path for path in EXAMPLES if "kernel_agent" in READ[path].metadata]
BY_HAND = [path for path in EXAMPLES if path not in EXPORTED]


def stem(path: Path) -> str:
    return path.stem


def test_there_are_examples_of_both_kinds() -> None:
    assert EXPORTED
    assert {path.stem for path in BY_HAND} >= {"04_fails_recovers_undone", "05_code_against_json"}


@pytest.mark.parametrize("path", EXPORTED, ids=stem)
def test_an_exported_example_reproduces(path: Path) -> None:
    report = verify(path)
    assert report.reproduces, report.summary
    assert report.counts["same"] >= 3


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of what the examples read, and an environment that names no model."""
    for name in ("example_notebooks", "example_tasks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in [n for n in os.environ if n.startswith(("OPENAI_", "KERNEL_AGENT_", "EXAMPLE_"))]:
        monkeypatch.delenv(name)
    paths = [str(ROOT), str(ROOT / "extension")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return tmp_path / "example_notebooks"


@pytest.mark.parametrize("path", BY_HAND, ids=stem)
def test_an_example_runs_from_a_clean_state_and_shows_what_it_shows(
    clean: Path, path: Path
) -> None:
    """Every cell in a kernel of its own, without a key; nothing is left beside the notebooks."""
    before = sorted(p.name for p in clean.iterdir())
    again = nbformat.read(clean / path.name, as_version=4)
    resources = {"metadata": {"path": str(clean)}}
    NotebookClient(again, kernel_name="python3", timeout=300, resources=resources).execute()
    differences = []
    for old, new in zip(READ[path].cells, again.cells, strict=True):
        if old.cell_type == "code":
            found = compare(old.outputs, new.outputs)
            if found.verdict not in (Verdict.SAME, Verdict.VOLATILE):
                differences.append(f"{old.source[:80]}\n{found.detail}")
    assert not differences, "\n\n".join(differences)
    assert sorted(p.name for p in clean.iterdir()) == before


@pytest.mark.parametrize("path", EXAMPLES, ids=stem)
def test_an_example_says_how_it_was_made_and_shows_a_picture(path: Path) -> None:
    notebook = READ[path]
    nbformat.validate(notebook)
    said = ("rule-based analyst",) if path in EXPORTED else ("recorded", "EXAMPLE_MODEL")
    assert all(words in notebook.cells[0].source for words in said)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    machine = ("/work/", "/root/", "/home/", "/tmp/")
    assert not any(place in path.read_text() for place in machine)
