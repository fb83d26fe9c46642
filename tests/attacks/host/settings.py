"""A settings file of somebody else, small on the disk, that is named for a command."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

COMMAND_S, MOST_S, MOST_MB = 60.0, 20.0, 250
QUOTED = ".".join(['"a"'] * 8_000)
FORMS = {
    "a key of 32,000 dots": "a." * 32_000 + "a = 1\n",
    "headers of 5,000 dots": f"[{'a.' * 5_000}a]\n" * 6,
    "a table of 8,000 dots": f"headers = {{ {'a.' * 8_000}a = 1 }}\n",
    "dots in quotes": f"model = {{ {QUOTED} = 1 }}\n",
    "lists in each other": "data = " + "[" * 30_000 + "]" * 30_000 + "\n",
    "many tables": "".join(f"[t{n}]\n" for n in range(8_000)),
}


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("the command") else ""


@host_attack("host-resource", _told, timeout_s=115)
async def settings_of_very_many_dots(folder: Path) -> str:
    """A settings file of 64 kB whose keys have thousands of dots, or that is nested without end"""
    return await asyncio.to_thread(_started, folder)


def _started(folder: Path) -> str:
    named = folder / "theirs.toml"
    for name, text in FORMS.items():
        named.write_text(text[: 1 << 16])
        began = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "kernel_agent", "run", "x", "--model", "offline"],
                cwd=folder, env={**os.environ, "KERNEL_AGENT_CONFIG": str(named)},
                stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the command had not ended after {COMMAND_S:.0f} s: {name}"
        took, peak_mb = time.monotonic() - began, _peak_mb()
        if took > MOST_S or peak_mb > MOST_MB:
            return f"the command took {took:.0f} s and {peak_mb:,} MB: {name}"
        if done.returncode != 2:
            raise KeyError(f"it ended with {done.returncode} for {name}")
    raise PermissionError(1, f"refused, with at most {_peak_mb()} MB")


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
