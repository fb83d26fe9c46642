"""Attacks that the host meets without a cell: ``python -m attacks.alone NAME`` runs one.

The process is watched from outside: its memory while it works, and whether it ends. How long its
event loop stood still it measures itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.usage import remove
from attacks.words import Attack, Report, load

if TYPE_CHECKING:
    from attacks.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
CAP_MB = 3_000  # what the process may take: an attack is to be seen, not to end the machine
TICK_S = 0.005


async def meet(attack: Attack, stage: Stage) -> Report:
    """Let the host meet an attack in a process of its own; measure it and report how it ended."""
    folder = Path(tempfile.mkdtemp(prefix="ka-host-"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "attacks.alone", attack.name,
        cwd=folder, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    watching = asyncio.create_task(_watch(process.pid, stage))
    try:
        said, errors = await asyncio.wait_for(process.communicate(), attack.timeout_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return Report(ended="timeout")
    finally:
        watching.cancel()
        remove(folder)
    try:
        told = json.loads(said.decode().splitlines()[-1])
    except (IndexError, ValueError):
        return Report(ended="crashed", text=errors.decode(errors="replace")[-2000:])
    stage.peak["standstill_ms"] = told.pop("standstill_ms")
    stage.peak["host_memory_mb"] = max(
        stage.peak.get("host_memory_mb", 0), told.pop("host_memory_mb")
    )
    return Report(**told)


async def _watch(pid: int, stage: Stage) -> None:
    """Keep the most memory that the process took; for one that does not live to tell it."""
    first = None
    while True:
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{pid}/status").read_text()
            now = int(status.partition("RssAnon:")[2].split()[0]) // 1024
            first = now if first is None else first
            stage.peak["host_memory_mb"] = max(
                stage.peak.get("host_memory_mb", 0), now - max(first, BASE_MB)
            )
        await asyncio.sleep(0.05)


BASE_MB = 80  # what an interpreter with the program's libraries takes before anything happens


async def _alone(attack: Attack) -> dict[str, object]:
    assert attack.on_host is not None
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            worst = max(worst, now - before - TICK_S)
            before = now

    base = _high_mb()
    ticking = asyncio.create_task(tick())
    ended, text = "returned", ""
    try:
        text = await attack.on_host(Path.cwd())
    except (OSError, ValueError, RuntimeError) as error:
        ended, text = "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        ended, text = "crashed", f"{type(error).__name__}: {error}"
    await asyncio.sleep(2 * TICK_S)
    ticking.cancel()
    return {
        "ended": ended,
        "text": text[:2000],
        "standstill_ms": round(worst * 1000),
        "host_memory_mb": _high_mb() - base,
    }


def _high_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Meet the named attack and print one JSON object, unless that never ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (CAP_MB << 20, CAP_MB << 20))
    attack = load()[sys.argv[1]]
    told = asyncio.run(_alone(attack))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
