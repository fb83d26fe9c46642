"""Which files a notebook makes itself, by what its code plainly says. Pure.

A notebook that ran leaves its files beside it. When it runs again, those that it makes must not be
there yet: ``%%writefile`` says "Overwriting" instead of "Writing", and ``os.path.exists`` is true.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

_WRITEFILE = re.compile(
    r"\A\s*%%(?:writefile|file)[ \t]+(?P<append>-a[ \t]+)?(?P<name>\S+)[ \t]*$", re.MULTILINE
)
_WRITES = frozenset(("savefig", "imsave", "savetxt", "ExcelWriter"))
_ASKS = frozenset(("exists", "isfile", "is_file", "isdir", "is_dir"))


def files_made(sources: Iterable[str]) -> set[str]:
    """Return the paths whose first use in the code is that they are written.

    Whether a file is there may be asked before. What is written only if the file is missing may
    have been there, and is not counted.
    """
    first: dict[str, bool] = {}
    for source in sources:
        for path, writes in _uses(source):
            first.setdefault(path, writes)
    return {path for path, writes in first.items() if writes}


def _uses(source: str) -> Iterator[tuple[str, bool]]:
    """Yield each path that a cell names, in order, and whether it is written there."""
    if magic := _WRITEFILE.match(source):
        yield _path(magic["name"].strip("'\"")), not magic["append"]
        return
    lines = (line for line in source.split("\n") if not line.lstrip().startswith(("%", "!")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cell's own escapes
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    written, asked = _write_targets(tree), _questions(tree)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    for node in sorted(constants, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node.value, str) and node not in asked:
            yield _path(node.value), node in written


def _write_targets(tree: ast.AST) -> set[ast.AST]:
    """Return the texts that name what is written, where no question decides on it."""
    guarded = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If | ast.IfExp | ast.Try) and _questions(branch)
        for node in ast.walk(branch)
    }
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n not in guarded]
    return {target for call in calls if (target := _target(call)) is not None}


def _target(call: ast.Call) -> ast.AST | None:
    name, function = _name(call), call.func
    if name in ("write_text", "write_bytes") and isinstance(function, ast.Attribute):
        made = function.value
        return made.args[0] if isinstance(made, ast.Call) and made.args else None
    first = call.args[0] if call.args else None
    if name == "open":
        modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
        mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else ""
        return first if isinstance(mode, str) and set(mode) & set("wx") else None
    return first if name in _WRITES or name.startswith("to_") else None


def _questions(tree: ast.AST) -> set[ast.AST]:
    """Return the texts of which the code only asks whether there is such a file."""
    found: set[ast.AST] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if _name(call) in _ASKS:
            found |= {node for node in ast.walk(call) if isinstance(node, ast.Constant)}
    return found


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _path(text: str) -> str:
    return str(PurePosixPath(text)) if len(text) < 1_000 else ""
