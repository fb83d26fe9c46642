"""A file of tasks from somebody else: it names a table of the user's, and code that it brings.

The command is started where nobody can be asked. What is counted is whether the code ran, and
whether anything that the table holds came to lie in the evaluation's folder, as it does when a
session takes it as an input and a model is shown it.
"""

from __future__ import annotations

import asyncio
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
SALARY = "Canary-5f1c,81234"


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("unasked: ") else ""


@host_attack("host-confusion", _told, timeout_s=180)
async def tasks_that_read_elsewhere(folder: Path) -> str:
    """A file of tasks from somebody else names a table in another folder of the user's"""
    return await asyncio.to_thread(_evaluate, folder, {"data": "../private/salaries.csv"})


@host_attack("host-confusion", _told, timeout_s=180)
async def tasks_that_bring_code(folder: Path) -> str:
    """A file of tasks from somebody else brings a module of tools, and one that judges"""
    check = {"kind": "python", "function": "evil.py:f"}
    return await asyncio.to_thread(_evaluate, folder, {"tools": "evil.py", "check": check})


def _evaluate(folder: Path, fields: dict[str, object]) -> str:
    for name in ("project", "private", "person"):
        (folder / name).mkdir()
    project = folder / "project"
    (folder / "private" / "salaries.csv").write_text(f"name,pay\n{SALARY}\n")
    (project / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    task = {"id": "a", "task": "How many rows does the table have?", "answer": 1, **fields}
    (project / "tasks.jsonl").write_text(json.dumps(task))
    command = ["eval", "tasks.jsonl", "--model", "offline", "--out", "out",
               "--sandbox", os.environ.get("PLAYED_LEVEL", "auto")]  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "kernel_agent", *command], cwd=project, check=False,
        env={**os.environ, "HOME": str(folder / "person")}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=COMMAND_S,
    )  # fmt: skip
    made = [path for path in (project / "out").rglob("*") if path.is_file()]
    seen = [
        effect
        for effect, happened in {
            "the code ran": (folder / "ran").exists(),
            "the table was read": any(SALARY.encode() in path.read_bytes() for path in made),
        }.items()
        if happened
    ]
    if not seen:
        raise PermissionError(1, "nothing happened")
    return f"unasked: {', '.join(seen)}"
