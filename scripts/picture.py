"""Make a picture of a real run: as a terminal shows it, or the head of its notebook.

Needs Chromium on the PATH. Usage: python scripts/picture.py RUN_FOLDER|NOTEBOOK OUT.png
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 104
HEAD_CELLS, HEAD_HEIGHT = 4, 860  # down to the verdict


def terminal_output(command: list[str]) -> str:
    """Run a command at a terminal of its own and return what it wrote, colours included."""
    pieces: list[bytes] = []

    def read(fd: int) -> bytes:
        data = os.read(fd, 65536)
        pieces.append(data)
        return data  # an empty answer would mean the end

    os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
    pty.spawn(command, read)
    return b"".join(pieces).decode().replace("\r", "")


def as_page(text: str) -> str:
    """Return the output as a page with the terminal's colours."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(text))
    body = console.export_html(inline_styles=True, theme=MONOKAI, code_format="<pre>{code}</pre>")
    style = (
        "body{margin:0;background:#0c0c0c;color:#d9d9d9}"
        "pre{margin:22px 28px;font:14px/1.45 'DejaVu Sans Mono',monospace}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}"


def head_of(notebook: str) -> str:
    """Return question, answer, figure and verdict of a notebook as a page."""
    import nbformat
    from nbconvert import HTMLExporter

    read = nbformat.read(notebook, as_version=4)
    read.cells = read.cells[:HEAD_CELLS]
    return HTMLExporter(template_name="lab").from_notebook_node(read)[0]


def main() -> None:
    """Write the picture."""
    folder, out = sys.argv[1:]
    if folder.endswith(".ipynb"):
        return picture(head_of(folder), out, HEAD_HEIGHT)
    command = [str(Path(sys.executable).with_name("kernel-agent")), "show", folder]
    text = terminal_output(command)
    asked = f"$ kernel-agent run … --data …\n{text.strip()}\n"
    return picture(as_page(asked), out, 44 + int(14 * 1.45 * (asked.count("\n") + 4)))


def picture(html: str, out: str, height: int) -> None:
    """Write a page as a picture."""
    with tempfile.TemporaryDirectory() as work:
        page = Path(work) / "page.html"
        page.write_text(html)
        subprocess.run(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--disable-background-networking", "--disable-sync", "--no-first-run",
                f"--user-data-dir={work}/profile", f"--window-size=960,{height}",
                f"--screenshot={out}", page.as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip


if __name__ == "__main__":
    main()
