"""Turn a call of ``%agent`` into Python: any text as the question, an awaited call if possible.

Two input transformers (https://ipython.readthedocs.io/en/stable/config/inputtransforms.html). The
first keeps questions whole: IPython takes a line that ends in ``word?`` for a call for help. The
second runs last: at the top level of a notebook's cell it makes the call an awaited one, so that
the cell waits without holding the kernel, which goes on to hear the stop button. Everywhere else
(in a function, a lambda, under ``%%time``) the call stays as it is, and blocks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

MAGIC = "agent"
AWAITED = "agent_awaited"
"""The magic that gives what the cell can wait for; never written by a person."""

_LINE = re.compile(
    r"(?P<before>[ \t]*(?:[^\s%#=][^%#=]*=[ \t]*|return[ \t]+)?)%agent[ \t]+(?P<task>\S.*)"
)
_CALLS = ("run_line_magic", "run_cell_magic")


def keep_questions(lines: list[str]) -> list[str]:
    r"""Make the calls of ``%agent`` plain Python before IPython reads the cell.

    Examples
    --------
    >>> keep_questions(["x = %agent What's this?\n"])
    ['x = get_ipython().run_line_magic(\'agent\', "What\'s this?")\n']
    """
    if lines and lines[0].startswith("%%"):
        return lines
    return [_write_call(line) for line in lines]


def _write_call(line: str) -> str:
    match = _LINE.match(line.rstrip())
    if match is None:
        return line
    return f"{match['before']}get_ipython().run_line_magic({MAGIC!r}, {match['task']!r})\n"


class AwaitCalls:
    """Makes the calls at the top level of a cell awaited ones.

    Cells that run within another (``%%time``, ``%%capture``, ``run_cell``) are left alone: there is
    nobody who could wait.

    Parameters
    ----------
    shell
        The IPython of a notebook's kernel.
    """

    def __init__(self, shell: Any) -> None:
        self._running = False
        shell.events.register("pre_execute", self._begin)
        shell.events.register("post_execute", self._end)

    def _begin(self) -> None:
        self._running = True

    def _end(self) -> None:
        self._running = False

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell with its calls awaited."""
        return lines if self._running else await_calls(lines)


def await_calls(lines: list[str]) -> list[str]:
    r"""Return a cell in which calls of the magic are awaited where Python allows it.

    Examples
    --------
    >>> await_calls(["x = get_ipython().run_line_magic('agent', 'Why?')\n"])
    ["x = (await get_ipython().run_line_magic('agent_awaited', 'Why?'))\n"]
    >>> await_calls(["def f():\n", "    return get_ipython().run_line_magic('agent', 'Why?')\n"])[1]
    "    return get_ipython().run_line_magic('agent', 'Why?')\n"
    """
    source = "".join(lines)
    if MAGIC not in source or not any(call in source for call in _CALLS):
        return lines
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return lines
    # From the last to the first, so that the places before stay where they are.
    data = [line.encode() for line in source.splitlines(keepends=True)]
    for call in sorted(_calls(tree), key=lambda c: (c.lineno, c.col_offset), reverse=True):
        _await(data, call)
    return b"".join(data).decode().splitlines(keepends=True)


_BODIES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Syntax that may not be asynchronous, or would become so."""


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of the magic that may be awaited, as IPython has written them."""
    if isinstance(node, _BODIES):
        return
    if _is_call(node):
        assert isinstance(node, ast.Call)
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _is_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CALLS
        and isinstance(node.func.value, ast.Call)
        and isinstance(node.func.value.func, ast.Name)
        and node.func.value.func.id == "get_ipython"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == MAGIC
    )


def _await(data: list[bytes], call: ast.Call) -> None:
    name = call.args[0]
    assert call.end_lineno is not None
    assert call.end_col_offset is not None
    assert name.end_col_offset is not None
    end, at = call.end_lineno - 1, call.end_col_offset
    data[end] = data[end][:at] + b")" + data[end][at:]
    row, start, stop = name.lineno - 1, name.col_offset, name.end_col_offset
    data[row] = data[row][:start] + repr(AWAITED).encode() + data[row][stop:]
    row, start = call.lineno - 1, call.col_offset
    data[row] = data[row][:start] + b"(await " + data[row][start:]
