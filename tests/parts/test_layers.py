"""The package keeps its shape: imports go down, public names are documented, importing is light.

The rows are those of the design document. A module imports rows below its own, and neighbours in
its own row unless they are in "outside": those meet in the session, its runner and executor only.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "kernel_agent", ROOT / "extension" / "kernel_agent_extension")

ROWS = {  # from top to bottom; a name is a module or a package with everything in it
    "front ends": [
        "kernel_agent",
        "__main__",
        "cli",
        "asking",
        "prompting",
        "trusting",
        "evaluating",
        "doctor",
        "kernelspec",
        "live",
        "view",
        "extension",
        "adapters",
    ],
    "wiring": [
        "evaluation",
        "session",
        "assembly",
        "named",
        "delegation",
        "exchange",
        "executor",
        "run",
        "runner",
        "pipeline",
        "workspace",
        "undo",
        "telemetry",
        "notebook.export",
        "notebook.verify",
    ],
    "loop": ["agent"],
    "outside": [
        "models",
        "kernel",
        "sandbox",
        "tools",
        "trace",
        "inputs",
        "given",
        "background",
    ],
    "pure": [
        "formats",
        "context",
        "summary",
        "variables",
        "budget",
        "notebook",
        "config",
        "trust",
        "obeyed",
        "kinds",
        "pictures",
        "undone",
        "displays",
        "tracebacks",
        "lineage",
        "opening",
        "text",
        "gate",
        "decisions",
        "untrusted",
        "turn",
        "looks",
    ],
    "words": [
        "records",
        "errors",
        "private",
        "beneath",
        "inside.values",
        "inside.room",
        "inside.foreign",
        "inside.answers",
        "codec",
    ],
}
# What may be imported when the package or its command line is: everything else waits for its use.
HEAVY = {
    "openai", "pandas", "numpy", "IPython", "matplotlib", "nbformat", "jupyter_client", "zmq",
    "opentelemetry",
}  # fmt: skip


def modules() -> dict[str, Path]:
    """Return every module of ours by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(p for p in parts if p != "__init__")] = path
    return found


MODULES = modules()


def part(module: str) -> str:
    """Return the entry of ROWS that a module belongs to."""
    if module.split(".", maxsplit=1)[0] == "kernel_agent_extension":
        return "extension"
    inside = module.removeprefix("kernel_agent.")
    parts = [name for row in ROWS.values() for name in row]
    return next((p for p in parts if f"{inside}.".startswith(f"{p}.")), "")


def row(module: str) -> int:
    """Return how far down a module stands."""
    return next(i for i, names in enumerate(ROWS.values()) if part(module) in names)


def imports(module: str) -> Iterator[str]:
    """Return the modules of ours that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                # What runs inside the kernel, or a machine, is loaded there under another name.
                assert ".inside" in module or ".guest." in module, f"{module} has a relative import"
                continue
            base = node.module or ""
            names = [
                f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names
            ]
        else:
            continue
        yield from (n for n in names if n.split(".")[0].startswith("kernel_agent") and n in MODULES)


HELP = """
import sys
from kernel_agent.cli import main
sys.argv = ["kernel-agent", "--help"]
try:
    main()
except SystemExit:
    pass
"""

# An empty package marker belongs to no row, and what runs inside the kernel has its own rule.
PLACED = [
    m for m, path in MODULES.items() if ".inside" not in m and path.read_text().count("\n") > 1
]


@pytest.mark.parametrize("module", PLACED)
def test_every_module_has_its_place(module):
    """A new module needs a row in the design before it can import anything."""
    assert part(module), f"{module} stands in no row of the design"


@pytest.mark.parametrize("module", PLACED)
def test_imports_go_downwards_only(module):
    """And the parts that touch the world outside never import each other."""
    for imported in imports(module):
        if part(imported) == part(module):
            continue
        assert row(imported) >= row(module), f"{module} imports {imported}, which is above it"
        if part(module) in ROWS["outside"]:
            assert part(imported) not in ROWS["outside"], f"{module} imports {imported} sideways"


@pytest.mark.parametrize("module", [m for m in MODULES if ".inside" in m])
def test_code_that_runs_in_the_kernel_imports_nothing_of_the_host(module):
    """It is loaded into a process that may not have this package."""
    outside = {m for m in imports(module) if ".inside" not in m}
    assert not outside


def public(module: str) -> Iterator[ast.AST]:
    """Return a module, its public functions and classes, and their public methods."""
    tree = ast.parse(MODULES[module].read_text())
    yield tree
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_") or _is_overload(node):
                continue
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    method
                    for method in node.body
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not method.name.startswith("_")
                )


def _is_overload(node: ast.AST) -> bool:
    """Whether it only gives one more type to the function that follows."""
    return any(getattr(d, "id", "") == "overload" for d in getattr(node, "decorator_list", ()))


@pytest.mark.parametrize("module", PLACED)
def test_public_names_are_documented(module):
    """The docstring of a module is its design; nothing public is left to guess."""
    for node in public(module):
        name = getattr(node, "name", "the module itself")
        assert ast.get_docstring(node), f"{module}: {name} has no docstring"


def test_every_exported_name_exists():
    """What ``from kernel_agent import *`` promises is there."""
    import kernel_agent

    assert [n for n in kernel_agent.__all__ if not hasattr(kernel_agent, n)] == []


@pytest.mark.parametrize(
    "statement",
    [
        "import kernel_agent",
        "import kernel_agent.session",
        "from kernel_agent import Session, Budget, tool",
        "import kernel_agent.cli",
        HELP,
    ],
)
def test_importing_is_light(statement):
    """Neither the package nor its command line loads what a run may not need."""
    probe = f"{statement}\nimport sys, json; print('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & HEAVY
