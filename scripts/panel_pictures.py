"""Make the pictures of the panel: ``%agent`` in a real JupyterLab and Notebook 7, real runs.

The model plays back replies (those of ``tests/browser/stage.py``); the rest is real.
Needs Chromium on the PATH. Usage: python scripts/panel_pictures.py [FOLDER [NAME ...]]
(docs/images, and all of them, by default).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "extension")]

from browser import stage  # noqa: E402
from browser.jupyter import CHROMIUM_ARGS, Server, Tab, open_notebook, serve  # noqa: E402

WIDE, NARROW = 960, 400
PAUSE_S = 1.5  # of the model before each reply


def working(tab: Tab) -> None:
    """A cell prints one line after the other."""
    tab.panel.get_by_text("fold 9").wait_for()


def running(tab: Tab) -> None:
    """The third step's figure is there, the model thinks about the next one."""
    tab.panel.get_by_role("img", name="A figure made by this step").wait_for()


def stopped(tab: Tab) -> None:
    """A cell was running when Stop was pressed; its page is in the panel's place."""
    tab.panel.get_by_text("fold 9").wait_for()
    tab.panel.get_by_role("button", name="Stop", exact=True).click()
    tab.panel.wait_for(state="detached")


def asking(tab: Tab) -> None:
    """A cell waits for a person."""
    tab.panel.get_by_role("button", name="Approve").wait_for()


def reopened(tab: Tab) -> None:
    """The notebook was saved and loaded again: the static page is there."""
    tab.panel.wait_for(state="detached", timeout=60_000)
    tab.page.get_by_text("Gentoo penguins are the heaviest").first.wait_for()
    tab.save()
    tab.page.reload()
    tab.page.get_by_text("Gentoo penguins are the heaviest").first.wait_for(timeout=60_000)


def picture(
    browser: Any, server: Server, path: Path, question: str, ready: Callable[[Tab], None],
    *, front: str = "lab", dark: bool = False, width: int = WIDE,
) -> None:  # fmt: skip
    """Ask in a cell, wait until its output is as wanted, and take a picture of that cell."""
    name = server.write(f"{path.stem}.ipynb", "%load_ext kernel_agent", question)
    server.theme(f"JupyterLab {'Dark' if dark else 'Light'}")
    tab = open_notebook(browser, server, name, front=front, width=width, height=1200)
    tab.run(0)
    tab.run(1)
    tab.panel.wait_for()
    ready(tab)
    tab.page.mouse.move(5, 5)
    tab.page.wait_for_timeout(600)
    if (dialog := tab.page.locator(".jp-Dialog, .Toastify__toast")).count():
        raise AssertionError(f"something covers the notebook: {dialog.first.inner_text()}")
    cell = tab.page.locator(".jp-CodeCell").nth(1)
    cell.scroll_into_view_if_needed()
    cell.screenshot(path=str(path))
    tab.page.context.close()
    server.end_kernel(name)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    chosen = set(sys.argv[2:])
    with tempfile.TemporaryDirectory() as work, serve(Path(work)) as server, sync_playwright() as p:
        shutil.copy(stage.PENGUINS, server.folder)
        for name, replies in (("story", stage.STORY), ("working", stage.WORKING)):
            usage = {"prompt_tokens": 1800, "completion_tokens": 90}
            lines = [{"content": r, "delay_s": PAUSE_S, "usage": usage} for r in replies]
            script = server.folder / f"{name}.jsonl"
            script.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_ARGS)
        shots: list[tuple[str, str, Callable[[Tab], None], dict[str, Any]]] = [
            ("running", "working", working, {}),
            ("stopped", "working", stopped, {}),
            ("asking", "story", asking, {}),
            ("reopened", "story", reopened, {}),
            ("dark", "story", running, {"dark": True}),
            ("narrow", "story", asking, {"width": NARROW, "front": "notebook"}),
            ("notebook7", "story", running, {"front": "notebook"}),
        ]
        for name, model, ready, options in shots:
            approve = "--approve always" if ready is asking else ""
            words = f"--data penguins.csv --model scripted:{model}.jsonl {approve}".strip()
            question = f"%agent {words} {stage.TASK}"
            if not chosen or name in chosen:
                picture(browser, server, out / f"panel-{name}.png", question, ready, **options)
        browser.close()


if __name__ == "__main__":
    main()
