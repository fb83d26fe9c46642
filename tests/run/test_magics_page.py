"""What a run leaves in a notebook that a program executes: its static page, and nothing live."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

HOSTILE = "<script>alert(1)</script>"


def executed(folder: Path, replies: list[str], *sources: str) -> nbformat.NotebookNode:
    """Execute cells as nbclient does, with a model that plays back one cell each."""
    lines = (json.dumps({"content": f"Thinking.\n```python\n{cell}\n```"}) for cell in replies)
    (folder / "script.jsonl").write_text("\n".join(lines))
    cells = [nbformat.v4.new_code_cell(source) for source in ("%load_ext kernel_agent", *sources)]
    book = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(book, timeout=60, resources={"metadata": {"path": str(folder)}})
    asyncio.run(client.async_execute())
    return client.nb


@pytest.mark.long
def test_a_program_finds_the_page_of_a_run_as_html_and_as_text(tmp_path: Path) -> None:
    """With the answer, the link to the notebook, and no widget, script or style sheet."""
    shows = f"from IPython.display import HTML, display\ndisplay(HTML({HOSTILE!r}))"
    book = executed(
        tmp_path, [shows, f"final_answer({HOSTILE!r})"],
        "run = %agent --model scripted:script.jsonl Show it", "print(run.status)",
    )  # fmt: skip
    (page,) = book.cells[1].outputs
    assert sorted(page.data) == ["text/html", "text/plain"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.data["text/html"]
    assert "<script" not in page.data["text/html"]
    assert "/run.ipynb</a>" in page.data["text/html"]
    assert HOSTILE in page.data["text/plain"]
    assert "widgets" not in book.metadata
    assert book.cells[2].outputs[0].text == "answered\n"


def test_what_nobody_can_be_asked_about_is_denied_and_the_page_says_so(tmp_path: Path) -> None:
    """A program that runs the notebook is no person."""
    book = executed(
        tmp_path, ["a = 1", "final_answer(a)"],
        "run = %agent --approve always --max-steps 2 --model scripted:script.jsonl Do it",
        "print(run.status, [step.decision.allowed for step in run.steps])",
    )  # fmt: skip
    assert "[False" in book.cells[2].outputs[0].text
    assert "nobody" in book.cells[1].outputs[0].data["text/plain"]


@pytest.mark.long
def test_a_step_is_taken_back_by_a_line_and_the_next_question_goes_on(tmp_path: Path) -> None:
    """What was passed in stays."""
    book = executed(
        tmp_path,
        ["rows.append(2)", "final_answer(rows)", "rows.append(3)", *["final_answer(rows)"] * 2],
        "rows = [1]\nrun = %agent -i rows --model scripted:script.jsonl Change it",
        "%agent undo: not like that",
        "once = %agent And more?",
        "%agent undo question: nor like that",
        "again = %agent And now?",
        "print(once.answer, again.answer)",
        "%agent undo",
        "%agent undo question",
        "try:\n    get_ipython().run_line_magic('agent', 'undo question')\n"
        "except Exception as error:\n    print(error)",
    )  # fmt: skip
    assert book.cells[2].outputs[0].text.startswith("Step 2 was undone: not like that.")
    assert book.cells[4].outputs[0].text.startswith("Steps 3 to 4 were undone: nor like that.")
    assert book.cells[6].outputs[0].text == "[1, 2, 3] [1, 2]\n"
    undone = [book.cells[at].outputs[0].text.partition(".")[0].strip() for at in (7, 8, 9)]
    assert undone == ["Step 5 was undone", "Step 1 was undone", "no question is left to undo"]
