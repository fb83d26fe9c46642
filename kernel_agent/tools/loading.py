"""Tools of a module that the user names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from kernel_agent.errors import UsageError
from kernel_agent.tools.definition import Tool


def load_tools(module: str) -> tuple[Tool, ...]:
    """Return the tools that a module (``package.module`` or ``path/to/file.py``) defines.

    Raises
    ------
    UsageError
        The module cannot be imported, or defines no tool.
    """
    if module.endswith(".py") and not Path(module).exists():
        raise UsageError(f"--tools {module}: there is no such file")
    try:
        loaded = _load_file(Path(module)) if module.endswith(".py") else _load_name(module)
    except Exception as error:  # a module of the user's may raise anything
        raise UsageError(
            f"--tools {module}: cannot be imported ({type(error).__name__}: {error})"
        ) from None
    found = tuple(v for v in vars(loaded).values() if isinstance(v, Tool))
    if not found:
        raise UsageError(f"--tools {module}: no function in it is marked with @tool")
    return found


def _load_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:  # last: what lies there may have the name of a library
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded
