"""What writes notebooks takes a second to import: it is done while a model thinks."""

from __future__ import annotations

from functools import cache
from importlib import import_module


@cache
def prepare_notebooks() -> None:
    """Import what writes notebooks, so that the end of a run need not wait for that.

    Called in a thread of its own, by the runner when a run begins and by a notebook's session.
    """
    import nbformat

    nbformat.validate(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # nbformat is untyped
    for name in ("compose", "export", "outputs", "safe", "tables"):
        import_module(f"kernel_agent.notebook.{name}")
