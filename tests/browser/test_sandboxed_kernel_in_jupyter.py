"""The kernel "Python (sandboxed)" in JupyterLab and Notebook 7: a cell's page starts no kernel."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.jupyter import Server, Tab, open_notebook
from kernel_agent.cli.kernelspec import specification
from kernel_agent.sandbox.chooser import choose

# What one front end shows the other does, too: the gate looks at one.
BOTH = pytest.mark.parametrize("front", ["lab", pytest.param("notebook", marks=pytest.mark.long)])
SCRIPT = """
(() => {
  const told = JSON.parse(document.getElementById('jupyter-config-data').textContent);
  fetch(told.baseUrl + 'api/kernels', {
    method: 'POST', headers: {Authorization: 'token ' + told.token},
    body: JSON.stringify({name: 'python3'})});
})()
"""
IMAGE = f'<img src="data:," onerror="{SCRIPT}">'.replace("\n", " ")
DISPLAYED = {
    "script": ("HTML", f"<script>{SCRIPT}</script>"),
    "image": ("HTML", IMAGE),
    "javascript": ("Javascript", SCRIPT),
    "svg": ("SVG", f'<svg xmlns="http://www.w3.org/2000/svg" onload="{SCRIPT}"></svg>'),
    "markdown": ("Markdown", IMAGE),
}
PAGE = f"""
get_ipython().payload_manager.write_payload({{
    "source": "page", "start": 0, "data": {{"text/html": {IMAGE!r}, "text/plain": "help"}}}})
print("done")
"""


def cell(form: str, source: str) -> str:
    return (
        f"from IPython.display import {form}, display\ndisplay({form}({source!r}))\nprint('done')"
    )


OpenCells = Callable[..., Tab]


@pytest.fixture
def sandboxed(browser: Any, server: Server) -> Iterator[OpenCells]:
    """Open a notebook of the sandboxed kernel, or of one with live displays."""
    if not choose("auto").confines:
        pytest.skip("no sandbox works here")
    kernels = server.folder.parent / "home" / "data" / "kernels"
    for name, live in (("sandboxed", False), ("live", True)):
        (kernels / name).mkdir(parents=True, exist_ok=True)
        spec = specification("auto", live_displays=live)
        (kernels / name / "kernel.json").write_text(json.dumps(spec))
    tabs: list[Tab] = []

    def open_cells(*cells: str, kernel: str, front: str = "lab") -> Tab:
        name = server.write(f"sandboxed-{time.monotonic_ns()}.ipynb", *cells, kernel=kernel)
        tabs.append(open_notebook(browser, server, name, front=front))
        return tabs[-1]

    yield open_cells
    for tab in tabs:
        tab.page.context.close()
        server.end_kernel(tab.name)
    for found in kernels_of(server):
        server._ask("DELETE", f"/api/kernels/{found['id']}")


def kernels_of(server: Server) -> list[dict[str, Any]]:
    return list(json.loads(server._ask("GET", "/api/kernels")))


def plain_kernels(server: Server, seconds: float) -> int:
    """Return how many plain kernels there are, as soon as there is one, or after a while."""
    end = time.monotonic() + seconds
    while True:
        count = sum(found["name"] == "python3" for found in kernels_of(server))
        if count or time.monotonic() > end:
            return count
        time.sleep(0.1)


def run_all(tab: Tab, count: int) -> None:
    for number in range(count):
        tab.run(number)
        # Below the cell: its own source has the word, too.
        below = tab.page.locator(".jp-CodeCell").nth(number).locator(".jp-OutputArea")
        below.get_by_text("done").last.wait_for()


@pytest.mark.long
def test_live_displays_are_what_the_installation_says_of_them(
    sandboxed: OpenCells, server: Server
) -> None:
    """The control: without the relay, one line of HTML starts a kernel outside the sandbox."""
    tab = sandboxed(cell(*DISPLAYED["script"]), kernel="live")
    run_all(tab, 1)
    assert plain_kernels(server, 20) == 1


@BOTH
def test_no_display_of_a_cell_starts_a_kernel_outside(
    sandboxed: OpenCells, server: Server, front: str
) -> None:
    cells = [*(cell(*shown) for shown in DISPLAYED.values()), PAGE]
    tab = sandboxed(*cells, kernel="sandboxed", front=front)
    run_all(tab, len(cells))
    assert plain_kernels(server, 2) == 0
    assert not [url for url in tab.requests if url.startswith("data:,")]


TABLE = "import pandas as pd\ndisplay(pd.DataFrame({'a': [12345]}))\nprint('done')"
FIGURE = """
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
print("done")
"""
PROGRESS = """
import time
from IPython.display import clear_output, display
shown = display("first", display_id=True)
shown.update("second")
for n in range(3):
    clear_output(wait=True)
    print(n, "done" if n == 2 else "of 2")
"""


@pytest.mark.long
@BOTH
def test_tables_figures_progress_and_input_are_as_in_a_plain_kernel(
    sandboxed: OpenCells, front: str
) -> None:
    cells = [TABLE, FIGURE, PROGRESS, "print(input('who? '), 'done')"]
    tab = sandboxed(*cells, kernel="sandboxed", front=front)
    run_all(tab, 3)
    tab.page.locator(".jp-OutputArea td").get_by_text("12345").wait_for()
    tab.page.locator(".jp-OutputArea img").wait_for()
    assert tab.output(2).strip() == "2 done"
    tab.page.locator(".jp-CodeCell .cm-content").nth(3).click()
    tab.page.keyboard.press("Shift+Enter")
    field = tab.page.locator(".jp-Stdin-input")
    field.wait_for()
    field.fill("Ada")
    field.press("Enter")
    tab.page.get_by_text("Ada done").wait_for()
