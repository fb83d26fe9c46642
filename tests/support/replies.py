"""What a model writes, and what is read of it."""

from __future__ import annotations

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse


def cell(code: str, thought: str = "Next.") -> str:
    """Write a reply with a thought and a cell, as the format ``fenced`` has it."""
    return f"{thought}\n\n```python\n{code}\n```"


def outcome(reply, name="fenced"):
    """Read a reply: the action, or the error that a model is told."""
    try:
        return parse(reply, name)
    except FormatError as error:
        return error
