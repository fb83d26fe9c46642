"""The example notebooks are what they say: they run from a clean state and show what they show."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from kernel_agent import verify
from kernel_agent.notebook.comparison import Verdict, compare

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "example_notebooks"
EXAMPLES = sorted(FOLDER.glob("*.ipynb"))
READ = {path: nbformat.read(path, as_version=4) for path in EXAMPLES}
EXPORTED = [path for path in EXAMPLES if "kernel_agent" in READ[path].metadata]
BY_HAND = [path for path in EXAMPLES if path not in EXPORTED]

# What the page of a run says and is another each time: when it began, what it took and cost.
PASSING = re.compile(r"(?<=runs/)\d{8}-\d{6}|[\d.]+ s · about [\d,]+ tokens")


def stem(path: Path) -> str:
    return path.stem


def lasting(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Return outputs without what is another each time."""
    kept: list[NotebookNode] = json.loads(PASSING.sub("…", json.dumps(outputs, ensure_ascii=False)))
    return kept


def test_there_are_five_examples_of_both_kinds() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "01_first_question",
        "02_tools_and_secrets",
        "03_variables_in_and_out",
        "04_fails_recovers_undone",
        "05_code_against_json",
    ]
    assert [path.stem for path in EXPORTED] == ["01_first_question"]


def test_each_example_is_in_the_index() -> None:
    index = (FOLDER / "README.md").read_text()
    assert all(f"]({path.name})" in index for path in EXAMPLES)
    assert all(READ[path].cells[0].source.startswith("# ") for path in EXAMPLES)


@pytest.mark.parametrize("path", BY_HAND, ids=stem)
def test_an_example_keeps_no_state_of_widgets(path: Path) -> None:
    """What is shown is static: a page, a table, a picture."""
    assert "widgets" not in READ[path].metadata
    assert "application/vnd.jupyter.widget" not in path.read_text()


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
@pytest.mark.long
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
            found = compare(lasting(old.outputs), lasting(new.outputs))
            if found.verdict not in (Verdict.SAME, Verdict.VOLATILE):
                differences.append(f"{old.source[:80]}\n{found.detail}")
    assert not differences, "\n\n".join(differences)
    assert sorted(p.name for p in clean.iterdir()) == before


@pytest.mark.parametrize("path", EXAMPLES, ids=stem)
def test_an_example_says_how_it_was_made_and_shows_a_picture(path: Path) -> None:
    notebook = READ[path]
    nbformat.validate(notebook)
    said = ("rule-based analyst",) if path in EXPORTED else ("recorded", "EXAMPLE_MODEL")
    place = -1 if path in EXPORTED else 0  # an exported run ends with it
    assert all(words in notebook.cells[place].source for words in said)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    machine = (str(ROOT), "/root/", "/home/", "/tmp/")
    assert not any(place in path.read_text() for place in machine)
