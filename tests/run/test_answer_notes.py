"""What stands beside an answer: a note, or that no cell gave it; and answers that do not stand."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import nbformat
import pytest
from kernel_agent_extension.messages import Scene
from support.replies import cell

from kernel_agent import FakeKernel, ScriptedModel, Session, verify
from kernel_agent.cli.ask import _as_json
from kernel_agent.config import load_config
from kernel_agent.notebook import page_html
from kernel_agent.records import IN_WORDS, ExitStatus, PlainView, Reply, ToolCall, read_trace
from kernel_agent.session import Run

CAVEAT = "Of 2023 alone:\n12 rows <b>have</b> no date."


async def play(out: Path, *replies: str, **options: object) -> Run:
    options = {"kernel": FakeKernel} | options
    async with Session(model=ScriptedModel(replies), out=out, **options) as session:
        return await session.run("How many?")


def views(run: Run) -> dict[str, str]:
    """Return the run as each view shows it."""
    records = list(read_trace(run.trace))
    lines: list[str] = []
    view, scene = (
        PlainView(lines.append),
        Scene(task="How many?", level="auto", clock=time.monotonic),
    )
    notes: list[object] = []
    for record in records:
        view(record)
        notes += scene.tell(record)
    cells = nbformat.read(run.notebook, as_version=4).cells
    return {
        "terminal": "".join(lines),
        "panel": json.dumps(notes, ensure_ascii=False),
        "page": page_html(records),
        "notebook": next(c.source for c in cells if "## Answer" in c.source),
    }


async def test_a_note_stands_below_the_answer_in_every_view(tmp_path):
    run = await play(tmp_path, cell(f"final_answer(42, note={CAVEAT!r})"))
    assert (run.value, run.answer, run.text, run.note) == (42, 42, "42", CAVEAT)
    assert not run.in_words
    assert json.loads(json.dumps(_as_json(run)))["note"] == CAVEAT
    for name, shown in views(run).items():
        assert "Note: Of 2023 alone:" in shown, name
        assert "12 rows" in shown, name
    assert "<b>have" not in views(run)["page"]


async def test_an_answer_in_words_is_marked_in_every_view(tmp_path):
    run = await play(tmp_path, cell("print(42)"), "It has 42 rows.", "It has 42 rows.")
    assert (run.status, run.value, run.answer) == (ExitStatus.ANSWERED, *["It has 42 rows."] * 2)
    assert run.in_words
    assert json.loads(json.dumps(_as_json(run)))["in_words"] is True
    for name, shown in views(run).items():
        assert IN_WORDS in shown.replace("&#39;", "'").replace("&#x27;", "'"), name


async def test_an_answer_in_words_is_not_told_as_a_step_once_more(tmp_path):
    run = await play(tmp_path, cell("print(42)"), "It has 42 rows.", "It has 42 rows.")
    terminal = views(run)["terminal"]
    assert "Step 1" in terminal
    assert "Step 2" not in terminal
    assert terminal.count("not from a cell") == 1
    cells = nbformat.read(run.notebook, as_version=4).cells
    assert not any("Gives the answer" in each.source for each in cells)


async def test_a_session_may_begin_with_an_answer_in_words(tmp_path):
    """Its notebook has the words, and re-runs; a cell may come with the next question."""
    said = "MAD is the median absolute deviation."
    model = ScriptedModel([said, said, cell("final_answer(42)")])
    async with Session(kernel=FakeKernel, model=model, out=tmp_path) as session:
        first = await session.run("What does MAD mean?")
        assert (first.status, first.value, first.in_words) == (ExitStatus.ANSWERED, said, True)
        for name, shown in views(first).items():
            assert said in shown, name
            assert IN_WORDS in shown.replace("&#39;", "'").replace("&#x27;", "'"), name
        second = await session.run("How many?")
    assert (second.value, second.in_words) == (42, False)
    assert (await asyncio.to_thread(verify, second.notebook)).reproduces


async def test_an_answer_without_either_has_nothing_below_it(tmp_path):
    run = await play(tmp_path, cell("final_answer(42)"))
    assert (run.note, run.in_words) == ("", False)
    for name, shown in views(run).items():
        assert "Note:" not in shown, name
        assert IN_WORDS not in shown, name


async def test_a_long_note_is_cut(tmp_path):
    run = await play(tmp_path, cell("final_answer(42, 'n' * 10_000)"))
    assert run.note == "n" * 2_000


@pytest.mark.parametrize(
    "arguments", [{"answer": 42, "note": "of 2023"}, {"value": 42, "note": "of 2023"}]
)
@pytest.mark.parametrize("format", ["json", "tool"])
async def test_a_call_takes_a_note_too(tmp_path, format, arguments):  # noqa: A002 - the project's word
    call = json.dumps({"name": "final_answer", "arguments": arguments})
    run = await play(tmp_path, f"<tool_call>{call}</tool_call>", format=format)
    assert (run.answer, run.note) == (42, "of 2023")


@pytest.mark.parametrize("kernel", [{}, {"kernel": None, "sandbox": "auto"}], ids=["fake", "real"])
@pytest.mark.parametrize("ends", ["assert False, 'too few'", "1 / 0", "raise SystemExit(1)"])
async def test_an_answer_does_not_stand_when_its_cell_fails_after_it(tmp_path, kernel, ends):
    first = cell(f"final_answer(41)\n{ends}")
    run = await play(tmp_path, first, cell("final_answer(42)"), **kernel)
    failed, last = run.steps
    assert (run.value, run.answer) == (42, 42)
    assert not failed.ok
    assert failed.result.answer is None
    assert "The answer does not stand" in failed.observation.text
    assert "Final answer" not in failed.observation.text
    assert "does not stand" not in last.observation.text
    assert views(run)["terminal"].count("Answer") == 1
    assert "Final answer: 41" not in views(run)["terminal"]


async def test_a_run_whose_only_answer_failed_has_none(tmp_path):
    failing = cell("final_answer(41)\nassert False")
    run = await play(tmp_path, *[failing] * 3)
    assert (run.status, run.answer) == (ExitStatus.LOOP_DETECTED, None)


async def test_a_cell_that_is_interrupted_after_its_answer_has_not_answered(tmp_path):
    slow = cell("final_answer(41)\nimport time\ntime.sleep(60)")
    config = load_config().merged(cell_seconds=0.5)
    options = {"kernel": None, "sandbox": "auto", "config": config}
    run = await play(tmp_path, slow, cell("final_answer(42)"), **options)
    assert [step.result.status for step in run.steps] == ["timeout", "ok"]
    assert run.answer == 42
    assert "The answer does not stand" in run.steps[0].observation.text


@pytest.mark.long
async def test_a_notebook_with_notes_and_a_lost_answer_reproduces(tmp_path):
    replies = [
        cell("n = 41\nfinal_answer(n, note='first')\nassert n == 42"),
        cell("final_answer(n + 1, note=f'{n} and one')"),
    ]
    run = await play(tmp_path, *replies, kernel=None, sandbox="auto")
    assert (run.answer, run.note) == (42, "41 and one")
    report = verify(run.notebook)
    assert report.reproduces, report


async def test_none_with_a_note_is_an_answer(tmp_path):
    run = await play(tmp_path, cell("final_answer(None, note='there is none')"))
    assert (run.status, run.note) == (ExitStatus.ANSWERED, "there is none")


@pytest.mark.parametrize("level", ["", "auto", "interpreter"])
async def test_two_calls_of_one_reply_show_the_value_of_each(tmp_path, level):
    kernel = {"kernel": None, "sandbox": level} if level else {}
    calls = [
        ToolCall(id=code, name="python", arguments=json.dumps({"code": code}))
        for code in ("[6, 7]", "n = 41\nn", "n + 1")
    ]
    replies = [Reply(content="", tool_calls=tuple(calls)), cell("final_answer(1)")]
    run = await play(tmp_path, *replies, format="tool", **kernel)
    shown = run.steps[0].observation.text
    assert [line for line in shown.splitlines() if not line.startswith("[var")] == [
        "[value 1 of 3]", "[6, 7]", "[value 2 of 3]", "41", "[value 3 of 3]", "42",
    ]  # fmt: skip
