"""The command, as a person starts it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without settings and keys of its own, and with these."""
    own = ("OPENAI_", "KERNEL_AGENT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **changes}
