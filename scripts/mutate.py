"""Break the code in one place at a time, and see whether the unit tests notice.

``python scripts/mutate.py [--count 300] [--seed 1] [--near] [PART ...]`` takes a sample of the
places in the modules below, or in those whose path has a PART. Each mutant gets the unit tests
nearest to its module, then (without ``--near``) all others. It prints a diff of each that nobody
noticed, and a table of figures. A place is a comparison, a condition, an operator, a number, a
truth value, a returned value or a statement within a function. Words are left alone, since goldens
hold them, and so are the tables and bounds of modules.

Each mutant is a fork of this process, which has imported the libraries once.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib.abc
import importlib.util
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UNIT = ROOT / "tests" / "unit"
LOOKED_AT = (
    "agent/*.py", "formats/*.py", "formats/reading/*.py", "tools/policy.py",
    "notebook/comparison.py", "records/*.py",
)  # fmt: skip
LIBRARIES = (
    "hypothesis", "hypothesis.strategies", "pandas", "IPython", "nbformat", "pydantic", "PIL.Image",
    "jupyter_client", "pytest_asyncio", "rich.console", "json_repair",
)  # fmt: skip
CPU_S, TEST_CPU_S, WALL_S = 100, 15, 1200  # the slowest test takes 4
SURVIVED, KILLED = 0, 1

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    path: Path
    line: int
    before: str
    after: str

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)

    def diff(self) -> str:
        name = f"{self.path.relative_to(ROOT)}:{self.line}"
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), name, "", lineterm="", n=1
        )
        return "\n".join(lines)


# --- places ---------------------------------------------------------------------------------------


def mutants(path: Path) -> list[Mutant]:
    """Return all changes of a module that leave it a program."""
    source = path.read_text()
    found = []
    for node, text in _changes(ast.parse(source)):
        after = _replaced(source, node, text)
        with contextlib.suppress(SyntaxError):
            compile(after, str(path), "exec")
            found.append(Mutant(path, node.lineno, source, after))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield nodes within functions, each with the text to stand in its place."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    outer = [n for n in ast.walk(tree) if isinstance(n, functions)]
    inner = {id(below) for n in outer for below in ast.walk(n) if below is not n}
    for function in (n for n in outer if id(n) not in inner):
        for statement in function.body:
            for node in _within(statement):
                yield from _instead(node)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, but for types, docstrings and f-strings."""
    if isinstance(node, ast.JoinedStr):  # the places within have no true positions
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(
            node, ast.Call
        ):
            continue
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, ast.AST):
                yield from _within(below)


def _instead(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what may stand in place of a node, or of a condition in it."""
    match node:
        case ast.Compare(ops=[operator]) | ast.BoolOp(op=operator) | ast.BinOp(op=operator):
            if other := OTHER.get(type(operator)):
                yield node, f"({_with_operator(node, other())})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() | int() as value):
            yield node, str(not value) if isinstance(value, bool) else f"({value + 1})"
        case ast.stmt() | ast.IfExp():
            yield from _instead_of_statement(node)


def _instead_of_statement(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call):
                yield test, f"(not {ast.unparse(test)})"
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield node, "return None"
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.Continue() | ast.Break():
            yield node, "break" if isinstance(node, ast.Continue) else "continue"


def _with_operator(node: ast.AST, operator: ast.AST) -> str:
    changed = ast.parse(ast.unparse(node), mode="eval").body
    if isinstance(changed, ast.Compare):
        changed.ops = [operator]
    else:
        changed.op = operator
    return ast.unparse(changed)


def _replaced(source: str, node: ast.AST, text: str) -> str:
    lines = [line.encode() for line in source.splitlines(keepends=True)]  # columns are of bytes
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (head + text.encode() + tail).decode()


# --- tests ----------------------------------------------------------------------------------------


def nearest(module: str) -> list[Path]:
    """Return the unit tests that import a module, also through a face, or else its room."""
    room = ".".join(module.split(".")[:2])
    found = [path for path in unit_tests() if module in _asked_by(path)]
    return found or [
        path for path in unit_tests() if any(name.startswith(room) for name in _asked_by(path))
    ]


@cache
def unit_tests() -> tuple[Path, ...]:
    return tuple(sorted(UNIT.glob("test_*.py")))


@cache
def _asked_by(test: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(test.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernel_agent"):
            for alias in node.names:
                found |= {node.module, f"{node.module}.{alias.name}"}
                found.add(_faces().get((node.module, alias.name), ""))
    return frozenset(found)


@cache
def _faces() -> dict[tuple[str, str], str]:
    """Return where the names of the rooms' faces come from."""
    found = {}
    for stub in (ROOT / "kernel_agent").rglob("__init__.pyi"):
        room = ".".join(stub.parent.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(stub.read_text())):
            if isinstance(node, ast.ImportFrom):
                found |= {(room, a.name): f"{room}.{node.module}" for a in node.names}
    return found


# --- one mutant -----------------------------------------------------------------------------------


class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other source than its file's."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name, _path=None, _target=None):
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, self.mutant.path, loader=self)

    def exec_module(self, module) -> None:
        exec(compile(self.mutant.after, str(self.mutant.path), "exec"), module.__dict__)


class Patience:
    """Ends the process in a test that goes on without end."""

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)


def start(first: list[Path], mutant: Mutant | None = None, *, near: bool) -> int:
    """Fork a process that tests a mutant, and ends with SURVIVED or KILLED; return its pid."""
    if pid := os.fork():
        return pid
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    signal.alarm(WALL_S)
    if mutant is not None:  # what fails with nothing broken is to be seen
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, Broken(mutant))
    rest = [] if near else [path for path in unit_tests() if path not in first]
    result = SURVIVED
    for paths in (first, rest):
        if paths and result == SURVIVED:
            result = KILLED if _pytest(paths) else SURVIVED
    os._exit(result)


def _pytest(paths: list[Path]) -> int:
    return pytest.main(
        ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning",
         "--hypothesis-profile=quick", *map(str, paths)],
        plugins=[Patience()],
    )  # fmt: skip


def killed(chosen: list[Mutant], *, jobs: int, near: bool) -> Iterator[tuple[Mutant, bool]]:
    """Test them, so many at a time; what runs without end is noticed, too."""
    waiting, running = list(reversed(chosen)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[start(nearest(mutant.module), mutant, near=near)] = mutant
        pid, status = os.wait()
        yield running.pop(pid), status != SURVIVED


def sample(count: int, seed: int, parts: list[str]) -> list[Mutant]:
    """Choose mutants of the modules looked at, or of those with a part in their path.

    A path begins with the room: within ``kernel_agent/``, ``agent/`` would be in each of them.
    """
    house = ROOT / "kernel_agent"
    parts = [part.removeprefix("kernel_agent/") for part in parts]
    paths = [path for pattern in LOOKED_AT for path in sorted(house.glob(pattern))]
    every = [
        mutant
        for path in paths
        if not parts or any(part in str(path.relative_to(house)) for part in parts)
        for mutant in mutants(path)
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def prepare() -> None:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp(prefix="mutants-")
    sys.dont_write_bytecode = False  # that of the tests, which are imported again and again
    for name in LIBRARIES:
        importlib.import_module(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true")
    asked = parser.parse_args()
    prepare()
    chosen = sample(asked.count, asked.seed, asked.parts)
    first = sorted({path for mutant in chosen for path in nearest(mutant.module)})
    if os.waitpid(start(first, near=asked.near), 0)[1] != SURVIVED:
        print("the unit tests fail with nothing broken")
        return 2
    report(killed(chosen, jobs=os.cpu_count() or 1, near=asked.near), len(chosen))
    return 0


def report(tested: Iterator[tuple[Mutant, bool]], count: int) -> None:
    """Print what nobody noticed as it comes, then the table; an interrupt ends it early."""
    lived, died = Counter(), Counter()
    with contextlib.suppress(KeyboardInterrupt):
        for mutant, noticed in tested:
            (died if noticed else lived)[str(mutant.path.relative_to(ROOT))] += 1
            if not noticed:
                print(mutant.diff(), end="\n\n", flush=True)
    for name in sorted(lived | died):
        print(f"{died[name]:4} of {died[name] + lived[name]:4}  {name}")
    tried = (died + lived).total()
    if tried < count:
        print(f"interrupted after {tried} of {count}")
    print(f"{died.total()} of {tried} noticed: {died.total() / max(tried, 1):.0%}")


if __name__ == "__main__":
    sys.exit(main())
