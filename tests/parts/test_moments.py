"""No test waits by sleeping: it waits for the thing itself (``support.waiting``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOREVER_S = 10  # who sleeps so long never wakes: it is ended by what is tried
REASON = "# a moment:"  # where the time itself is what is tried, or that nothing comes in it
PLAYED = {TESTS / "attacks" / "cells", TESTS / "attacks" / "host"}  # code of attacks, not tests
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.While, ast.For, ast.AsyncFor)


def bare_sleeps(source: str) -> list[int]:
    """Return the lines with a sleep of fixed length that no loop repeats, without a reason."""
    lines = source.splitlines()
    return [
        call.lineno
        for call in _sleeps(ast.parse(source), looks_again=False)
        if isinstance(length := call.args[0], ast.Constant)
        and isinstance(length.value, (int, float))
        and 0 < length.value < FOREVER_S
        and REASON not in lines[(call.end_lineno or call.lineno) - 1]
    ]


def _sleeps(node: ast.AST, *, looks_again: bool) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        again = isinstance(child, LOOPS) or (looks_again and not isinstance(child, FUNCTIONS))
        if isinstance(child, ast.Call) and not again and child.args:
            name = getattr(child.func, "attr", getattr(child.func, "id", ""))
            if name == "sleep":
                yield child
        yield from _sleeps(child, looks_again=again)


def test_no_test_waits_by_sleeping() -> None:
    files = [path for path in TESTS.rglob("*.py") if not PLAYED & {*path.parents}]
    found = {str(path.relative_to(TESTS)): bare_sleeps(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert len(found) > 200


def test_a_bare_sleep_is_found_and_one_that_looks_again_is_none() -> None:
    assert bare_sleeps("async def test():\n    await asyncio.sleep(0.5)") == [2]
    assert bare_sleeps("while True:\n    def wait(): time.sleep(1)") == [2]
    assert bare_sleeps("while not here():\n    time.sleep(0.1)\nsleep(0)\nsleep(60)") == []
    assert bare_sleeps("time.sleep(1)  # a moment: nobody comes") == []
