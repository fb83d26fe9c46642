"""The browser's part: payloads displayed by a kernel, exported, made a page, opened in Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.cells.browser import NEVER_LIVE, PAYLOADS
from attacks.words import Attack, Result

if TYPE_CHECKING:
    from attacks.play import Played

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 60


def browser_attacks() -> list[Attack]:
    """Return the payloads as entries of the catalogue, for tables and counts."""
    return [
        Attack(
            name=f"browser_{name}",
            category="browser",
            title=title,
            code=json.dumps(bundle),
            effect=lambda stage, report: "",
            no_control="the page maker brings it to life by no means" if name in NEVER_LIVE else "",
        )
        for name, (title, bundle) in PAYLOADS.items()
    ]


class _Canary(http.server.BaseHTTPRequestHandler):
    asked: set[str]

    def do_GET(self) -> None:
        self.asked.add(self.path.strip("/"))
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


async def browse(played: Played) -> list[Result]:
    """Display all payloads, open what is exported of them, and see which were loaded.

    At level ``none`` the outputs are opened as they came, which is the control: it shows that the
    payloads work. At all others they pass through the program's own export.
    """
    raw = played.level == "none"
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    attacks = browser_attacks()
    if browser is None:
        return [_result(a, "not run", "no browser here") for a in attacks]
    asked: set[str] = set()
    handler = type("Canary", (_Canary,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    folder = Path(tempfile.mkdtemp(prefix="ka-pages-"))
    try:
        shown = await _pages(played, folder, address, raw=raw)
        began = time.monotonic()
        await asyncio.to_thread(_open, browser, folder, address, asked)
        seconds = round(time.monotonic() - began, 1)
    finally:
        server.shutdown()
        server.server_close()
        shutil.rmtree(folder, ignore_errors=True)
    if "opened" not in asked:
        return [_result(a, "not run", "the browser did not open the page") for a in attacks]
    results = []
    for attack in attacks:
        name = attack.name.removeprefix("browser_")
        if name not in shown:
            results.append(_result(attack, "not run", "the kernel did not display it"))
        elif name in asked:
            results.append(_result(attack, "not stopped", "the browser loaded it", seconds))
        else:
            results.append(_result(attack, "stopped", "the browser loaded nothing", seconds))
    return results


def _result(attack: Attack, kind: Any, seen: str, seconds: float = 0.0) -> Result:
    return Result(attack=attack.name, verdict=kind, seen=seen, seconds=seconds)


async def _pages(played: Played, folder: Path, address: str, *, raw: bool) -> set[str]:
    """Write a page for each payload that a kernel displayed, and one that frames them all."""
    assert played.kernel is not None
    if not played.kernel.alive:
        await played.kernel.restart()
    shown = set()
    frames = []
    for name, (_, bundle) in PAYLOADS.items():
        text = json.dumps(bundle).replace("ADDRESS", f"{address}/{name}")
        result = await played.kernel.execute(_cell(text), timeout_s=20)
        if not result.outputs:
            continue
        try:
            page = await asyncio.to_thread(_page, list(result.outputs), raw=raw)
        except (ValueError, TypeError, KeyError):  # the page maker refuses it
            continue
        shown.add(name)
        (folder / f"{name}.html").write_text(page)
        frames.append(f'<iframe src="{name}.html" width="300" height="80"></iframe>')
    body = f"<!doctype html><body>{''.join(frames)}<script>fetch('{address}/opened')</script>"
    (folder / "index.html").write_text(body)
    return shown


def _cell(bundle: str) -> str:
    return (
        "import json, sys\n"
        "from IPython.display import display\n"
        f"bundle = json.loads({bundle!r})\n"
        "if 'stream' in bundle: print(bundle['stream'])\n"
        "elif 'error' in bundle: raise ValueError(bundle['error'])\n"
        "else: display(bundle, raw=True)\n"
    )


def _page(outputs: list[dict[str, Any]], *, raw: bool) -> str:
    """Return the page that ``jupyter nbconvert --to html`` makes of a notebook with the outputs."""
    import nbformat
    from nbconvert import HTMLExporter

    from kernel_agent.notebook.outputs import notebook_outputs

    cell = nbformat.v4.new_code_cell("")
    kept = outputs if raw else notebook_outputs(outputs, execution_count=1)
    cell["outputs"] = [nbformat.from_dict(json.loads(json.dumps(output))) for output in kept]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    return str(page)


def _open(browser: str, folder: Path, address: str, asked: set[str]) -> None:
    """Open the framing page, and wait until no payload has loaded anything for a while."""
    profile = folder / "profile"
    options = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
               "--allow-file-access-from-files", f"--user-data-dir={profile}"]  # fmt: skip
    options.append("--no-sandbox")  # the browser's own, which neither root nor a container has
    process = subprocess.Popen(
        [browser, *options, f"file://{folder}/index.html"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        end, quiet, before = time.monotonic() + WAIT_S, 0, -1
        while time.monotonic() < end and quiet < 6:
            time.sleep(0.5)
            quiet = quiet + 1 if len(asked) == before and "opened" in asked else 0
            before = len(asked)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
