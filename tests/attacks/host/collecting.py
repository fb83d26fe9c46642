"""What watches a run from outside: a cell that calls without measure, told to a collector.

The whole command sends its spans, with texts, to a collector on loopback. What counts is what the
collector was sent, and the most memory that the command took.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

COMMAND_S = 100.0
MOST_MB = 260  # some 150 without anything to tell; the texts of a run are 32
INSTRUMENT = str(Path(sys.executable).with_name("opentelemetry-instrument"))
TOOL = '''
from kernel_agent import tool

@tool
def keep(text: str) -> str:
    """Keep a text."""
    return text
'''
FACES = "for _ in range(150):\n    keep('\\N{GRINNING FACE}' * 100_000)"


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("unwatched: ") else ""


@host_attack("host-resource", _told, timeout_s=115)
async def calls_that_silence_a_collector(folder: Path) -> str:
    """A cell's 150 calls of a tool with 400 kB each, told to a collector that works"""
    return await asyncio.to_thread(_watched, folder)


def _watched(folder: Path) -> str:
    from servers.collector import Collector

    (folder / "keeping.py").write_text(TOOL)
    reply = f"```python\n{FACES}\nfinal_answer(7)\n```"
    (folder / "replies.jsonl").write_text(json.dumps({"content": reply}) + "\n")
    command = ["run", "How many?", "--model", "scripted:replies.jsonl", "--format", "fenced",
               "--sandbox", os.environ.get("PLAYED_LEVEL", "auto"), "--tools", "./keeping.py",
               "--out", "project", "--json"]  # fmt: skip
    with Collector() as collector:
        done = subprocess.run(
            [INSTRUMENT, sys.executable, "-m", "kernel_agent", *command],
            cwd=folder, check=False,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                 "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                 "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S,
        )  # fmt: skip
        names = [span.name for span in collector.spans]
    if done.returncode:
        raise RuntimeError(f"the command ended with {done.returncode}: {done.stderr[-300:]}")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    missing = [each for each in ("invoke_agent", "chat", "execute_tool python") if not any(
        name.startswith(each) for name in names)]  # fmt: skip
    if missing or peak_mb > MOST_MB:
        lost = f"no span of {', '.join(missing)} came; " if missing else ""
        return f"unwatched: {lost}the command took {peak_mb:,} MB"
    raise PermissionError(1, f"{len(names)} spans came, {peak_mb} MB were taken")
