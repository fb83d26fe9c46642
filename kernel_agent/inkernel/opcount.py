"""A cap on how much a cell computes: a counter in its syntax tree. A guard against mistakes.

An operation is one turn of a loop or comprehension of the cell, or one call of a function that a
cell defined; what libraries do inside is not counted. Each of them calls ``tick``, a C function
that takes the next item of an iterator: ``benchmarks/run.py guard`` has what that costs. (Counting
the same with ``sys.monitoring`` of Python 3.12, a callback in Python, takes several times as long.)

Not a boundary: code that wants to can rebind the counter, or compute in C.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

TICK = "_kernel_agent_tick"


class GuardError(RuntimeError):
    """A guard ended the cell."""


class Counting(ast.NodeTransformer):
    """Puts the counter into the loops, comprehensions and functions of a cell.

    Registered with IPython's ``ast_transformers``, which hands it each cell's tree; the source, and
    with it line numbers and tracebacks, stay what they are.

    Parameters
    ----------
    max_operations
        How many a cell may do.
    """

    def __init__(self, max_operations: int) -> None:
        self._max = max_operations

    def begin(self) -> None:
        """Start counting for a new cell."""
        setattr(builtins, TICK, counter(self._max))

    def _count(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        at = 0
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            at = 1
        tick = ast.Expr(_tick(node.body[0]))
        node.body.insert(at, ast.copy_location(tick, node.body[0]))
        return node  # type: ignore[no-any-return]  # it came as Any

    visit_For = visit_AsyncFor = visit_While = _count  # noqa: N815 - ast's names
    visit_FunctionDef = visit_AsyncFunctionDef = _count  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Count the calls of a lambda: ``tick() and value``, where ``tick()`` is true."""
        self.generic_visit(node)
        both = ast.BoolOp(op=ast.And(), values=[_tick(node.body), node.body])
        node.body = ast.copy_location(both, node.body)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """Count the turns of a comprehension: its first condition is the counter."""
        self.generic_visit(node)
        node.ifs.insert(0, _tick(node.iter))
        return node


def _tick(where: ast.AST) -> ast.Call:
    call = ast.Call(func=ast.Name(id=TICK, ctx=ast.Load()), args=[], keywords=[])
    ast.copy_location(call, where)
    ast.copy_location(call.func, where)
    return call


def counter(count: int) -> Callable[[], int]:
    """Return a function that is true so many times, and raises ever after."""
    return chain(repeat(1, times=count), _Over(count)).__next__


class _Over:
    """An iterator that raises each time (a generator would raise once, then just end)."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise GuardError(
            f"the cell did more than {self._count:,} operations (turns of loops and calls of "
            "functions that it defined), which is the limit. Do less, or use vectorised functions "
            "of a library."
        )
