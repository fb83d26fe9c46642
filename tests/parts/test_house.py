"""The house keeps its plan: rooms in one column of layers, entered through their faces.

The picture of it is in ``docs/design.md``. A room is a folder of ``kernel_agent``; its face is the
stub beside its ``__init__.py``, the one list of what other rooms may import from it.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "kernel_agent"

sys.path.insert(0, str(ROOT / "scripts"))
import rooms  # noqa: E402

DEPTH = {room: depth for depth, layer in enumerate(rooms.layers()) for room in layer}

# What may be imported when the package or its command line is: everything else waits for its use.
HEAVY = {
    "openai", "pandas", "numpy", "IPython", "matplotlib", "nbformat", "jupyter_client", "zmq",
    "opentelemetry", "jinja2",
}  # fmt: skip


class Import(NamedTuple):
    """One name that a module imports from another of ours."""

    by: Path
    room: str
    of: str
    module: str
    name: str


def sources() -> Iterator[tuple[str, Path]]:
    """Yield every module of ours with the room that it stands in."""
    for path in sorted(HOUSE.rglob("*.py")):
        first = path.relative_to(HOUSE).parts[0].removesuffix(".py")
        if first not in {"__init__", "__main__"}:
            yield first, path
    for path in sorted((ROOT / "extension").rglob("*.py")):
        yield "extension", path


@cache
def modules() -> frozenset[str]:
    """Return the dotted names of all modules."""
    parts = (p.relative_to(ROOT).with_suffix("").parts for p in HOUSE.rglob("*.py"))
    return frozenset(".".join(p for p in names if p != "__init__") for names in parts)


@cache
def imports() -> tuple[Import, ...]:
    """Return what each room imports of the others, wherever in a module."""
    return tuple(one for room, path in sources() for one in _imports(room, path) if one.of != room)


def _imports(room: str, path: Path) -> Iterator[Import]:
    for node in rooms.from_imports(path):
        if not node.level and node.module:
            parts = node.module.split(".")
            for alias in node.names:
                if parts[0] == "kernel_agent":
                    of = parts[1] if len(parts) > 1 else alias.name
                    yield Import(path, room, of, node.module, alias.name)
                elif parts[0] == "kernel_agent_extension":
                    yield Import(path, room, "extension", node.module, alias.name)


def face(room: str) -> dict[str, str]:
    """Return the names of a room's face, each with the module that it comes from."""
    stub = HOUSE / room / "__init__.pyi"
    lines = stub.read_text().splitlines() if stub.is_file() else ()
    return {line.split()[3]: line.split()[1] for line in lines if line.startswith("from .")}


ROOMS = sorted(path.name for path in HOUSE.iterdir() if (path / "__init__.py").is_file())


def test_every_room_has_its_place():
    """A new room needs a layer before it can import anything."""
    assert [room for room, _ in sources() if room not in DEPTH] == []


def test_the_picture_is_drawn_from_the_imports_of_today():
    """Otherwise: ``python scripts/rooms.py``."""
    assert rooms.PICTURE.read_text() == rooms.draw()


def test_imports_go_down_only_and_never_sideways():
    rising = [
        f"{one.by.relative_to(ROOT)} imports {one.module}"
        for one in imports()
        if one.of in DEPTH and DEPTH[one.room] >= DEPTH[one.of]
    ]
    assert rising == []


@cache
def files() -> dict[str, Path]:
    """Return the files of the package by their dotted names."""
    found = {}
    for path in HOUSE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def taken(name: str, path: Path) -> set[str]:
    """Return the files that one imports from, wherever in it, types alone included."""
    found = set()
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(rooms.tree(path)):
        if isinstance(node, ast.ImportFrom):
            above = here[: len(here) + 1 - node.level] if node.level else []
            of = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{of}.{alias.name}"
                found.add(whole if whole in files() else of)
    return found & files().keys() - {name}


def _ends(graph: dict[str, set[str]]) -> set[str]:
    """Return the files that import none, and those that none imports."""
    imported = set().union(*graph.values())
    return {name for name, of in graph.items() if not of or name not in imported}


def test_no_files_import_each_other_in_a_circle():
    """Files that import none of the others, or are imported by none, are taken away."""
    left = {name: taken(name, path) for name, path in files().items()}
    while free := _ends(left):
        left = {name: of - free for name, of in left.items() if name not in free}
    assert left == {}


# Where a room is entered past its face, each with its reason.
PAST_THE_FACE = {
    "kernel_agent.inkernel.values": "its limits and kinds, read as the module that they are",
    "kernel_agent.inkernel.smolagents": "its source is what is sent into the kernel",
    "kernel_agent.inkernel.delegate": "a call as cells make it, for the interpreter's",
    "kernel_agent.inkernel.local": "the kernel's own parts, for a kernel without a process",
    "kernel_agent.sandbox.microvm": "its command builds the machine",
    "kernel_agent.safe.marks": "the reaper starts by its path and imports little",
    "kernel_agent.safe.removal": "as marks",
    "kernel_agent.safe.walk": "as marks",
}


def test_rooms_are_entered_through_their_faces():
    past = set()
    for one in imports():
        whole = f"{one.module}.{one.name}"
        module = whole if whole in modules() else one.module
        if module.count(".") > 1 and module not in PAST_THE_FACE:
            past.add(f"{one.by.relative_to(ROOT)}: {module}")
    assert sorted(past) == []


@pytest.mark.parametrize("room", [room for room in ROOMS if face(room)])
def test_a_face_is_no_larger_than_what_is_asked_for_there(room):
    """And each of its names is there, and hides no module of the room."""
    found = __import__(f"kernel_agent.{room}", fromlist=["x"])
    assert [name for name in face(room) if not hasattr(found, name)] == []
    stems = {path.stem for path in (HOUSE / room).iterdir()}
    assert sorted(stems & face(room).keys()) == []
    public = {
        line.split()[3]
        for line in (HOUSE / "__init__.pyi").read_text().splitlines()
        if line.startswith(f"from .{room} ")
    }
    asked = {one.name for one in imports() if one.module == f"kernel_agent.{room}"} | public
    assert sorted(face(room).keys() - asked - beside(room) - SPARE.get(room, set())) == []


def beside(room: str) -> set[str]:
    """Return what the project's programs beside the package ask a room for."""
    return {
        alias.name
        for folder in ("benchmarks", "scripts")
        for path in (*(ROOT / folder).rglob("*.py"), HOUSE / "__main__.py")
        for node in ast.walk(rooms.tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == f"kernel_agent.{room}"
        for alias in node.names
    }


SPARE = {"formats": {"register"}, "records": {"Variable", "to_json"}}
"""Names that nobody here asks for: they are for users."""


def test_the_sandbox_could_leave_the_house():
    assert {one.of for one in imports() if one.room == "sandbox"} <= {
        "errors",
        "records",
        "safe",
        "face",
    }


def test_no_level_is_asked_for_by_its_name_outside_the_sandbox():
    """What differs between levels is a capability; a trace alone knows its level by name."""
    from kernel_agent.sandbox import MODULES

    asked = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for room, path in sources()
        if room not in ("sandbox", "records", "extension")
        for node in ast.walk(rooms.tree(path))
        if isinstance(node, ast.Compare)
        and any(isinstance(x, ast.Constant) and x.value in MODULES for x in ast.walk(node))
        and any(word in ast.unparse(node).lower() for word in ("level", "sandbox"))
    }
    assert sorted(asked) == []


def test_only_the_model_chooser_knows_the_offline_analyst():
    assert {one.by.name for one in imports() if one.of == "offline"} == {"model.py"}


def test_code_that_runs_in_the_kernel_imports_nothing_of_the_host():
    """It is loaded into a process that may not have this package."""
    assert [one for one in imports() if one.room == "inkernel"] == []


def test_relative_imports_are_for_code_that_is_loaded_under_another_name():
    for room, path in sources():
        relative = [node for node in rooms.from_imports(path) if node.level]
        assert not relative or room == "inkernel" or "guest" in path.parts, path


def _public(path: Path) -> Iterator[ast.AST]:
    """Yield a module, its public functions and classes, and their public methods."""
    yield rooms.tree(path)
    for node in rooms.tree(path).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or _is_overload(node):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            functions = ast.FunctionDef | ast.AsyncFunctionDef
            methods = (method for method in node.body if isinstance(method, functions))
            yield from (method for method in methods if not method.name.startswith("_"))


def _is_overload(node: ast.AST) -> bool:
    """Whether it only gives one more type to the function that follows."""
    return any(getattr(d, "id", "") == "overload" for d in getattr(node, "decorator_list", ()))


def test_public_names_are_documented():
    """The docstring of a module is its design; nothing public is left to guess."""
    bare = [
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'the module itself')}"
        for room, path in sources()
        if room != "inkernel"
        for node in _public(path)
        if not ast.get_docstring(node)
    ]
    assert bare == []


def test_every_exported_name_exists():
    """What ``from kernel_agent import *`` promises is there."""
    import kernel_agent

    assert [n for n in kernel_agent.__all__ if not hasattr(kernel_agent, n)] == []


HELP = """
import sys
from kernel_agent.cli.app import main
sys.argv = ["kernel-agent", "--help"]
try:
    main()
except SystemExit:
    pass
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import kernel_agent",
        "import kernel_agent.session.session",
        "from kernel_agent import Session, Budget, tool",
        "import kernel_agent.cli.app",
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
