"""The interpreter's worker as a process: how long it may compute, and that its threads end well."""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import time
from pathlib import Path

MAX_ALONE_S = 3600.0  # processor time of a cell without a limit


def bound_processor(pid: int | None, timeout_s: float | None) -> None:
    """Limit the worker's processor time to its cell's time, so that it cannot outlive us.

    A worker that waits ends when its host does. One that computes looks for nobody; when the host
    was killed, the operating system ends it here.
    """
    if pid is None or not hasattr(resource, "prlimit"):  # not Linux
        return
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # utime, stime
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        soft = int(used + min(timeout_s or MAX_ALONE_S, MAX_ALONE_S)) + 5
        resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))
    except (OSError, ValueError):  # it is gone, which the cell will tell
        return


@atexit.register
def _wait_for_threads() -> None:
    """Let the library's threads have Python until they are at rest.

    One that asks for it after that, when the process is ending, aborts the process.
    """
    for _ in range(500):
        time.sleep(0.002)
        with contextlib.suppress(OSError):  # one of them has ended
            threads = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
            if all(") S " in thread for thread in threads if "(tokio" in thread):
                return
