"""The notebook front end: ``%load_ext kernel_agent`` brings ``%agent`` and ``%%agent``."""

from __future__ import annotations

from typing import Any


def load(ipython: Any) -> None:
    """Register the magics; called through :func:`kernel_agent.load_ipython_extension`."""
    from kernel_agent_extension.magics import AgentMagics

    magics = AgentMagics(ipython)
    ipython.register_magics(magics)
    ipython.configurables.append(magics)  # for %config
