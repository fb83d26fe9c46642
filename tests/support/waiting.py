"""Wait for the thing itself, never for a moment in which it has always come so far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel
    from kernel_agent.records import CellResult

DEADLINE_S = 60  # also on a busy machine


async def until(true: Callable[[], object]) -> None:
    """Return as soon as it is true; what it waits for happens in this loop or elsewhere."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.002)


def wait_until(true: Callable[[], object]) -> None:
    """Return as soon as it is true; nothing else happens in this thread."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def begin(kernel: Kernel, code: str, **options: Any) -> asyncio.Task[CellResult]:
    """Start a cell that prints ``on it`` first, and return when it is heard to run."""
    begun = asyncio.Event()
    cell = asyncio.create_task(
        kernel.execute(
            f"print('on it', flush=True)\n{code}", on_output=lambda _: begun.set(), **options
        )
    )
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
    return cell
