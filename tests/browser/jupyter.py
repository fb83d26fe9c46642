"""Jupyter as a person has it: a server of its own, and a browser in front of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
QUIET = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
}
CHROMIUM_ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@dataclass(frozen=True)
class Server:
    """A Jupyter server on loopback, which serves JupyterLab and Notebook 7."""

    address: str
    token: str
    folder: Path

    def write(self, name: str, *sources: str, kernel: str = "python3") -> str:
        """Write a notebook with these cells; return its name."""
        import nbformat

        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})
        nbformat.write(notebook, self.folder / name)
        return name

    def saved(self, name: str) -> dict[str, Any]:
        """Read a notebook as it is on the disk."""
        return json.loads((self.folder / name).read_text())

    @property
    def log(self) -> str:
        """What the server says of itself, each request that it was sent among it."""
        return (self.folder.parent / "server.log").read_text(errors="replace")

    def is_ready(self, name: str) -> bool:
        """Whether a notebook's kernel is idle, and a page is connected to it."""
        kernels = [s["kernel"] for s in self._sessions() if s["path"] == name]
        return any(k["execution_state"] == "idle" and k["connections"] for k in kernels)

    def _sessions(self) -> list[dict[str, Any]]:
        return list(json.loads(self._ask("GET", "/api/sessions")))

    def theme(self, name: str) -> None:
        """Choose a theme for pages that are opened from now on."""
        plugin = "/lab/api/settings/@jupyterlab/apputils-extension:themes"
        self._ask("PUT", plugin, {"raw": json.dumps({"theme": name})})

    def end_kernel(self, name: str) -> None:
        """End the kernel of a notebook."""
        for session in self._sessions():
            if session["path"] == name:
                self._ask("DELETE", f"/api/sessions/{session['id']}")

    def _ask(self, method: str, path: str, body: Any = None) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, method=method, headers=headers, data=data
        )
        with urllib.request.urlopen(request) as answer:
            return answer.read()


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Start a server in a folder, with settings of its own; end it and its kernels afterwards."""
    home = folder / "home"
    overrides = home / "config" / "labconfig" / "default_setting_overrides.json"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(json.dumps(QUIET))
    work = folder / "work"
    work.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", secrets.token_hex(16), work)
    environment = {
        **os.environ,
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "extension", ROOT / "tests"))),
    }
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root",
        "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={server.token}", f"--ServerApp.root_dir={work}",
        "--KernelManager.transport=ipc", "--log-level=DEBUG",
    ]  # fmt: skip
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=work, start_new_session=True,
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        _wait_for(server, process, folder / "server.log")
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{server.address}/api/status?token={server.token}"):
                return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-3000:]}")


@dataclass
class Tab:
    """A notebook that is open in a browser."""

    page: Any
    server: Server
    name: str
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    settled_ms: int = 400

    @property
    def panel(self) -> Any:
        """The panel, or where it would be."""
        return self.page.locator("section.kap-panel")

    def answer(self, dialog: Any) -> None:
        """Let a page be left; keep and close every other dialog."""
        if dialog.type == "beforeunload":
            dialog.accept()
            return
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def run(self, cell: int = 0) -> None:
        """Run a cell as a person does: click into it, Shift+Enter."""
        editor = self.page.locator(".jp-CodeCell .cm-content").nth(cell)
        prompt = self.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell)
        before = prompt.text_content()
        for _ in range(20):  # before the front end has its kernel, nothing comes of it
            editor.click()
            self.page.keyboard.press("Shift+Enter")
            self.page.wait_for_timeout(self.settled_ms)
            if (dialog := self.page.locator(".jp-Dialog")).count():
                raise AssertionError(f"Jupyter asks: {dialog.inner_text()}")
            if prompt.text_content() not in (before, "[ ]:"):
                self.settled_ms = 0
                return
            self.settled_ms = 400
        raise AssertionError(f"cell {cell} did not run")

    def output(self, cell: int = 0) -> str:
        """Return the text below a cell."""
        return self.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea").inner_text()

    def wait(self, script: str, *, seconds: float = 30, argument: Any = None) -> Any:
        """Wait until a script of the page says true."""
        return self.page.wait_for_function(script, arg=argument, timeout=1000 * seconds)

    def save(self) -> None:
        """Write the notebook, and wait until it is written."""
        path = self.server.folder / self.name
        before = path.stat().st_mtime_ns
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        end = time.monotonic() + 15
        while path.stat().st_mtime_ns == before or not _is_whole(path):
            assert time.monotonic() < end, "the notebook was not saved"
            self.page.wait_for_timeout(100)


def _is_whole(path: Path) -> bool:
    """Whether a file is one of JSON to its end: the server empties it before it writes."""
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


def open_notebook(
    browser: Any, server: Server, name: str, *, front: str = "lab", width: int = 1100,
    height: int = 900, **options: Any,
) -> Tab:  # fmt: skip
    """Open a notebook in JupyterLab (``lab``) or Notebook 7 (``notebook``); wait for its kernel."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    tab = Tab(page, server, name)
    page.on("request", lambda request: tab.requests.append(request.url))
    page.on("dialog", tab.answer)
    where = f"doc/tree/{name}" if front == "lab" else f"notebooks/{name}"
    page.goto(f"{server.address}/{where}?token={server.token}")
    wait_for_kernel(tab)
    return tab


def wait_for_kernel(tab: Tab) -> None:
    """Wait until the notebook is there and its kernel is idle."""
    tab.page.locator(".jp-CodeCell .cm-content").first.wait_for(timeout=60_000)
    end = time.monotonic() + 60
    while not tab.server.is_ready(tab.name):
        assert time.monotonic() < end, "the kernel did not start"
        tab.page.wait_for_timeout(100)
