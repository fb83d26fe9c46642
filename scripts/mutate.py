"""Break the code in one place at a time, and see whether the unit tests notice.

``python scripts/mutate.py [--count 300] [--seed 1] [--near] [PART ...]`` takes a sample of the
places in the modules below, or in those whose path has a PART. Each mutant gets the unit tests
that run its function, as a first run of all shows. Where none does, or an import runs it too, it
gets all others besides (without ``--near``). It prints a diff of each that nobody noticed, and a
table of figures. A place is a comparison, a condition, an operator, a number, a
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
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
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
    """A module with one change, in a function that stands in these lines."""

    path: Path
    line: int
    function: range
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
    for function, node, text in _changes(ast.parse(source)):
        after = _replaced(source, node, text)
        with contextlib.suppress(SyntaxError):
            compile(after, str(path), "exec")
            first = min(part.lineno for part in (function, *function.decorator_list))
            lines = range(first, function.end_lineno + 1)
            found.append(Mutant(path, node.lineno, lines, source, after))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, str]]:
    """Yield functions with a node in each, and the text to stand in its place."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    outer = [n for n in ast.walk(tree) if isinstance(n, functions)]
    inner = {id(below) for n in outer for below in ast.walk(n) if below is not n}
    for function in (n for n in outer if id(n) not in inner):
        for statement in function.body:
            for node in _within(statement):
                yield from ((function, *change) for change in _instead(node))


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


class Watch:
    """Notes, while nothing is broken, which functions each test runs and what it takes.

    What runs before any test, or for a whole module of tests, is noted under no test's name.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._files = frozenset(map(str, paths))
        self._test, self._began = "", 0.0
        self.ran: dict[tuple[str, int], set[str]] = {}
        self.seconds: dict[str, float] = {}
        sys.settrace(self._note)
        threading.settrace(self._note)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test, self._began = nodeid, time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._test, self.seconds[nodeid] = "", time.process_time() - self._began

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef) -> Iterator[None]:
        test, self._test = self._test, self._test if fixturedef.scope == "function" else ""
        yield
        self._test = test

    def _note(self, frame, _event, _argument) -> None:
        code = frame.f_code
        if code.co_filename in self._files:
            self.ran.setdefault((code.co_filename, code.co_firstlineno), set()).add(self._test)


@dataclass(frozen=True)
class Plan:
    """Which tests run which functions."""

    ran: dict[tuple[str, int], set[str]]
    seconds: dict[str, float]

    def tests(self, mutant: Mutant) -> tuple[list[str], bool]:
        """Return the tests that run the place, file by file, quick ones first.

        And whether that is all: not where no test runs it, or an import does.
        """
        found = set[str]()
        for (path, line), tests in self.ran.items():
            if path == str(mutant.path) and line in mutant.function:
                found |= tests
        named = found - {""}
        took = Counter[str]()
        for test in named:
            took[_file(test)] += self.seconds[test]
        return sorted(named, key=lambda test: (took[_file(test)], test)), found == named != set()


def _file(test: str) -> str:
    return test.partition("::")[0]


class Only:
    """Lets pytest run no other tests than these."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._tests = frozenset(tests)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._tests]


class Patience:
    """Ends the process in a test that goes on without end."""

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)


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


def start(job: Callable[[], int]) -> int:
    """Fork a process that ends with what the job returns, and within limits; return its pid."""
    if pid := os.fork():
        return pid
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    signal.alarm(WALL_S)
    os._exit(job())


def watch(paths: Iterable[Path]) -> Plan | None:
    """Run all tests with nothing broken; None when some fail, which is to be seen."""
    with tempfile.NamedTemporaryFile() as kept:

        def job() -> int:
            seen = Watch(paths)
            failed = _pytest([str(UNIT)], seen)
            Path(kept.name).write_bytes(pickle.dumps((seen.ran, seen.seconds)))
            return failed

        if os.waitpid(start(job), 0)[1] != 0:
            return None
        return Plan(*pickle.loads(Path(kept.name).read_bytes()))


def test(mutant: Mutant, plan: Plan, *, near: bool) -> int:
    """Return SURVIVED or KILLED."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.meta_path.insert(0, Broken(mutant))
    first, whole = plan.tests(mutant)
    files = list(dict.fromkeys(map(_file, first)))
    if first and _pytest(files, Only(first)):
        return KILLED
    if whole or near:
        return SURVIVED
    return KILLED if _pytest([str(UNIT)], Only(plan.seconds.keys() - set(first))) else SURVIVED


def _pytest(paths: list[str], *plugins: object) -> bool:
    """Whether a test failed, or could not be collected."""
    code = pytest.main(
        ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning",
         "--hypothesis-profile=quick", *paths],
        plugins=[Patience(), *plugins],
    )  # fmt: skip
    return code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def killed(
    chosen: list[Mutant], plan: Plan, *, jobs: int, near: bool
) -> Iterator[tuple[Mutant, bool]]:
    """Test them, so many at a time; what runs without end is noticed, too."""
    waiting, running = list(reversed(chosen)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[start(partial(test, mutant, plan, near=near))] = mutant
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
    plan = watch({mutant.path for mutant in chosen})
    if plan is None:
        print("the unit tests fail with nothing broken")
        return 2
    report(killed(chosen, plan, jobs=os.cpu_count() or 1, near=asked.near), len(chosen))
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
