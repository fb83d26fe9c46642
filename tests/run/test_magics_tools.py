"""``%agent --tools``: functions of the notebook, on its main thread. Real kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from run.test_magics_runs import opened, script
from support.waiting import until


@pytest.fixture(autouse=True)
def _as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "off")


RATE = """
import threading
from kernel_agent import tool

@tool
def rate(currency: str) -> str:
    "Return the rate of a currency."
    print("asked for", currency)
    return threading.current_thread().name + " FACTOR"
"""
ASKS = "final_answer(rate('USD'))"


async def test_a_function_of_the_notebook_runs_on_its_main_thread(tmp_path: Path) -> None:
    """Awaited, blocked, in the background and waited for; what it prints stands below the cell."""
    model = script(tmp_path, "a.jsonl", *[ASKS] * 4)
    ask = f"%agent --tools rate --model {model}"
    async with opened(tmp_path) as book:
        await book.run(RATE.replace("FACTOR", "1"))
        awaited = await book.run(f"{ask} What is it?")
        blocked = await book.run("%%time\n%agent And now?")
        await book.run(RATE.replace("FACTOR", "2"))
        changed = await book.run("%agent And after the change?")
        run = f"run = {ask} --background What is it?\nprint(run.result().answer)"
        background = await book.run(run)
    assert "\nAnswer\nMainThread 1\n" in awaited
    assert "asked for USD\n" in awaited
    assert "\nAnswer\nMainThread 1\n" in blocked
    assert "\nAnswer\nMainThread 2\n" in changed, "the function as it is now"
    assert background.endswith("MainThread 2\n")


@pytest.mark.long
async def test_a_tool_with_another_signature_is_used_when_it_is_named_anew(tmp_path: Path) -> None:
    """The kernel has a function of the old signature, and goes on with the old function."""
    model = script(tmp_path, "a.jsonl", *[ASKS] * 2)
    async with opened(tmp_path) as book:
        await book.run(RATE)
        await book.run(f"%agent --tools rate --model {model} What is it?")
        await book.run(RATE.replace("currency: str", "currency: str, year: int"))
        told = await book.run("%agent And now?")
    assert "rate is another tool now: --new --tools rate uses it as it is." in told
    assert "\nAnswer\nMainThread FACTOR\n" in told


@pytest.mark.long
async def test_an_error_of_the_function_is_one_in_the_cell_that_called_it(tmp_path: Path) -> None:
    caught = "try:\n    rate('USD')\nexcept LookupError as error:\n    final_answer(str(error))"
    model = script(tmp_path, "a.jsonl", caught)
    async with opened(tmp_path) as book:
        await book.run(RATE.replace('print("asked', 'raise LookupError("no USD"); print("asked'))
        told = await book.run(f"%agent --tools rate --model {model} What is it?")
    assert "no USD" in told.split("\nAnswer\n")[1]


@pytest.mark.parametrize("first_line", ["", pytest.param("%%time\n", marks=pytest.mark.long)])
async def test_the_interrupt_ends_a_function_that_runs_and_its_run(
    tmp_path: Path, first_line: str
) -> None:
    """Both where the cell awaits and where it blocks; the notebook goes on."""
    model = script(tmp_path, "a.jsonl", ASKS)
    slow = RATE.replace("return", "open('here', 'w').close(); import time; time.sleep(60); return")
    async with opened(tmp_path) as book:

        async def interrupt() -> None:
            await until((tmp_path / "here").exists)
            await book.manager.interrupt_kernel()

        await book.run(slow)
        code = f"{first_line}run = %agent --tools rate --model {model} What is it?"
        await book.run(code, until="asked for USD", then=interrupt)
        after = await book.run("print(run.status)")
    assert after == "interrupted\n"


WRONG = {
    "rat": "There is no tool rat here. Did you mean rate?",
    "plain": "--tools plain: the function plain is not marked as a tool: write @tool",
    "nothing_such": "--tools nothing_such: neither a module nor a ready-made tool",
}


@pytest.mark.long
async def test_a_wrong_name_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    async with opened(tmp_path) as book:
        await book.run(f"{RATE}\ndef plain(x: int) -> int:\n    'Return x.'\n    return x")
        for name, told in WRONG.items():
            said = await book.run(f"%agent --tools {name} --model offline --data a.csv What is it?")
            assert said.startswith(f"UsageError: {told}")
            assert len(said.splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.long
async def test_the_other_options_of_the_command_reach_the_session(tmp_path: Path) -> None:
    """Folder, hosts, caps, and that the data comes from others."""
    model = script(tmp_path, "a.jsonl", "final_answer(1)")
    (tmp_path / "a.csv").write_text("a\n1\n")
    options = (
        "--out ./here --allow-host example.org --allow-host example.com:8080 --max-tokens 9000 "
        "--untrusted-data --data a.csv"
    )
    async with opened(tmp_path) as book:
        told = await book.run(f"run = %agent {options} --model {model} What is it?")
        await book.run(
            "from kernel_agent.records import RunStart, read_trace\n"
            "start = next(r for r in read_trace('here/trace.jsonl') if isinstance(r, RunStart))"
        )
        start = await book.run(
            "print(start.config['allow_hosts'], start.config['untrusted_data'], "
            "start.budget['max_tokens'])"
        )
    assert "Notebook: here/run.ipynb" in told
    assert start.replace("(", "[").replace(")", "]") == (
        "['example.org', 'example.com:8080'] True 9000\n"
    )
