"""The guard: a look at a cell's syntax tree before it runs. A **mistake guard, not a boundary**.

It tells a model that reaches for what the user did not mean to allow, before anything has run. It
reads code; it does not confine it. What is known to pass it: attributes whose names are computed
(``getattr(module, "o" + "s")`` is refused, ``vars(module)[name]`` and ``operator.attrgetter`` are
not), modules that an allowed package holds under another name, files that an allowed library opens
(``pandas.read_csv`` reads any file that the kernel can read), ``eval`` inside allowed libraries
(``pandas.eval``), pickles, C code. To confine hostile code, use a sandbox level.

Pure, but for IPython's own translation of magics and ``!commands`` into Python, which is why those
are seen, too. The cap on operations is counted where the cell runs:
:mod:`kernel_agent.inkernel.opcount`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

from kernel_agent.errors import UsageError
from kernel_agent.records import CellResult, not_run

NAME = "GuardError"

# Modules that are reached through allowed ones by mistake or to get around the list.
_REACHING = frozenset((
    "builtins", "ctypes", "importlib", "multiprocessing", "os", "pathlib", "pickle", "platform",
    "posix", "pty", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading",
    "urllib",
))  # fmt: skip
_CALLS = frozenset((
    "__import__", "__builtins__", "__loader__", "__spec__", "eval", "exec", "compile", "breakpoint",
    "get_ipython", "globals", "locals",
))  # fmt: skip
_DUNDERS = frozenset((
    "__base__", "__bases__", "__builtins__", "__closure__", "__code__", "__func__",
    "__getattribute__", "__globals__", "__import__", "__loader__", "__mro__", "__reduce__",
    "__reduce_ex__", "__self__",
    "__spec__", "__subclasses__", "__wrapped__", "ag_frame", "cr_frame", "f_back", "f_builtins",
    "f_globals", "f_locals", "gi_frame", "tb_frame",
))  # fmt: skip
_LINE_MAGICS = frozenset(("matplotlib", "precision"))
_TIMED = frozenset(("time", "timeit", "capture"))  # they run the Python that they are given
_BY_NAME = frozenset(("getattr", "setattr", "delattr", "hasattr"))


def check_guard(allowed: Sequence[str] | None, max_operations: int | None) -> None:
    """Check the user's settings of the guard.

    Raises
    ------
    UsageError
        The caller's: something that is not the name of a module, or a cap below one.
    """
    for name in allowed or ():
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(
                f"{name!r} is not the name of a module: name modules as in "
                "--guard-imports pandas,numpy,matplotlib"
            )
    if max_operations is not None and max_operations < 1:
        raise UsageError("--max-operations must be at least 1")


def guard_prompt(allowed: Sequence[str] | None, max_operations: int | None) -> str:
    """Return the guard's part of the system prompt; empty without a guard."""
    lines = []
    if allowed is not None:
        listed = ", ".join(sorted(allowed)) or "nothing"
        lines.append(
            f"- Cells may import: {listed}. A cell that imports or reaches anything else, runs a "
            "shell command or uses eval or exec is refused and not run."
        )
    if max_operations is not None:
        lines.append(
            f"- A cell may do {max_operations:,} turns of Python loops and calls of functions that "
            "it defines; prefer vectorised functions."
        )
    return "\n".join(["## Limits", "", *lines]) if lines else ""


def refusal(source: str, allowed: Sequence[str]) -> str:
    """Return why a cell is not run, as text for the model; empty when it may run.

    Called by the session before each cell, when a list was asked for. A cell that cannot be parsed
    is not refused: the kernel tells what is wrong with it.

    Parameters
    ----------
    source
        The cell as written; magics and ``!commands`` included.
    allowed
        Modules that may be imported. A package includes its submodules (``pandas`` allows
        ``pandas.plotting``); a submodule does not include its package (``os.path`` does not allow
        ``os``).
    """
    found = list(_Looking(allowed).problems(source))
    if not found:
        return ""
    listed = ", ".join(sorted(allowed)) or "nothing"
    return (
        f"{'; '.join(dict.fromkeys(found))}. Nothing was run. Imports that are allowed: {listed}."
    )


def refuse_cell(reason: str) -> CellResult:
    """Return the result of a cell that was not run."""
    return not_run(NAME, reason)


class _Looking:
    """Walks a cell's tree; knows which names stand for modules in this cell."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)
        self._modules: set[str] = set()

    def problems(self, source: str) -> Iterator[str]:
        tree = _tree(source)
        if tree is None:
            return
        magics = {id(call.func) for call in _magic_calls(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._modules |= {a.asname or a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                self._modules |= {alias.asname or alias.name for alias in node.names}
        ours = {
            id(inner) for call in _magic_calls(tree) for inner in ast.walk(call.func)
        }  # get_ipython() in a translated magic is judged as the magic
        for node in ast.walk(tree):
            if id(node) in magics or id(node) in ours:
                continue
            yield from self._problem(node)

    def _problem(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import(names=names):
                yield from (self._import(alias) for alias in names if self._import(alias))
            case ast.ImportFrom():
                yield from self._import_from(node)
            case ast.Call() if name := _magic_name(node):
                yield from self._magic(node, name)
            case ast.Call(func=ast.Name(id=name), args=[_, of, *_]) if name in _BY_NAME:
                if not isinstance(of, ast.Constant):
                    yield f"{name}() with a computed name is not allowed"
                elif of.value in _DUNDERS or of.value in _REACHING:
                    yield f"{name}(…, {of.value!r}) is not allowed"
            case ast.Name(id=name) if name in _CALLS:
                yield f"{name} is not allowed"
            case ast.Attribute(attr=attr) if attr in _DUNDERS:
                yield f"the attribute {attr} is not allowed"
            case ast.Attribute(attr=attr) if self._reaches(node):
                yield f"the module {attr} is not allowed, also not through another module"

    def _may(self, module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in self._allowed)

    def _import(self, alias: ast.alias) -> str:
        # `import os.path` binds `os`: without another name it is the package that must be allowed.
        bound = alias.name if alias.asname else alias.name.split(".")[0]
        if self._may(alias.name) and self._may(bound):
            return ""
        if self._may(alias.name):
            last = alias.name.rsplit(".", maxsplit=1)[-1]
            return (
                f"import {alias.name} binds {bound}, which is not allowed: write "
                f"import {alias.name} as {last}"
            )
        return f"the import of {alias.name} is not allowed"

    def _import_from(self, node: ast.ImportFrom) -> Iterator[str]:
        if node.level:
            yield "a relative import is not allowed"
            return
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if alias.name == "*":
                yield f"from {node.module} import * is not allowed: name what you import"
            elif not self._may(node.module or "") and not self._may(full):
                yield f"the import of {full} is not allowed"
            elif (
                alias.name in _REACHING and not self._may(alias.name) and full not in self._allowed
            ):
                yield f"the module {alias.name} is not allowed, also not through {node.module}"

    def _reaches(self, node: ast.Attribute) -> bool:
        """Whether ``pd.io.common.os`` leads from a module to one that is not allowed."""
        if (node.attr not in _REACHING and node.attr != "__dict__") or self._may(node.attr):
            return False
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id not in self._modules:
            return False
        return ast.unparse(node) not in self._allowed

    def _magic(self, node: ast.Call, name: str) -> Iterator[str]:
        texts = [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
        if name in ("system", "getoutput"):
            yield "a shell command (!…) is not allowed"
        elif texts and texts[0] in _TIMED:
            for code in texts[1:]:
                inner = _Looking(self._allowed)
                inner._modules |= self._modules
                yield from inner.problems(code)
        elif not texts or texts[0] not in _LINE_MAGICS:
            told = f"%{texts[0]}" if texts else "a magic"
            yield f"{told} is not allowed"


def _tree(source: str) -> ast.Module | None:
    """Return the tree of a cell, or None when the kernel will say what is wrong with it."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cell's own escapes: not ours to tell
            return ast.parse(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]  # IPython is untyped
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _magic_calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.Call) and _magic_name(n))


def _magic_name(node: ast.Call) -> str:
    """Return the method of ``get_ipython()`` that a translated magic calls; empty for none."""
    match node.func:
        case ast.Attribute(
            value=ast.Call(func=ast.Name(id="get_ipython"), args=[]),
            attr="run_line_magic" | "run_cell_magic" | "system" | "getoutput" as name,
        ):
            return name
    return ""
