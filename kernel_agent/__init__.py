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

from collections.abc import Callable
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def face(room: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return what makes a package a room with a face: its ``__getattr__`` and its ``__all__``.

    The face is the stub beside the package's ``__init__.py``: type checkers read the names of the
    room there, and so does this. A name is imported when it is first used.

    Parameters
    ----------
    room
        The package's ``__name__``.
    file
        Its ``__file__``.
    """
    with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib is slow to import
        lines = [line.split() for line in stub if line.startswith("from .")]
    homes = {name: f"{room}{module.rstrip('.')}" for _, module, _, name, *_ in lines}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[room], name, found)
        return found

    return import_name, sorted(homes)


__getattr__, __all__ = face(__name__, __file__)


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; called by IPython for ``%load_ext kernel_agent``."""
    import_module("kernel_agent_extension").load(ipython)
