"""Interrupts of a kernel in this process: when it costs the kernel, and what it leaves behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent import FakeKernel
from kernel_agent.errors import KernelDied

SCRIPT = """
import asyncio, sys
from kernel_agent import FakeKernel

async def main():
    async with FakeKernel(cwd=sys.argv[1]) as kernel:
        result = await kernel.execute(sys.argv[2], timeout_s=0.1)
        print(result.status)

asyncio.run(main())
sys.setprofile(lambda frame, event, argument: None)
(lambda: None)()
sys.setprofile(None)
print("profiled")
"""
STUCK = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"


@pytest.mark.parametrize(
    ("cell", "status"), [("1", "ok"), ("while True: pass", "timeout"), (STUCK, "dead")]
)
def test_a_process_can_be_profiled_after_any_cell(cell: str, status: str, tmp_path: Path) -> None:
    """CPython 3.11 hangs at a profiled call while an interrupt of any thread is outstanding."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), cell]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.split() == [status, "profiled"], done.stderr


async def test_a_cell_that_is_not_to_be_interrupted_costs_the_kernel(tmp_path: Path) -> None:
    stubborn = (
        "import time\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until:\n"
        "    try:\n        time.sleep(0.01)\n    except KeyboardInterrupt:\n        pass"
    )
    async with FakeKernel(cwd=tmp_path) as kernel:
        result = await kernel.execute(stubborn, timeout_s=0.05)
        assert result.status == "dead"
        assert not kernel.alive
        with pytest.raises(KernelDied):
            await kernel.execute("1")
