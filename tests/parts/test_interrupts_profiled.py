"""What an interrupt in this process leaves behind, seen in a process that may hang."""

import subprocess
import sys
from pathlib import Path

import pytest

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
