"""Folders without an end, made by a cell of a whole command: how it ends, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.usage import remove
from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

Meeting = Callable[[Path], Awaitable[str]]

DEPTH = 3000
NEST = f"""
import os, glob
at = os.open(PLACE, os.O_RDONLY)
for _ in range({DEPTH}):
    os.mkdir("d", dir_fd=at)
    inner = os.open("d", os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = inner
os.close(at)
"""
BESIDE = (
    "from ipykernel.connect import get_connection_file\n"
    "import json\nPLACE = os.path.dirname(json.load(open(get_connection_file()))['ip'])\n"
)
COMMAND_S = 150.0


def ended_badly(stage: Stage, report: Report) -> str:
    """Tell that the command did not end as it should have, or left a folder."""
    return report.text if report.text.startswith("the command") else ""


@host_attack("host-resource", ended_badly, timeout_s=180)
async def folders_beside_the_sockets(folder: Path) -> str:
    """Folders 3,000 deep beside the kernel's sockets, when the run ends"""
    return await _run(folder, "import os\n" + BESIDE + NEST)


@host_attack("host-resource", ended_badly, timeout_s=180)
async def folders_while_verified(folder: Path) -> str:
    """Folders 3,000 deep made by a notebook that is verified"""
    import nbformat

    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("PLACE = '.'\n" + NEST + "print(1)")]
    )
    (folder / "work").mkdir()
    nbformat.write(notebook, folder / "work" / "n.ipynb")
    return await asyncio.to_thread(_ended, folder, ["verify", "work/n.ipynb"], (0, 1), "summary")


async def _run(folder: Path, cell: str) -> str:
    reply = f"```python\n{cell}\nfinal_answer(7)\n```"
    (folder / "replies.jsonl").write_text(json.dumps({"content": reply}) + "\n")
    command = ["run", "How many?", "--model", "scripted:replies.jsonl", "--format", "fenced"]
    command += ["--sandbox", os.environ.get("KERNEL_AGENT_ATTACKED_LEVEL", "auto")]
    return await asyncio.to_thread(_ended, folder, [*command, "--out", "out"], (0,), "answer")


def _ended(folder: Path, command: list[str], codes: tuple[int, ...], told: str) -> str:
    """Run a command with a temporary directory of its own; say how it ended."""
    temporary = folder / "t"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "kernel_agent", *command, "--json"],
        cwd=folder, env={**os.environ, "TMPDIR": str(temporary)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    seen = []
    if done.returncode not in codes:
        seen.append(f"ended with exit code {done.returncode}: {done.stderr.strip()[-150:]}")
    if f'"{told}"' not in done.stdout:
        seen.append("told nothing")
    if left := sorted(path.name[:14] for path in temporary.iterdir()):
        seen.append(f"left {', '.join(left)}")
    remove(temporary)
    remove(folder / "out")
    return "the command " + ", and ".join(seen) if seen else "it ended as it should"
