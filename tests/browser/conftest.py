"""A Jupyter server and a browser for the tests of this folder; both are real."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.jupyter import CHROMIUM_ARGS, Server, Tab, open_notebook, serve

REQUIRED = os.environ.get("KERNEL_AGENT_REQUIRE_BROWSER") == "1"
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; its absence is a failure where it is required.

    It ends with this folder: while it is open, its event loop counts as running, and asynchronous
    tests could not have theirs.
    """
    if CHROMIUM is None:
        missing = "there is no chromium on the PATH"
        pytest.fail(missing) if REQUIRED else pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of JupyterLab and Notebook 7 for all tests."""
    with serve(tmp_path_factory.mktemp("jupyter")) as started:
        yield started


@pytest.fixture
def opened(browser: Any, server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Open a notebook with these cells; its kernel ends with the test."""
    tabs: list[Tab] = []

    def open_cells(*cells: str, **options: Any) -> Tab:
        name = f"{request.node.name.split('[')[0][5:45]}-{len(list(server.folder.glob('*.ipynb')))}"
        tab = open_notebook(browser, server, server.write(f"{name}.ipynb", *cells), **options)
        tabs.append(tab)
        return tab

    yield open_cells
    for tab in tabs:
        tab.page.context.close()
        server.end_kernel(tab.name)


Opened = Callable[..., Tab]
