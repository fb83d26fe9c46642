"""What the tests of engines let workers do instead of a whole run: instant, slow or deadly."""

import os
import signal
import time
from pathlib import Path

from kernel_agent.evaluation.specs import RunResult, RunSpec


def instant(spec: RunSpec) -> RunResult:
    """Answer at once."""
    return RunResult(
        run_id=spec.run_id, task_id=spec.task.id, arm=spec.arm.name, trial=spec.trial,
        status="answered", success=True, steps=1, answer=os.getpid(),
    )  # fmt: skip


def marked(spec: RunSpec) -> RunResult:
    """Leave a mark on disk that the run has begun, wait for the word to go on, answer."""
    (Path(spec.folder) / f"began-{spec.task.id}-{os.getpid()}-{time.monotonic_ns()}").touch()
    deadline = time.monotonic() + 300
    while not (Path(spec.folder) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return instant(spec)


def deadly(spec: RunSpec) -> RunResult:
    """Kill the worker whenever the first task is tried."""
    if spec.task.id == "t0":
        os.kill(os.getpid(), signal.SIGKILL)
    return instant(spec)
