"""A folder in which a cell ran before knew the input to come, and kept a way to write it.

The whole command takes the user's file as an input of a session in that folder; a cell of it then
writes by the other name. What counts is what the file holds that the trace names as the input.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

COMMAND_S = 150.0
TABLE = "name,pay\nA,1\n"
WRITE = """
import os
try:
    os.chmod("shadow.csv", 0o644)
    open("shadow.csv", "w").write("EVIL")
except OSError:
    pass
"""


def _changed(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("the input ") else ""


@host_attack("host-confusion", _changed, timeout_s=180)
async def input_with_a_second_name(folder: Path) -> str:
    """An input that lies in the folder already, under a second name which cells can write"""
    return await asyncio.to_thread(_take_up, folder)


def _take_up(folder: Path) -> str:
    project = folder / "project"
    (project / "data").mkdir(parents=True)
    (folder / "user.csv").write_text(TABLE)
    (project / "shadow.csv").write_text(TABLE)
    os.link(project / "shadow.csv", project / "data" / "user.csv")
    reply = f"```python\n{WRITE}\nfinal_answer(7)\n```"
    (folder / "replies.jsonl").write_text(json.dumps({"content": reply}) + "\n")
    command = ["run", "How many?", "--model", "scripted:replies.jsonl", "--format", "fenced",
               "--sandbox", os.environ.get("PLAYED_LEVEL", "auto"), "--data", "user.csv",
               "--out", "project", "--json"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "kernel_agent", *command], cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the command ended with {done.returncode}: {done.stderr[-300:]}")
    lines = (project / "trace.jsonl").read_text().splitlines()
    (file,) = next(r["data"] for r in map(json.loads, lines) if r.get("data"))
    now = hashlib.sha256((project / file["path"]).read_bytes()).hexdigest()
    if now != file["sha256"]:
        return f"the input {file['path']} holds what the cell wrote"
    raise PermissionError(1, "the input is as it was")
