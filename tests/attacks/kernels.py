"""The kernels under attack: started as a session starts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_agent.kernel.session import KernelSession


def make(level: str, cwd: Path, limits: dict[str, int]) -> KernelSession:
    """Return a session's kernel, not yet started, at a level and with limits."""
    return KernelSession(cwd=cwd, sandbox=level)


def connection_key(kernel: KernelSession) -> str:
    """Return the secret with which a kernel's messages are signed."""
    manager = kernel._manager
    assert manager is not None
    info: dict[str, Any] = dict(manager.get_connection_info())
    key = info["key"]
    return key.decode() if isinstance(key, bytes) else json.dumps(key).strip('"')
