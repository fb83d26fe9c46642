"""``%agent`` in JupyterLab and Notebook 7, in a real browser."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hostile import HOST, TEXTS, hostile_outputs

from browser.conftest import Opened
from browser.jupyter import Server, Tab, open_notebook, wait_for_kernel
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStop

# What one front end shows the other does, too: the gate looks at one.
BOTH = pytest.mark.parametrize("front", ["lab", pytest.param("notebook", marks=pytest.mark.long)])
LOAD = "%load_ext kernel_agent"
SLEEP = "import time\nprint('sleeping')\ntime.sleep(60)"
NAMES = "[...new Set([...document.querySelectorAll({0!r})].map((e) => e.tagName))]"
HANDLERS = (
    "[...document.querySelectorAll({0!r})].flatMap((e) => [...e.attributes].map((a) => a.name))"
    ".filter((name) => name.startsWith('on'))"
)


def script(folder: Path, *cells: str, thought: str = "Thinking.", name: str = "script") -> str:
    """Write replies with one cell each; return the name of the model that plays them back."""
    replies = [{"content": f"{thought}\n```python\n{cell}\n```"} for cell in cells]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{path}"


def press(tab: Tab, name: str) -> None:
    tab.panel.get_by_role("button", name=name, exact=True).click()


def until(tab: Tab, true: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Wait until something is so, outside the page."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, what
        tab.page.wait_for_timeout(100)
    return found


def ended(server: Server, task: str) -> RunStop | None:
    """Return the last record of the run with this task, if its trace has one."""
    name = "-".join(task.lower().split())
    for trace in server.folder.glob(f"runs/*{name}*/trace.jsonl"):
        return next((r for r in read_trace(trace) if isinstance(r, RunStop)), None)
    return None


@BOTH
def test_a_question_shows_the_panel_and_leaves_a_static_page(
    opened: Opened, front: str, tmp_path: Path
) -> None:
    """A variable goes in, a result comes out, one cell is inserted below."""
    model = script(tmp_path, "result = df.assign(double=df.sold * 2)", "final_answer(result)")
    tab = opened(
        f"{LOAD}\nimport pandas as pd\ndf = pd.DataFrame({{'sold': [3, 5]}})",
        f"%agent -i df -o result --insert --model {model} Double it?",
        "print('TOTAL', result.double.sum())",
        front=front,
    )
    for cell in range(2):
        tab.run(cell)
    tab.page.get_by_text("How it came about: 2 steps").first.wait_for(timeout=30_000)
    tab.panel.wait_for(state="detached")
    tab.page.get_by_text("The code of run").first.wait_for()
    tab.run(3)
    tab.page.get_by_text("TOTAL 16").wait_for()
    tab.save()
    saved = tab.server.saved(tab.name)
    outputs = [sorted(o["data"]) for o in saved["cells"][1]["outputs"] if "data" in o]
    assert outputs[0] == ["text/html", "text/plain"]
    assert "".join(saved["cells"][2]["source"]).startswith("# Double it?\n")
    assert "widgets" not in saved["metadata"]


@pytest.mark.long  # the gate stops runs without a browser
@pytest.mark.parametrize("front", ["lab", "notebook"])
def test_stop_ends_the_run_at_once_whether_the_cell_awaits_or_blocks(
    opened: Opened, front: str, tmp_path: Path
) -> None:
    """On a quiet machine within half a second (``benchmarks/panel.py``)."""
    run = f"run = %agent --new --model {script(tmp_path, SLEEP)} Wait"
    tab = opened(LOAD, run, f"%%time\n{run}", "run.status", front=front)
    tab.run(0)
    for cell in (1, 2):
        tab.run(cell)
        tab.panel.get_by_text("sleeping").last.wait_for(timeout=30_000)
        began = time.monotonic()
        press(tab, "Stop")
        tab.panel.wait_for(state="detached", timeout=10_000)
        assert time.monotonic() - began < 8, "even on a busy machine"
        tab.run(3)
        tab.page.get_by_text("'interrupted'").wait_for()


@pytest.mark.long  # the gate looks at who answers, below
def test_a_person_decides_on_each_cell_before_it_runs(opened: Opened, tmp_path: Path) -> None:
    """Approved as it is, denied with a reason, edited; kernel, trace and page have it so."""
    model = script(
        tmp_path, "a = 1", "a = 2", "a = a + 10", "final_answer(a)",
    )  # fmt: skip
    tab = opened(
        LOAD,
        f"run = %agent --approve always --model {model} Decide",
        "print('SAID', [(s.decision.allowed, s.decision.by, s.decision.reason, s.decision.edited)"
        " for s in run.steps], run.answer)",
    )
    tab.run(0)
    tab.run(1)

    def asked(step: int) -> None:
        tab.panel.get_by_text(f"Run the cell of step {step}?").wait_for()

    asked(1)
    press(tab, "Approve")
    asked(2)
    tab.panel.get_by_role("textbox", name="Reason").fill("Not two.")
    press(tab, "Deny")
    asked(3)
    press(tab, "Edit, then run")
    tab.panel.get_by_role("textbox", name="The cell, to be edited").fill("a = a + 100")
    press(tab, "Run as edited")
    asked(4)
    press(tab, "Approve")
    tab.panel.wait_for(state="detached")
    tab.run(2)
    said = until(tab, lambda: tab.output(2), "the decisions are printed")
    decisions = [
        "(True, 'person', '', None)", "(False, 'person', 'Not two.', None)",
        "(True, 'person', '', 'a = a + 100')", "(True, 'person', '', None)",
    ]  # fmt: skip
    assert " ".join(said.split()) == f"SAID [{', '.join(decisions)}] 101"
    page = tab.page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea").text_content()
    assert "Not two." in page


@pytest.mark.long
def test_an_answer_may_hold_for_the_rest_of_the_run(opened: Opened, tmp_path: Path) -> None:
    """Ticked once, no further cell of the run is asked about."""
    model = script(tmp_path, "a = 1", "a += 1", "final_answer(a)")
    tab = opened(
        LOAD,
        f"run = %agent --approve always --model {model} Decide",
        "print('SAID', [s.decision.standing for s in run.steps], run.answer)",
    )
    tab.run(0)
    tab.run(1)
    tab.panel.get_by_role("checkbox", name="The same for every further cell in this run").check()
    press(tab, "Approve")
    tab.panel.wait_for(state="detached")
    tab.run(2)
    said = until(tab, lambda: tab.output(2), "the decisions are printed")
    assert " ".join(said.split()) == "SAID [True, True, True] 2"


@pytest.mark.long
def test_undo_takes_back_the_step_that_was_seen_to_end(opened: Opened, tmp_path: Path) -> None:
    """And what runs; the variables that were passed in are as they were; questions go on."""
    model = script(tmp_path, "rows.append(2)", "rows.clear()", SLEEP, "final_answer(repr(rows))")
    tab = opened(
        f"{LOAD}\nrows = [1]",
        f"run = %agent -i rows --model {model} Change the rows",
        "again = %agent --continue And now?",
        "%agent undo: once more",
    )
    tab.run(0)
    tab.run(1)
    tab.panel.get_by_text("sleeping").last.wait_for()
    press(tab, "Undo step")
    tab.panel.wait_for(state="detached")
    assert "undone" in tab.output(1)
    tab.run(2)
    tab.panel.wait_for(state="detached")
    until(tab, lambda: "[1, 2]" in tab.output(2), "the kernel is as it was before the step")
    tab.run(3)
    tab.page.get_by_text("Step 4 was undone: once more.").wait_for()


@pytest.mark.long
def test_a_closed_tab_stops_nothing(
    opened: Opened, browser: Any, server: Server, tmp_path: Path
) -> None:
    """The run goes on to its answer; the notebook's kernel has it when the page is open again."""
    slow = "import time\nprint('sleeping')\ntime.sleep(4)\nfinal_answer('it went on')"
    task = "Outlive the tab"
    tab = opened(LOAD, f"run = %agent --model {script(tmp_path, slow)} {task}", "run.answer")
    tab.run(0)
    tab.run(1)
    tab.panel.get_by_text("sleeping").last.wait_for()
    tab.save()
    tab.page.context.close()
    assert ended(server, task) is None, "the tab was closed while the run went on"
    end = time.monotonic() + 20
    while (stop := ended(server, task)) is None:
        assert time.monotonic() < end, "the run did not end"
        time.sleep(0.2)
    assert stop.status == "answered"
    again = open_notebook(browser, server, tab.name)
    again.panel.get_by_text("it went on", exact=True).first.wait_for()  # the page
    again.run(2)
    until(again, lambda: "'it went on'" in again.output(2), "the handle has the answer")
    again.page.context.close()


@pytest.mark.long
def test_an_edited_cell_shows_what_runs_and_beneath_it_what_was_written(
    opened: Opened, tmp_path: Path
) -> None:
    """While it runs, too: the code above an output is the code that made it."""
    slow = "print('edited by me')\nimport time\ntime.sleep(3)\nfinal_answer(7)"
    model = script(tmp_path, "final_answer('as the model wrote it')")
    tab = opened(LOAD, f"%agent --approve always --model {model} Decide")
    tab.run(0)
    tab.run(1)
    press(tab, "Edit, then run")
    tab.panel.get_by_role("textbox", name="The cell, to be edited").fill(slow)
    press(tab, "Run as edited")
    tab.panel.locator("pre.kap-stdout").get_by_text("edited by me").wait_for()
    step = tab.panel.locator(".kap-step")
    step.locator("pre.kap-code").first.filter(has_text="time.sleep(3)").wait_for()
    before = step.locator("details.kap-before")
    assert not before.locator("pre").is_visible()
    before.locator("summary").click()
    assert before.locator("pre").inner_text() == "final_answer('as the model wrote it')"
    picture(tab, "edited")
    tab.panel.wait_for(state="detached")


def picture(tab: Tab, name: str) -> None:
    """Take a picture where somebody asks for it."""
    folder = os.environ.get("KERNEL_AGENT_PICTURES")
    if folder:
        tab.page.screenshot(path=f"{folder}/{name}.png")


@pytest.mark.long
def test_starting_ticks_at_once_and_the_level_is_no_promise_yet(
    opened: Opened, tmp_path: Path
) -> None:
    """Until the kernel is confined the chip says what was asked for, in grey."""
    tab = opened(LOAD, f"%agent --model {script(tmp_path, SLEEP)} Wait")
    tab.run(0)
    tab.page.evaluate(
        "() => { window.seen = []; setInterval(() => {"
        " const chip = document.querySelector('.kap-level'), waits = document.querySelector("
        "'.kap-waits'); if (chip) window.seen.push(["
        " chip.textContent, chip.classList.contains('kap-unknown'), waits.textContent]); }, 5); }"
    )
    tab.run(1)
    tab.panel.get_by_text("sleeping").last.wait_for(timeout=30_000)
    seen = tab.page.evaluate("window.seen")
    assert all(grey == (chip == "Sandbox: auto") for chip, grey, _ in seen if chip)
    starting = [waits for chip, _, waits in seen if chip == "Sandbox: auto" and waits]
    assert starting
    assert all(waits.startswith("starting the sandboxed kernel · ") for waits in starting)
    until(tab, lambda: "s" in tab.panel.locator(".kap-waits").inner_text(), "the cell's clock")
    press(tab, "Stop")
    tab.panel.wait_for(state="detached")


@pytest.mark.long
@pytest.mark.parametrize("saved", [True, False])
def test_a_page_that_is_loaded_again_in_mid_run_has_the_run_again(
    opened: Opened, tmp_path: Path, saved: bool
) -> None:
    """Saved: the panel, which says after Stop how to see the page. Unsaved: by ``%agent show``."""
    answers = "import time\nprint('sleeping')\ntime.sleep(6)\nfinal_answer(42)"
    model = script(tmp_path, SLEEP if saved else answers)
    tab = opened(LOAD, f"%agent --model {model} Wait", "%agent show")
    tab.run(0)
    tab.save()
    tab.run(1)
    tab.panel.get_by_text("sleeping").last.wait_for(timeout=30_000)
    if saved:
        tab.save()
    tab.page.reload()
    tab.page.locator(".jp-CodeCell .cm-content").first.wait_for(timeout=60_000)
    if saved:
        tab.panel.get_by_text("sleeping").last.wait_for(timeout=30_000)
        press(tab, "Stop")
        tab.panel.get_by_text("The run is over: %agent show brings its page.").wait_for()
        assert "Wait" in tab.output(1)
        assert "Stopped" in tab.output(1)
        picture(tab, "stopped-after-reload")
        tab.page.reload()  # and once more: the kernel still knows the run
        tab.page.locator(".jp-CodeCell .cm-content").first.wait_for(timeout=60_000)
        tab.panel.get_by_text("The run is over").wait_for(timeout=30_000)
    else:
        wait_for_kernel(tab)
    tab.run(2)
    until(tab, lambda: "Wait" in tab.output(2), "the page is shown again")
    assert ("Stopped" if saved else "42") in tab.output(2)
    picture(tab, f"shown-again-{'saved' if saved else 'unsaved'}")


@pytest.mark.long
def test_a_notebook_that_is_saved_in_mid_run_holds_more_than_a_widget(
    opened: Opened, tmp_path: Path
) -> None:
    """And when its run has ended and it is saved, the page and no widget."""
    tab = opened(LOAD, f"%agent --model {script(tmp_path, SLEEP)} Wait")
    tab.run(0)
    tab.run(1)
    tab.panel.get_by_text("sleeping").last.wait_for(timeout=30_000)
    tab.save()
    (output,) = tab.server.saved(tab.name)["cells"][1]["outputs"]
    assert "%agent show" in "".join(output["data"]["text/html"])
    press(tab, "Stop")
    tab.panel.wait_for(state="detached")
    tab.save()
    (output,) = tab.server.saved(tab.name)["cells"][1]["outputs"]
    assert sorted(output["data"]) == ["text/html", "text/plain"]


@pytest.mark.long
def test_show_brings_the_live_panel_of_a_run_in_the_background(
    opened: Opened, tmp_path: Path
) -> None:
    """Below the cell that asks for it; both cells have the page in the end."""
    model = script(tmp_path, "import time\nprint('sleeping')\ntime.sleep(8)\nfinal_answer(42)")
    tab = opened(LOAD, f"run = %agent --background --model {model} Wait", "%agent show")
    for cell in range(3):
        tab.run(cell)
    until(tab, lambda: tab.panel.count() == 2, "there are two views of it")
    for cell in (1, 2):
        until(
            tab, lambda at=cell: "How it came about" in tab.output(at), "the page is in both cells"
        )
    assert tab.panel.count() == 0


@pytest.mark.long
def test_a_function_of_the_notebook_is_called_when_a_person_allows_it(
    opened: Opened, tmp_path: Path
) -> None:
    """Asked in the panel, called on the main thread of the notebook's kernel."""
    model = script(tmp_path, "final_answer(send('hello'))")
    define = (
        "import threading\nfrom kernel_agent import tool\nsent = []\n\n@tool(effects=True)\n"
        "def send(text: str) -> str:\n    'Send a text to the team.'\n"
        "    sent.append(text)\n    return threading.current_thread().name"
    )
    tab = opened(
        f"{LOAD}\n{define}", f"run = %agent --tools send --model {model} Tell them",
        "print('SAID', sent, run.answer, run.steps[0].result.calls[0].decision.by)",
    )  # fmt: skip
    tab.run(0)
    tab.run(1)
    tab.panel.get_by_text("Make this call in step 1?").wait_for()
    picture(tab, "tool-asks")
    press(tab, "Approve")
    tab.panel.wait_for(state="detached")
    tab.run(2)
    said = until(tab, lambda: tab.output(2), "what was sent is printed")
    assert " ".join(said.split()) == "SAID ['hello'] MainThread person"


CANARIES = (
    "<img src=x onerror=\"fetch('/api/contents?canary');window.canary=1\">",
    "<script>fetch('/api/status?canary');window.canary=1</script>",
    "<style>@import '/api/status?canary'; body{display:none}</style>",
    '<img src="/api/status?canary">',
    "![x](/api/status?canary) <svg onload=\"fetch('/api/status?canary')\"></svg>",
)
SHOW = """import json
from IPython.display import display
for data in json.load(open('data/payloads.json'))[{0}:{1}]:
    display(data, raw=True)
    print(data.get('text/plain'))
"""


def payloads(folder: Path) -> str:
    """Write what a cell displays; return the options that name the files."""
    kinds = ("text/html", "text/markdown", "text/plain", "image/svg+xml", "text/latex",
             "application/javascript", "application/vnd.jupyter.widget-view+json")  # fmt: skip
    texts = [*CANARIES, *(text for text in TEXTS if len(text) < 1000)]
    shown: list[Any] = [dict.fromkeys(kinds, text) for text in texts]
    shown += [{kind: text, "text/plain": "x"} for text in CANARIES for kind in kinds]
    shown += [o["data"] for o in hostile_outputs() if "data" in o and len(str(o)) < 3000][::7]
    shown = [data for data in shown if "kernel-agent" not in str(list(data))]  # an answer ends it
    (folder / "payloads.json").write_text(json.dumps(shown))
    return f"--data {folder}/payloads.json"


@BOTH
def test_nothing_of_a_run_acts_in_the_panel_in_its_page_or_in_the_saved_notebook(
    opened: Opened, front: str, tmp_path: Path
) -> None:
    """The server's log has no request that a payload made; as HTML of the notebook one does."""
    options = payloads(tmp_path)
    hostile = f"{CANARIES[0]} {CANARIES[4]} {CANARIES[1]}"
    cells = [SHOW.format(at, at + 60) for at in range(0, 300, 60)]
    answer = f"time.sleep(3)\nfinal_answer({hostile!r})"
    model = script(tmp_path, *cells, f"import time\n{answer}", thought=hostile)
    tab = opened(
        LOAD,
        f"%agent {options} --model {model} Show {CANARIES[3]}",
        f"from IPython.display import HTML\nHTML({CANARIES[0]!r})",
        front=front,
    )

    def quiet(where: str) -> None:
        tab.page.wait_for_timeout(1500)
        caused = [url for url in tab.requests if HOST in url or "canary" in url]
        assert (where, caused, tab.dialogs) == (where, [], [])
        assert tab.page.evaluate("window.canary") is None
        assert "?canary" not in tab.server.log
        assert tab.page.evaluate(HANDLERS.format(f"{where} *")) == []

    tab.run(0)
    tab.run(1)
    tab.panel.get_by_text("Step 6", exact=True).wait_for(timeout=30_000)
    tab.page.evaluate("document.querySelectorAll('.kap-step').forEach((d) => { d.open = true; })")
    quiet("section.kap-panel")
    assert not {"SCRIPT", "STYLE", "IFRAME", "OBJECT", "EMBED", "LINK", "SVG", "svg"} & set(
        tab.page.evaluate(NAMES.format("section.kap-panel *"))
    )
    tab.panel.wait_for(state="detached", timeout=60_000)
    page = ".jp-OutputArea"
    tab.page.evaluate(
        "document.querySelectorAll('.jp-OutputArea details').forEach((d) => { d.open = true; })"
    )
    quiet(page)
    assert "?canary" in tab.output(1), "the payloads are there, as text"
    tab.save()
    tab.page.reload()
    tab.page.get_by_text("How it came about: 6 steps").first.wait_for(timeout=60_000)
    quiet(page)
    tab.run(2)
    tab.wait("() => window.canary === 1")
    until(tab, lambda: "?canary" in tab.server.log, "the log has the request of the control")
    (tab.server.folder.parent / "server.log").write_text("")  # the other front end begins anew


def test_a_person_alone_answers_and_one_question_at_a_time(opened: Opened, tmp_path: Path) -> None:
    """Three runs, one after another in one notebook."""
    run = "run = %agent --new --approve always --model"
    clicked = script(tmp_path, "a = 1", "final_answer(a + 1)", name="clicked")
    scripted = script(tmp_path, "final_answer(1)", name="scripted")
    stopped = script(tmp_path, "a = 1", "a = 2", name="stopped")
    said = "print('SAID', [(s.decision.allowed, s.decision.reason) for s in run.steps])"
    tab = opened(
        LOAD, f"{run} {clicked} Decide", said, f"{run} {scripted} Decide", said,
        f"{run} {stopped} Ask me", "run.status",
    )  # fmt: skip
    for cell in (0, 1):
        tab.run(cell)
    double_click(tab)
    assert decisions(tab, 2) == "SAID [(True, ''), (True, '')]"
    tab.run(3)
    answer_by_a_script(tab)
    assert decisions(tab, 4) == "SAID [(False, 'a person')]"
    tab.run(5)
    tab.panel.get_by_role("button", name="Approve").wait_for()
    press(tab, "Stop")  # which is the answer no: the run does not wait for who wants its end
    tab.panel.wait_for(state="detached")
    tab.run(6)
    tab.page.get_by_text("'interrupted'").wait_for()


def decisions(tab: Tab, cell: int) -> str:
    tab.panel.wait_for(state="detached")
    tab.run(cell)
    said = until(tab, lambda: tab.output(cell), "the decisions are printed")
    return " ".join(said.split())


def double_click(tab: Tab) -> None:
    """The next question stands where the first one stood, and nobody has read it yet."""
    tab.panel.get_by_text("Run the cell of step 1?").wait_for()
    press(tab, "Approve")
    seen = tab.panel.get_by_text("Run the cell of step 2?")
    seen.wait_for()
    tab.panel.get_by_role("button", name="Approve", exact=True).click(force=True)  # at once
    tab.page.wait_for_timeout(800)
    assert seen.is_visible()
    press(tab, "Approve")


def answer_by_a_script(tab: Tab) -> None:
    """Another kernel's display may bring one: what it clicks and types is not a person's."""
    question = tab.panel.get_by_text("Run the cell of step 1?")
    question.wait_for()
    tab.panel.locator("button:enabled").get_by_text("Approve").wait_for()
    tab.page.evaluate(
        "() => { for (const button of document.querySelectorAll('section.kap-panel button')) {"
        "  button.click(); button.dispatchEvent(new MouseEvent('click', {bubbles: true}));"
        "  button.dispatchEvent(new KeyboardEvent('keydown',"
        "   {key: 'A', shiftKey: true, bubbles: true})); } }"
    )
    tab.page.wait_for_timeout(800)
    assert question.is_visible()
    tab.panel.get_by_role("textbox", name="Reason").fill("a person")
    press(tab, "Deny")


@pytest.mark.long
def test_below_the_page_of_a_run_its_code_its_table_and_the_way_back_are_offered(
    opened: Opened, tmp_path: Path
) -> None:
    """For a person's press, and in no saved notebook; only the last question can be undone."""
    wait = "import time\ntime.sleep(2)\n"  # what is over at once was never seen as a panel
    table = "final_answer(pd.DataFrame({'a': [2, 1, 3]}))"
    model = script(tmp_path, wait + table, f"{wait}final_answer(3)")
    tab = opened(
        f"{LOAD}\nimport pandas as pd\nd = pd.DataFrame({{'x': [1]}})",
        f"run = %agent -i d --model {model} A table?",
        "again = %agent And then?",
        "%agent status",
    )
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for cell in range(3):
        tab.run(cell)
        if cell:
            tab.page.locator(".kap-offers").nth(cell - 1).wait_for(timeout=30_000)
    first, second = (tab.page.locator(".jp-CodeCell").nth(k) for k in (1, 2))
    names = lambda cell: cell.locator(".kap-offers button").all_text_contents()  # noqa: E731
    assert names(first) == ["Copy code", "Save table", "Undo question"]
    assert names(second) == ["Copy code", "Undo question"]
    tab.page.evaluate("for (const b of document.querySelectorAll('.kap-offers button')) b.click()")
    tab.page.wait_for_timeout(500)
    assert not any("Not undone" in tab.output(k) or "Saved:" in tab.output(k) for k in (1, 2))

    first.get_by_role("button", name="Copy code").click()
    first.get_by_role("button", name="Copied").wait_for()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("# A table?\n# The code of run ")
    first.get_by_role("button", name="Save table").click()
    first.get_by_text("Saved: ").wait_for()
    (saved,) = tab.server.folder.glob("runs/*/answer.csv")
    assert saved.read_text() == "a\n2\n1\n3\n"
    first.get_by_role("button", name="a", exact=True).click()
    assert first.locator("tbody td").all_text_contents() == ["1", "2", "3"]
    first.get_by_role("button", name="Undo question").click()
    first.get_by_text("Not undone: it is not the last question of its session any more.").wait_for()
    second.get_by_role("button", name="Undo question").click()
    second.get_by_text("then undone").first.wait_for()
    picture(tab, "offers")
    tab.save()
    outputs = tab.server.saved(tab.name)["cells"][2]["outputs"]
    assert [sorted(output["data"]) for output in outputs] == [["text/html", "text/plain"]]
    assert "Copy code" not in json.dumps(outputs)
    tab.page.reload()
    tab.page.get_by_text("then undone").first.wait_for(timeout=60_000)
    assert tab.page.locator(".kap-offers").count() == 0
