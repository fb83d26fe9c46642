"""``%agent`` in a real notebook kernel, and what its line may hold."""

import asyncio
import json
from pathlib import Path

import nbformat
import pytest
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client.manager import start_new_async_kernel
from kernel_agent_extension.options import Request, read_request
from kernel_agent_extension.transform import keep_questions
from kernel_agent_extension.views import display_figure
from nbclient import NotebookClient
from support.waiting import until


@pytest.fixture(autouse=True)
def _as_text(monkeypatch):
    """Show runs as lines of text: kernels inherit the environment."""
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "off")


PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)


def script(folder: Path, *cells: str, name: str = "script.jsonl") -> str:
    """Write replies with one cell each, and return the name of the model that plays them back."""
    replies = [{"content": f"Thinking.\n```python\n{cell}\n```"} for cell in cells]
    (folder / name).write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{name}"


def notebook(folder: Path, *sources: str) -> list[nbformat.NotebookNode]:
    """Execute a notebook in a folder and return its cells; a failing cell fails the test."""
    cells = [nbformat.v4.new_code_cell(source) for source in ("%load_ext kernel_agent", *sources)]
    book = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(book, timeout=60, resources={"metadata": {"path": str(folder)}})
    asyncio.run(client.async_execute())
    return book.cells[1:]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream")


def shown(cell: nbformat.NotebookNode) -> str:
    return json.dumps(cell.outputs)


FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
HTML = "from IPython.display import HTML, display\ndisplay(HTML('<b onclick=alert(1)>x</b>'))"


def test_a_notebook_asks_and_goes_on_with_the_result(tmp_path):
    """Steps as text, figures as pictures, nothing as HTML; the run is a value."""
    (tmp_path / "sales.csv").write_text("month,sold\nMay,3\nJune,5\n")
    model = script(
        tmp_path,
        "import pandas as pd\nrows = len(pd.read_csv('data/sales.csv'))\nprint(rows, 'rows')",
        f"{HTML}\n{FIGURE}",
        "final_answer(rows)",
        "final_answer(rows + 1)",
    )
    first, second, value, _ = notebook(
        tmp_path,
        f"%agent --data sales.csv --model {model} How many months?",
        "again = %agent And with the next one?",
        "print(again.status, again.answer, again.notebook.exists())",
        "%agent",
    )
    text = printed(first)
    assert "Sandbox: " in text
    assert "--- Step 1 ---\nThought: Thinking.\nCode:\n    import pandas as pd" in text
    assert "2 rows" in text
    assert "\nAnswer\n2\n" in text
    assert "Notebook: runs/" in text
    pictures = [o for o in first.outputs if o.output_type == "display_data"]
    assert [sorted(o.data) for o in pictures] == [["image/png", "text/plain"]]
    assert "text/html" not in shown(first)
    assert "\nAnswer\n3\n" in printed(second), "the second question goes on in the same kernel"
    assert printed(value) == "answered 3 True\n"


@pytest.mark.long
def test_a_cell_of_the_agent_may_have_many_lines(tmp_path):
    """The cell is the task, its first line holds the options."""
    model = script(tmp_path, "final_answer('yes')")
    helped, asked, wrong, lost = notebook(
        tmp_path,
        "%agent",
        f"%%agent --model {model} --max-steps 3\nIs it\nso?",
        "try:\n    get_ipython().run_line_magic('agent', '--data missing.csv --new x')\n"
        "except Exception as error:\n    print(type(error).__name__, error)",
        "try:\n    get_ipython().run_line_magic('agent', '--export no/such.ipynb --new x')\n"
        "except Exception as error:\n    print(type(error).__name__, error)",
    )
    assert "%agent TASK" in printed(helped)
    assert "Task:  Is it\nso?" in printed(asked)
    assert "UsageError missing.csv does not exist" in printed(wrong)
    assert "UsageError --export no/such.ipynb: there is no folder no" in printed(lost)


@pytest.mark.long
def test_below_a_cell_stands_its_page_with_the_notices_and_nothing_twice(tmp_path, monkeypatch):
    """A handle says what it is in other cells; a refusal is told once, by the cell's error."""
    monkeypatch.setenv("KERNEL_AGENT_PANEL", "auto")
    model = script(tmp_path, "final_answer(n)", "final_answer(n + 1)")
    _, asked, _, again, handle, refused = notebook(
        tmp_path,
        "n = 1",
        f"%agent -i n --model {model} What is n?",
        "n = 5",
        "run = %agent And one more?\nrun",
        "run",
        "try:\n    get_ipython().run_line_magic('agent', '-i print What is it?')\n"
        "except Exception as error:\n    print(type(error).__name__)",
    )
    assert [sorted(output.data) for output in asked.outputs] == [["text/html", "text/plain"]]
    assert len(again.outputs) == 1
    above, about = again.outputs[0].data["text/html"].split("About this run")
    assert "n has changed since it was passed in" in about
    assert "n has changed" not in above
    assert handle.outputs[0].data["text/plain"].startswith("<Run ")
    assert [output.output_type for output in refused.outputs] == ["stream"]
    assert printed(refused) == "UsageError\n"


async def test_interrupting_the_notebook_stops_the_run_and_keeps_the_session(tmp_path):
    """The stop button ends the run as interrupted, and the next question is answered."""
    acting = "import time\nkept = 7\nopen('here', 'w').close()\ntime.sleep(60)"
    model = script(tmp_path, acting, "final_answer(kept)")
    texts: list[str] = []

    def listen(message) -> None:
        texts.append(message["content"].get("text", ""))

    async def execute(code: str) -> None:
        await client.execute_interactive(code, output_hook=listen, timeout=60)

    async def interrupt() -> None:
        await until(lambda: list(tmp_path.rglob("here")))
        await manager.interrupt_kernel()

    manager, client = await start_new_async_kernel(cwd=str(tmp_path))
    try:
        await execute("%load_ext kernel_agent")
        code = f"run = %agent --model {model} Wait\nprint('STATUS', run.status)"
        await asyncio.gather(execute(code), interrupt())
        assert "STATUS interrupted" in "".join(texts)
        await execute("run = %agent And now?\nprint('ANSWER', run.answer)")
        assert "ANSWER 7" in "".join(texts)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("cell", "asked"),
    [
        ("%agent How many months?", ["How many months?"]),
        ("%agent What's sold most?", ["What's sold most?"]),
        ("run = %agent How many??", ["How many??"]),
        ("for y in (1, 2):\n    r[y] = %agent And in {y}?", ["And in {y}?"] * 2),
        ("a.b = %agent Yes?  ", ["Yes?"]),
        ("# %agent no?\nx = 5 % agent", []),
        ("%agent", [""]),
    ],
)
def test_a_question_may_end_in_a_question_mark(cell, asked):
    """Which IPython alone would take for a call for help."""
    manager = TransformerManager()
    manager.cleanup_transforms.append(keep_questions)
    calls = []

    class Shell:
        def run_line_magic(self, name: str, line: str) -> None:
            calls.append(line)

    names = {"get_ipython": Shell, "r": {}, "a": type("A", (), {}), "agent": 2}
    exec(manager.transform_cell(cell), names)
    assert calls == asked


def test_help_on_the_magic_itself_still_works():
    """``%agent?`` is IPython's, and so is the body of a cell magic."""
    assert keep_questions(["%agent?\n"]) == ["%agent?\n"]
    assert keep_questions(["%%agent\n", "%agent x?\n"]) == ["%%agent\n", "%agent x?\n"]


# --- what the line may hold --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("", Request(task="")),
        ("What's the mean?", Request(task="What's the mean?")),
        ("--data a.csv How many?", Request(task="How many?", data=("a.csv",))),
        (
            "--data 'my sales.csv' --data b.csv Go",
            Request(task="Go", data=("my sales.csv", "b.csv")),
        ),
        (
            "--model=offline --max-steps 3 Go",
            Request(task="Go", settings={"model": "offline", "max_steps": 3}),
        ),
        ("--new Go on", Request(task="Go on", new=True)),
        ("a -- b, 5 - 3, x--y", Request(task="a -- b, 5 - 3, x--y")),
    ],
)
def test_options_stand_before_the_task(line, request_):
    """And whatever is no option is the task."""
    assert read_request(line) == request_


@pytest.mark.parametrize(
    ("line", "fault"),
    [("--dta a.csv Go", "no option --dta"), ("--data", "needs a value"),
     ("--max-steps many Go", "whole number")],
)  # fmt: skip
def test_wrong_use_is_one_line(line, fault):
    """With what to write instead."""
    with pytest.raises(UsageError, match=fault) as caught:
        read_request(line)
    assert "\n" not in str(caught.value)


def test_a_figure_is_shown_only_if_it_is_one(monkeypatch):
    """A script that calls itself a PNG stays out of the notebook."""
    import IPython.display

    published = []
    monkeypatch.setattr(IPython.display, "publish_display_data", published.append)
    for data in ("PHNjcmlwdD4=", "not base64!", 7, None, ["x"]):
        display_figure({"output_type": "display_data", "data": {"image/png": data}})
    display_figure({"output_type": "display_data", "data": "<script>"})
    assert published == []
    display_figure(
        {"output_type": "display_data", "data": {"image/png": PNG, "text/html": "<script>"}}
    )
    assert [list(bundle) for bundle in published] == [["image/png", "text/plain"]]
    assert published[0]["image/png"] != PNG  # it was encoded anew
