"""A Python that has imported what kernels need, waiting to become the kernel.

Started by :mod:`.init` as an ordinary user of the machine, before the state of the machine is
saved: a kernel then starts without the imports, which take most of the time on an emulated
processor. On its standard input comes one line of JSON: the ``argv`` of the kernel, its
``environment``, ``cwd`` and ``limits``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import resource
import runpy
import sys
from typing import Any

WARM = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "IPython.core.interactiveshell",
    "numpy", "pandas", "matplotlib.pyplot",
)  # fmt: skip
"""Not matplotlib's inline backend: when it is imported it looks for the running kernel."""


def main() -> None:
    """Import, say ``ready``, wait, and become the kernel."""
    warm()
    os.write(1, b"ready\n")
    line = sys.stdin.readline()
    if line:
        become(json.loads(line))


def warm() -> None:
    """Import the packages that work; a missing or broken one is the cell's business."""
    # The launcher does without the debugger, too, and says why.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    for name in WARM:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    del sys.modules["debugpy"]


def reseed() -> None:
    """Seed the generators of imported modules anew: every kernel would repeat the saved state's."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def become(start: dict[str, Any]) -> None:
    """Run the kernel's launcher in this process."""
    limits = start["limits"]
    for name, value in (
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * 1024 * 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (value, value))
    os.environ.clear()
    os.environ.update(start["environment"])
    os.chdir(start["cwd"])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    reseed()
    script, *rest = start["argv"]
    # IPython is told in /etc to load this extension; the folder that it is in goes off the path.
    importlib.import_module("cell_end")
    if script == "-m":
        sys.argv = rest
        sys.path[0] = start["cwd"]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [script, *rest]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
