"""What a cell printed and showed."""

from __future__ import annotations

from kernel_agent.records import CellResult


def text_of(result: CellResult) -> str:
    """Return all text of its outputs."""
    parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in result.outputs]
    return "".join(parts)
