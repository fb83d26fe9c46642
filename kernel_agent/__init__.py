"""A data-analysis agent whose every action is a cell in a real Jupyter kernel.

>>> from kernel_agent import Session
>>> async with Session(model="offline", data=["sales.csv"]) as session:
...     run = await session.run("What is the total amount per region?")

The public names are those of ``__all__``; they are imported when they are first used, so that
``import kernel_agent`` costs nothing.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # While `python -m kernel_agent` looks for its module, which "-m" in this place says, the first
    # place that Python imports from is the working directory. It may be a run's folder, in which
    # a cell has left a json.py.
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_agent.budget import Budget
    from kernel_agent.config import Config
    from kernel_agent.models.scripted import ScriptedModel
    from kernel_agent.notebook.export import export
    from kernel_agent.notebook.verify import verify
    from kernel_agent.records import ExitStatus
    from kernel_agent.run import Run
    from kernel_agent.session import Session
    from kernel_agent.tools.tool import tool

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Config",
    "ExitStatus",
    "Run",
    "ScriptedModel",
    "Session",
    "export",
    "tool",
    "verify",
]

_HOMES = {
    "Budget": "budget",
    "Config": "config",
    "ExitStatus": "records",
    "Run": "run",
    "ScriptedModel": "models.scripted",
    "Session": "session",
    "export": "notebook.export",
    "tool": "tools.tool",
    "verify": "notebook.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; called by IPython for ``%load_ext kernel_agent``."""
    from kernel_agent_extension import load

    load(ipython)
