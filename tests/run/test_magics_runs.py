"""Variables, handles, runs side by side and endings of ``%agent``, in real notebook kernels."""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import nbformat
import papermill
import pytest
from jupyter_client.manager import start_new_async_kernel
from support.waiting import until

LAUNCHER = "inkernel/launch.py"


@pytest.fixture(autouse=True)
def _as_text(monkeypatch):
    """Show runs as lines of text: kernels inherit the environment."""
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "off")


def script(folder, name, *cells):
    """Write replies with one cell each; return the name of the model that plays them back."""
    replies = [{"content": f"Thinking.\n```python\n{cell}\n```"} for cell in cells]
    (folder / name).write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{name}"


class Notebook:
    """A running kernel of a notebook."""

    def __init__(self, manager, client):
        self.manager = manager
        self.client = client
        self.payload = []

    async def run(self, code, *, until="", then=None):
        """Run a cell and return what it printed; call ``then`` once it has printed ``until``."""
        texts, called = [], []

        def listen(message):
            kind, content = message["msg_type"], message["content"]
            texts.append(content.get("text", "") if kind == "stream" else "")
            texts.append("\n".join(content["traceback"]) if kind == "error" else "")
            if then is not None and not called and until in "".join(texts):
                called.append(asyncio.ensure_future(then()))

        reply = await self.client.execute_interactive(code, output_hook=listen, timeout=60)
        self.payload = reply["content"].get("payload", [])
        for task in called:
            await task
        return "".join(texts)

    async def shown(self, code):
        """Run a cell and return the last thing that it displayed, by its forms."""
        bundles = []

        def listen(message):
            if message["msg_type"] == "display_data":
                bundles.append(message["content"]["data"])

        await self.client.execute_interactive(code, output_hook=listen, timeout=60)
        return bundles[-1]

    async def updated(self, text):
        """Wait until a display is updated to something with a text in it."""
        while True:
            message = await self.client.get_iopub_msg(timeout=30)
            if message["msg_type"] == "update_display_data":
                shown = message["content"]["data"]["text/plain"]
                if text in shown:
                    return shown


@asynccontextmanager
async def opened(folder):
    """Start a kernel in a folder, with the extension loaded."""
    manager, client = await start_new_async_kernel(cwd=str(folder))
    book = Notebook(manager, client)
    try:
        await book.run("%load_ext kernel_agent")
        yield book
    finally:
        client.stop_channels()
        if await manager.is_alive():
            await manager.shutdown_kernel(now=True)
        else:
            await manager.cleanup_resources()


def agent_kernels(folder):
    """Return the processes of the agents' kernels that work below a folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                where = str((entry / "cwd").readlink())
            except OSError:
                continue
            if LAUNCHER in command and where.startswith(str(folder)):
                found.add(int(entry.name))
    return found


async def test_variables_go_in_and_results_come_out(tmp_path):
    """Typed; only what was named is set, and what the user changed since is passed in again."""
    model = script(
        tmp_path,
        "a.jsonl",
        "result = df.assign(double=df.sold * 2)\nother = 'agent'\ndf['x'] = 1",
        "final_answer(len(result))",
        "final_answer(int(df.sold.sum()))",
        "final_answer([1, 2])",
    )
    async with opened(tmp_path) as book:
        await book.run("import pandas as pd\nother = 'mine'")
        await book.run("df = pd.DataFrame({'sold': [3, 5]}, index=['May', 'June'])")
        first = await book.run(f"%agent -i df -o result --model {model} Double it")
        value = await book.run("print(result.double.to_dict(), other, list(df.columns))")
        await book.run("df.loc['May', 'sold'] = 10")
        again = await book.run("%agent --continue --insert What's the sum?")
        inserted = book.payload
        unset = await book.run("%agent -o pair A pair?\nprint('PAIR', pair)")
        missing = await book.run("%agent -i dff Go")
    assert "df" in first
    assert value == "{'May': 6, 'June': 10} mine ['sold']\n"
    assert "df has changed since it was passed in: it was passed in again, and what the" in again
    assert "\nAnswer\n15\n" in again
    (payload,) = inserted
    assert (payload["source"], payload["replace"]) == ("set_next_input", False)
    assert payload["text"].startswith("# What's the sum?\n")
    assert "final_answer(int(df.sold.sum()))" in payload["text"]
    assert "The code set no pair" in unset
    assert "PAIR [1, 2]" in unset
    assert missing == "UsageError: There is no variable dff here to pass in. Did you mean df?\n"


@pytest.mark.long
async def test_a_run_is_waited_for_wherever_it_is_called(tmp_path):
    """In loops and functions, timed and captured; variables of the function are found."""
    model = script(tmp_path, "a.jsonl", *["final_answer(1)"] * 3, "final_answer(local)")
    async with opened(tmp_path) as book:
        timed = await book.run(f"%%time\nrun = %agent --model {model} Timed?\nrun.answer")
        captured = await book.run("%%capture cap\n%agent Captured?")
        looped = await book.run(
            "print(len(cap.stdout) > 100)\n"
            "for q in 'a':\n    run = %agent Looped?\n    print(run.status)"
        )
        called = await book.run(
            "def f():\n    local = 5\n    return %agent -i local Called?\nprint('GOT', f().answer)"
        )
        handle = await book.run("print(repr(run), run.done, len(run.steps), run.result().text)")
    assert "Wall time" in timed
    assert captured == ""
    assert looped.startswith("True\n")
    assert looped.endswith("answered\n")
    assert "GOT 5" in called
    assert "answered, 1 step," in handle
    assert handle.endswith("True 1 1\n")


async def test_runs_in_the_background_go_side_by_side_and_can_be_stopped(tmp_path):
    """Each in a session and a folder of its own; the notebook stays free."""
    quick = script(tmp_path, "a.jsonl", "import time\nx = 1", "final_answer(x)")
    slow = script(tmp_path, "b.jsonl", "import time\nopen('here', 'w').close()\ntime.sleep(60)")
    async with opened(tmp_path) as book:
        await book.run(
            f"a = %agent --background --model {quick} Same\n"
            f"b = %agent --background --model {slow} Same"
        )
        shown = await book.updated("Answer\n1\n")
        status = await book.run("print(a.result(30).answer)\n%agent status")
        await until(lambda: list(tmp_path.rglob("here")))
        await book.run("%agent stop")
        ended = await book.run("print(b.result(5).status, a.notebook != b.notebook, b.done)")
        await until(lambda: not agent_kernels(tmp_path))
    assert status.startswith("1\n<running for")
    assert ended == "interrupted True True\n"
    assert shown.startswith("Task:  Same\n")


@pytest.mark.parametrize("first_line", ["", "%%time\n"])
@pytest.mark.long
async def test_the_interrupt_ends_a_run_that_does_not_let_itself_be_interrupted(
    tmp_path, first_line
):
    """At once, also where the cell blocks; the session goes on afterwards."""
    stubborn = "open('here', 'w').close()\n"
    stubborn += "while True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt: pass"
    model = script(tmp_path, "a.jsonl", f"import time\n{stubborn}", "final_answer(2)")
    began = []

    async with opened(tmp_path) as book:

        async def interrupt():
            await until(lambda: list(tmp_path.rglob("here")))
            began.append(time.monotonic())
            await book.manager.interrupt_kernel()

        await book.run("import kernel_agent.kernel.process as s; s.INTERRUPT_GRACE_S = 15")
        code = f"{first_line}run = %agent --model {model} Wait"
        first = await book.run(code, until="Code:", then=interrupt)
        seconds = time.monotonic() - began[0]
        after = await book.run("print(run.status)\n%agent And now?")
    assert seconds < 10, "not the time after which the kernel is killed"
    assert after.startswith("interrupted\n"), first
    assert "\nAnswer\n2\n" in after


@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.long) for how in ("shutdown", "restart")), "kill"]
)
async def test_the_agents_kernels_end_with_the_notebooks(tmp_path, how):
    """Also those of runs in the background, and when the kernel is killed."""
    slow = script(tmp_path, "a.jsonl", "import time\ntime.sleep(60)")
    idle = script(tmp_path, "b.jsonl", "final_answer(1)")
    async with opened(tmp_path) as book:
        await book.run(f"%agent --model {idle} Idle")
        await book.run(f"a = %agent --background --model {slow} Slow")
        while len(agent_kernels(tmp_path)) < 2:
            await asyncio.sleep(0.1)
        began = time.monotonic()
        if how == "kill":
            os.kill(book.manager.provisioner.pid, signal.SIGKILL)
        else:
            end = book.manager.shutdown_kernel if how == "shutdown" else book.manager.restart_kernel
            ending = asyncio.ensure_future(end())
        while agent_kernels(tmp_path) and time.monotonic() < began + 10:
            await asyncio.sleep(0.05)
        assert agent_kernels(tmp_path) == set()
        if how != "kill":
            await ending


@pytest.mark.long
async def test_the_panel_is_loaded_before_the_first_question(tmp_path, monkeypatch):
    """Its libraries take longer to import than a panel may take to appear."""
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "on")
    wait = (
        "import sys, time\nuntil = time.monotonic() + 20\n"
        "while 'anywidget' not in sys.modules and time.monotonic() < until:\n    time.sleep(0.01)\n"
        "print('anywidget' in sys.modules)"
    )
    async with opened(tmp_path) as book:
        assert await book.run(wait) == "True\n"


@pytest.mark.long
def test_papermill_waits_for_the_run_and_keeps_its_notebook(tmp_path, monkeypatch):
    """Run All waits; the parameters reach the question."""
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "a.jsonl", "final_answer(21)")
    sources = [
        "%load_ext kernel_agent",
        "%config AgentMagics.model = 'scripted:a.jsonl'",
        "run = %agent --export out.ipynb How many?",
        "print('ANSWER', run.answer * 2)",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
    nbformat.write(book, "in.ipynb")
    done = papermill.execute_notebook("in.ipynb", "done.ipynb", progress_bar=False)
    assert done.cells[-1].outputs[0].text == "ANSWER 42\n"
    assert "widgets" not in done.metadata
    exported = nbformat.read("out.ipynb", as_version=4)
    assert any("final_answer(21)" in cell.source for cell in exported.cells)


@pytest.mark.long
def test_a_terminal_of_ipython_shows_the_same(tmp_path):
    """There a run is text and blocks."""
    import subprocess

    model = script(tmp_path, "a.jsonl", "final_answer(n * 2)")
    lines = f"%load_ext kernel_agent\nn = 21\nrun = %agent -i n --model {model} What's it?\n"
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--no-banner",
        "--colors=nocolor",
        "--simple-prompt",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        input=f"{lines}print('GOT', run.answer)\n",
        text=True,
        check=False,
        capture_output=True,
        timeout=60,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipy")},
    )
    assert "Answer\n42" in done.stdout, done.stderr
    assert "GOT 42" in done.stdout
