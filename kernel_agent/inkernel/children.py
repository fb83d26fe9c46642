"""A kernel that ends waits for the children that run, not for those that have ended.

ipykernel ends its children one signal after another, each with a longer wait, until there are none.
One that has ended stays a child until somebody waits for it, which a cell may never do: the kernel
would use up its time, and what its open files hold back would be lost.
"""

from __future__ import annotations

from typing import Any

from ipykernel import kernelbase


def pass_over_ended() -> None:
    """Have ipykernel see only the children that run."""
    kernel: Any = kernelbase.Kernel
    children = kernel._process_children
    kernel._process_children = lambda self: list(filter(_runs, children(self)))


def _runs(child: Any) -> bool:
    try:
        return bool(child.status() != "zombie")
    except Exception:  # it has gone meanwhile
        return False
