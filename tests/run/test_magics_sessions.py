"""What a follow-up of ``%agent`` keeps: kernel, conversation, files, variables. Real kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run.test_magics_runs import agent_kernels, opened, script


@pytest.fixture(autouse=True)
def _as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "off")


GOES_ON = "The session before goes on with the next question."
NEW_KERNEL = "needs a new kernel: a new session begins"
FIRST = "%agent --data sales.csv -i n"


def failing(folder: Path, name: str) -> str:
    """Write a script that has no reply to what is asked here: its model fails."""
    (folder / name).write_text(json.dumps({"content": "", "for": "something else"}) + "\n")
    return f"scripted:{name}"


async def kernels_left(book: Any, folder: Path, count: int) -> bool:
    """Wait until so many kernels of agents are left; one that is ended takes a moment."""
    for _ in range(100):
        if len(agent_kernels(folder)) == count:
            return True
        await book.run("import time; time.sleep(0.1)")
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sales.csv").write_text("region,sales\nN,3\n")
    script(tmp_path, "a.jsonl", "x = 41\nfinal_answer(x)", *["final_answer(repr((x, n)))"] * 3)
    script(tmp_path, "b.jsonl", "final_answer(x + 100)")
    script(
        tmp_path, "data.jsonl", *["final_answer(repr((open('data/sales.csv').read()[:6], n)))"] * 2
    )
    return tmp_path


async def begun(book: Any) -> None:
    text = await book.run(f"n = 7\n{FIRST} --model scripted:a.jsonl First?")
    assert "\nAnswer\n41\n" in text


@pytest.mark.long
async def test_another_model_format_or_approval_goes_on_in_the_same_kernel(folder: Path) -> None:
    """And in the same conversation, folder and trace."""
    async with opened(folder) as book:
        await begun(book)
        other = await book.run("%agent --model scripted:b.jsonl --format fenced And with b?")
        asked = await book.run("r = %agent --approve always --max-steps 1 Now?\nprint(r.sandbox)")
        kernels = agent_kernels(folder)
    assert "\nAnswer\n141\n" in other
    assert "Model: scripted:b.jsonl" in other
    assert "--- Step 2 ---" in other
    assert NEW_KERNEL not in other + asked
    assert len(list(folder.glob("runs/*"))) == 1
    assert len(kernels) == 1


@pytest.mark.long
async def test_without_a_model_nothing_is_made_for_what_is_no_table(folder: Path) -> None:
    (folder / "bare.csv").write_text("region,sales\n")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    async with opened(folder) as book:
        for data in ("", "--data bare.csv ", "--data picture.png "):
            told = await book.run(f"%agent --model offline {data}How many rows?")
            assert "without a model" in told or "a header but no rows" in told
        with_variable = await book.run(
            "import pandas as pd; t = pd.DataFrame({'a': [1, 2, 3]})\n"
            "%agent --model offline -i t How many rows are there?"
        )
    assert "\nAnswer\n3\n" in with_variable
    assert len(list(folder.glob("runs/*"))) == 1


SLIPS = (
    "--model scripted:missing.jsonl And?", "--format fencd And?", "--data nofile.csv And?",
    "--sandbox bubblewarp And?", "--tools nothing And?", "--max-cost 1 And?",
    "--data nofile.csv --model scripted:missing.jsonl And?", "-i m And?",
)  # fmt: skip


async def test_a_slip_destroys_nothing(folder: Path) -> None:
    """One line says what is wrong, none that something is gone; the next question goes on."""
    async with opened(folder) as book:
        await begun(book)
        for slip in SLIPS:
            wrong = await book.run(f"%agent {slip}")
            assert wrong.splitlines()[-1].startswith("UsageError: "), slip
            assert len(wrong.splitlines()) == 1, wrong
        after = await book.run("%agent And now?")
    assert "\nAnswer\n(41, 7)\n" in after
    assert "Data:  data/sales.csv" in after


@pytest.mark.long
async def test_a_model_that_never_replies_gives_way_to_the_one_before(folder: Path) -> None:
    """A name that is misspelt: kernel, conversation and files stay, and so does the model."""
    failing(folder, "c.jsonl")
    async with opened(folder) as book:
        await begun(book)
        wrong = await book.run("%agent --model scripted:c.jsonl And?")
        after = await book.run("%agent And now?")
    assert "scripted:c.jsonl did not reply: the session goes on with scripted:a.jsonl." in wrong
    assert "\nAnswer\n(41, 7)\n" in after
    assert "Model: scripted:a.jsonl" in after


@pytest.mark.long
async def test_what_was_undone_is_not_missed_in_a_new_kernel(folder: Path) -> None:
    async with opened(folder) as book:
        await begun(book)
        await book.run("%agent undo")
        other = await book.run("%agent --sandbox landlock --model scripted:data.jsonl And?")
    assert f"{NEW_KERNEL}, with sales.csv, n. The one before" in other


async def test_what_needs_a_new_kernel_takes_files_and_variables_along(folder: Path) -> None:
    """The session before is kept until the new one has answered."""
    failing(folder, "c.jsonl")
    async with opened(folder) as book:
        await begun(book)
        failed = await book.run("%agent --sandbox landlock --model scripted:c.jsonl And?")
        back = await book.run("%agent And now?")
        kept = await kernels_left(book, folder, 1)
        done = await book.run("%agent --sandbox landlock --model scripted:data.jsonl And?")
        left = await kernels_left(book, folder, 1)
        again = await book.run("%agent --sandbox landlock Again?")
    lacks = "without what cells made there (x)"
    assert f"--sandbox {NEW_KERNEL}, with sales.csv, n, {lacks}. The one before is kept" in failed
    assert GOES_ON in failed
    assert "\nAnswer\n(41, 7)\n" in back
    assert "('region', 7)" in done
    assert kept
    assert left
    assert NEW_KERNEL not in again


@pytest.mark.long
async def test_a_question_that_fits_the_session_before_goes_back_to_it(folder: Path) -> None:
    """Another file was named by mistake, and its run stopped or came to nothing."""
    (folder / "other.csv").write_text("a\n1\n")
    script(folder, "wrong.jsonl", "x = 1")
    async with opened(folder) as book:
        await begun(book)
        await book.run("%agent --data other.csv --model scripted:wrong.jsonl --max-steps 1 What?")
        back = await book.run("%agent --data sales.csv --model scripted:a.jsonl What?")
    assert "\nAnswer\n(41, 7)\n" in back
    assert NEW_KERNEL not in back


SEND = """
from kernel_agent import tool

@tool(effects=True)
def send(text: str) -> str:
    "Send a text to the team."
    print("SENT", text)
    return "sent"
"""


@pytest.mark.long
async def test_what_was_said_of_asking_is_named_where_a_new_session_goes_on_with_it(
    folder: Path,
) -> None:
    """And with --new it does not hold; nor is it named where it was said again."""
    model = script(folder, "send.jsonl", *["final_answer(send('x'))"] * 3)
    ask = f"%agent --model {model}"
    async with opened(folder) as book:
        await book.run(f"{SEND}\nn = 7\n{FIRST} --approve never --model scripted:a.jsonl First?")
        carried = await book.run(f"{ask} --tools send Send it.")
        back = await book.run("%agent --data sales.csv --approve risky --tools send Again.")
        anew = await book.run(f"{ask} --new --tools send Send it.")
    assert f"--tools {NEW_KERNEL}, with sales.csv, n, without what cells made there (x)." in carried
    assert "What was said there holds here, too: --approve never." in carried
    assert "SENT x" in carried
    assert "SENT" not in back + anew
    assert "holds here, too" not in back + anew


@pytest.mark.long
async def test_new_begins_anew_with_nothing_of_the_session_before(folder: Path) -> None:
    script(folder, "new.jsonl", "import os\nfinal_answer(repr(sorted(os.listdir('data'))))")
    async with opened(folder) as book:
        await begun(book)
        new = await book.run("%agent --new --model scripted:new.jsonl What is there?")
    assert "A new session begins. The one before is kept until this one has answered." in new
    assert "\nAnswer\n[]\n" in new


# --- show ----------------------------------------------------------------------------------------


@pytest.mark.long
async def test_show_brings_the_page_of_the_last_run_again_also_after_a_restart(
    folder: Path,
) -> None:
    """From the trace: the cell it stood below may be on another page."""
    async with opened(folder) as book:
        nothing = await book.run("%agent show")
        await begun(book)
        shown = await book.shown("%agent show")
    assert nothing == "UsageError: There is no run to show: ask a first question.\n"
    assert "First?" in shown["text/html"]
    assert "\nAnswer\n41\n" in shown["text/plain"]
    async with opened(folder) as book:
        assert "First?" in (await book.shown("%agent show"))["text/html"]
