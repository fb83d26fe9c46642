"""Make the pictures of the panel: real runs in a real JupyterLab.

Needs Chromium on the PATH. Usage: python scripts/panel_pictures.py [FOLDER]
(docs/images by default).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.jupyter import CHROMIUM_ARGS, Server, Tab, open_notebook, serve  # noqa: E402

BEGIN = "from browser import stage\n"
WIDE, NARROW = 960, 400


def running(tab: Tab) -> None:
    """The third step's figure is there, the next one is being written."""
    tab.panel.get_by_role("img", name="A figure made by this step").wait_for()
    tab.wait("() => document.querySelector('.kap-draft .kap-code')?.textContent.length > 40")


def stopped(tab: Tab) -> None:
    """A cell was running when Stop was pressed."""
    tab.panel.get_by_text("fold 9").wait_for()
    tab.panel.get_by_role("button", name="Stop", exact=True).click()
    tab.panel.get_by_text("Stopped", exact=True).wait_for()


def asking(tab: Tab) -> None:
    """A cell waits for a person."""
    tab.panel.get_by_role("button", name="Approve").wait_for()


def reopened(tab: Tab) -> None:
    """The page is loaded again while the kernel keeps the panel."""
    tab.panel.get_by_text("Gentoo penguins are the heaviest").last.wait_for()
    tab.page.get_by_text("'answered, 4 steps'").wait_for()
    tab.save()
    tab.page.reload()
    tab.panel.get_by_text("Gentoo penguins are the heaviest").last.wait_for(timeout=60_000)


def picture(
    browser: Any, server: Server, path: Path, cell: str, ready: Callable[[Tab], None],
    *, dark: bool = False, width: int = WIDE,
) -> None:  # fmt: skip
    """Run a cell, wait until the panel is as wanted, and take its picture."""
    name = server.write(f"{path.stem}.ipynb", BEGIN + cell)
    server.theme(f"JupyterLab {'Dark' if dark else 'Light'}")
    front = "notebook" if width == NARROW else "lab"
    tab = open_notebook(browser, server, name, front=front, width=width, height=1200)
    tab.run()
    tab.panel.wait_for()
    ready(tab)
    tab.page.mouse.move(5, 5)
    tab.page.wait_for_timeout(600)
    tab.panel.screenshot(path=str(path))
    tab.page.context.close()
    server.end_kernel(name)


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    story = "await stage.ask(stage.STORY, finish=False, pause_s={})"
    with tempfile.TemporaryDirectory() as work, serve(Path(work)) as server, sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM_ARGS)
        shots: list[tuple[str, str, Callable[[Tab], None], dict[str, Any]]] = [
            ("running", story.format(0.05), running, {}),
            ("stopped", "await stage.ask(stage.WORKING[1:], linger_s=9)", stopped, {}),
            ("asking", "print(await stage.approval())", asking, {}),
            ("reopened", story.format(0.01), reopened, {}),
            ("dark", story.format(0.05), running, {"dark": True}),
            ("narrow", "print(await stage.approval())", asking, {"width": NARROW}),
        ]
        for name, cell, ready, options in shots:
            picture(browser, server, out / f"panel-{name}.png", cell, ready, **options)
        browser.close()


if __name__ == "__main__":
    main()
