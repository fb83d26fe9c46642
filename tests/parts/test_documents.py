"""What the documents say that can be looked up: links, files, options, settings, words, code."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import json
import re
import tomllib
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
from kernel_agent_extension.options import OPTIONS

from kernel_agent.cli.app import app
from kernel_agent.config import SETTINGS, load_config
from kernel_agent.config.table import VARIABLES
from kernel_agent.errors import how_to_install
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import Record

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "example_notebooks").rglob("*.md")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SOURCES = [path for room in ("kernel_agent", "extension") for path in (ROOT / room).rglob("*.py")]

FENCE = re.compile(
    r"^(?P<mark>```+)(?P<kind>\w*)\n(?P<body>.*?)^(?P=mark)$", re.MULTILINE | re.DOTALL
)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# Of pip, nbconvert, IPython, a benchmark and pytest.
FOREIGN = {"--no-deps", "--execute", "--profile-dir", "--peer", "--hypothesis-profile"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def blocks(page: Path, kind: str) -> list[str]:
    return [m["body"] for m in FENCE.finditer(page.read_text()) if m["kind"] == kind]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the headings: small letters, hyphens for blanks, no marks."""
    heads = re.findall(r"^#+ +(.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def rows(page: Path) -> dict[str, list[str]]:
    """Return the rows of tables that begin with names in backticks, by their first cell."""
    found = re.findall(r"^\| (`.+?`) \|(.*)\|$", page.read_text(), re.MULTILINE)
    between = re.compile(r"(?<=\s)\|(?=\s)")
    return {first: [cell.strip() for cell in between.split(rest)] for first, rest in found}


def commands(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    yield name, {option for each in command.params for option in each.opts} | {"--help"}
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}".strip())


COMMANDS = dict(commands(typer.main.get_command(app)))
OF_THE_MAGIC = {f"--{option.name}" for option in OPTIONS}


@every_page
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert "://" in target or there.exists(), target
        assert not anchor or "://" in target or anchor in anchors(there), target


@every_page
def test_every_file_of_the_project_that_is_named_exists(page: Path) -> None:
    names = re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:py|md|jsonl?|yaml|ipynb|js|sh))`", prose(page))
    of_a_run = {"specs/RUN.json"}
    places = [ROOT / folder for folder in ("", "kernel_agent", "kernel_agent/sandbox/microvm")]
    for name in set(names) - of_a_run:
        assert any((place / name).exists() for place in places), name


@every_page
def test_every_option_that_is_named_exists(page: Path) -> None:
    named = set(OPTION.findall(page.read_text()))
    assert named <= OF_THE_MAGIC.union(FOREIGN, *COMMANDS.values())


@every_page
def test_a_command_that_is_shown_has_the_options_that_it_is_shown_with(page: Path) -> None:
    shown = (
        "\n".join([*blocks(page, ""), *blocks(page, "console")]).replace("\\\n", " ").splitlines()
    )
    for line in [*shown, *re.findall(r"`(kernel-agent [^`]+)`", prose(page))]:
        if given := re.search(r"kernel-agent ([a-z]+)( [a-z]+)?\b(?!:)", line):
            name = next((n for n in (given[1] + (given[2] or ""), given[1]) if n in COMMANDS), None)
            assert name is not None, line
            assert set(OPTION.findall(line.partition(" #")[0])) <= COMMANDS[name], line


@every_page
def test_python_that_is_shown_compiles(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@every_page
def test_a_configuration_that_is_shown_is_read(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        (tmp_path / "shown.toml").write_text(block)
        load_config({"KERNEL_AGENT_CONFIG": str(tmp_path / "shown.toml")})


PAGE = ROOT / "docs/reference/settings.md"
OTHER_OPTIONS = {
    "data": "`--data`",
    "mcp": "`--mcp NAME`",
    "sql": "`--tools sql=NAME`",
}  # they name a configured one
OTHER_MAGICS = {"data": "`--data`", "mcp": "`--mcp`"}


def test_the_page_of_settings_says_what_the_table_says() -> None:
    """Of each setting its default and its options, and that the guide leads there."""
    told = {}
    table = {first: cells for first, cells in rows(PAGE).items() if len(cells) == 4}
    for first, (default, option, magic, _) in table.items():
        told[first.strip("`")] = (default.strip("`"), option, magic)
    for name, row in SETTINGS.items():
        value = row.default
        text = str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
        default = "none" if value in (None, (), {}) else text
        option = OTHER_OPTIONS.get(name, f"`{row.flag}`" if row.option else "")
        magic = f"`--{row.magic_name}`" if row.magic else OTHER_MAGICS.get(name, "")
        assert told[name] == (default, option, magic)
    assert set(told) == set(SETTINGS)
    assert "(reference/settings.md)" in (ROOT / "docs/settings.md").read_text()


def test_every_variable_that_is_read_is_on_the_page_of_settings() -> None:
    told = {first.strip("`"): cells for first, cells in rows(PAGE).items()}
    assert {name: told.get(name) for name in VARIABLES} == {n: [v] for n, v in VARIABLES.items()}
    found = re.compile(r"KERNEL_AGENT_[A-Z_]*[A-Z]")
    named = {name for path in SOURCES for name in found.findall(path.read_text())}
    assert named <= {*VARIABLES, *(row.variable for row in SETTINGS.values())}


def test_the_page_of_the_trace_has_each_record_with_its_fields_and_each_ending() -> None:
    page = ROOT / "docs/reference/run-folder.md"
    told = dict(
        re.findall(r"^### (\w+)$(.+?)(?=^#|\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    )
    for kind in kinds_within(Record):
        named = re.findall(r"^- `(\w+)`: ", told[kind.__name__], re.MULTILINE)
        assert [field.name for field in dataclasses.fields(kind)] == named, kind.__name__
    endings = {name.strip("`"): cells for name, cells in rows(page).items()}
    assert {str(e): [str(e.exit_code), e.sentence] for e in ExitStatus} == endings
    assert "(reference/run-folder.md)" in (ROOT / "docs/trace.md").read_text()


def kinds_within(kind: Any) -> set[type]:
    """Return the records that a type of annotation names, with those in their fields."""
    found: set[type] = set()
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        waiting += typing.get_args(each)
        if dataclasses.is_dataclass(each) and each not in found:
            assert isinstance(each, type)
            found.add(each)
            waiting += typing.get_type_hints(each).values()
    return found


def test_the_page_on_jupyter_has_each_option_of_the_magic() -> None:
    page = (ROOT / "docs/jupyter.md").read_text()
    assert [option.name for option in OPTIONS if f"`--{option.name}" not in page] == []


def test_the_page_of_installing_has_each_extra() -> None:
    told = {
        name for first in rows(ROOT / "docs/install.md") for name in re.findall(r"`(\w+)`", first)
    }
    assert set(EXTRAS) <= told


def test_the_readme_leads_to_every_page() -> None:
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()
    linked = set(
        re.findall(r"\(((?:reference/)?[\w-]+\.md)", (ROOT / "docs/README.md").read_text())
    )
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - {"README.md"} == linked


MOST_WORDS = {
    "README": 500,
    "SECURITY": 680,
    "CONTRIBUTING": 690,
    "docs/README": 170,
    "docs/approval": 300,
    "docs/command": 370,
    "docs/context": 210,
    "docs/delegation": 300,
    "docs/design": 1_100,
    "docs/evaluation": 420,
    "docs/every-month": 190,
    "docs/first-answer": 400,
    "docs/fixed": 540,
    "docs/folders": 340,
    "docs/formats": 410,
    "docs/how-a-run-works": 340,
    "docs/how-measured": 330,
    "docs/install": 330,
    "docs/jupyter": 540,
    "docs/mcp": 270,
    "docs/models": 240,
    "docs/notebook": 390,
    "docs/panel": 440,
    "docs/python": 410,
    "docs/ready-made-tools": 270,
    "docs/reference/glossary": 440,
    "docs/sandbox": 560,
    "docs/sandbox-internals": 540,
    "docs/sandbox-microvm": 340,
    "docs/sandboxed-kernel": 240,
    "docs/settings": 260,
    "docs/speed": 200,
    "docs/summary": 220,
    "docs/telemetry": 230,
    "docs/testing": 230,
    "docs/tools": 450,
    "docs/trace": 220,
    "docs/troubleshooting": 610,
    "docs/trust-a-notebook": 210,
    "docs/undo": 220,
    "docs/web": 210,
    "docs/what-holds": 720,
    "docs/what-leaves-your-machine": 400,
}
"""Counted is every word, those of commands and tables among them."""


@pytest.mark.parametrize("page", MOST_WORDS)
def test_a_page_stays_as_short_as_its_need(page: str) -> None:
    text = (ROOT / f"{page}.md").read_text()
    words = [word for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= MOST_WORDS[page]


QUOTED = re.findall(
    r"^### `([^`]+)`$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
)


@pytest.fixture(scope="module")
def literals() -> str:
    """Every text that stands in the sources; what a text fills in is an ellipsis."""
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    return "\n".join(text for tree in trees for node in ast.walk(tree) for text in texts_of(node))


def texts_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_that_is_explained_is_one_of_the_program(message: str, literals: str) -> None:
    """Its fixed words occur in the code; a colon may join two texts of it."""
    pieces = [piece.strip(" ()") for piece in re.split("…|: ", message)]
    assert [piece for piece in pieces if piece not in literals] == []
    assert max(len(piece.split()) for piece in pieces) > 2


def test_the_page_on_trouble_explains_enough_messages() -> None:
    assert len(QUOTED) >= 20


def test_a_message_that_tells_to_install_names_what_exists() -> None:
    """Packages that the project names, or extras of a clone: no index has the project itself."""
    told = [(path, path.read_text()) for path in SOURCES]
    asked = {name for _, text in told for name in re.findall(r"how_to_install\(['\"](\w+)", text)}
    assert {"data", "sql", "mcp", "otel", "interpreter", "eval", "dask"} <= asked <= set(EXTRAS)
    for extra in asked:
        names = sorted(EXTRAS[extra], key=canonical)
        words = " ".join(f"'{canonical(name)}'" for name in names)
        assert canonical(how_to_install(extra)) == f"pip install {words}"
    packages = {package_of(name) for one in EXTRAS.values() for name in one} | {"psycopg"}
    for path, text in [*told, *((page, page.read_text()) for page in PAGES)]:
        for line in re.findall(r"\bpip install (.+)", text):
            here = re.search(r"^(?:-e )?'?\.(?:\[([\w,]+)\])?", line)
            first = package_of(line.strip("'\""))
            held = set((here[1] or "").split(",")) <= {*EXTRAS, ""} if here else first in packages
            assert held or line.startswith("{"), f"{path}: {line}"


def canonical(words: str) -> str:
    return words.lower().replace("_", "-")


def package_of(requirement: str) -> str:
    found = re.match(r"[\w-]*", canonical(requirement))
    return found[0] if found else ""


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "kernel_agent").rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_an_example_in_a_docstring_gives_what_it_says(name: str) -> None:
    for example in doctest.DocTestFinder(exclude_empty=True).find(import_module(name)):
        if not re.search(r">>> .*\b(async|await)\b", example.docstring or ""):
            assert doctest.DocTestRunner().run(example).failed == 0, example.name


# --- figures, from the file in which they were written down ---------------------------------------

MEASURED = json.loads((ROOT / "benchmarks/results/latest.json").read_text())
FIGURES = {
    "start to the first result": ("start ours_ms median", "start start_new_async_kernel_ms median"),
    "`1+1` in a running kernel": (
        "round_trip ours_ms median",
        "round_trip execute_interactive_ms median",
    ),
    "what the loop adds to a step": ("overhead overhead_ms median",),
    "a call of a host tool": ("host_calls call_ms median", "host_calls text_1_mb_ms median"),
}
"""Of rows of the table: where each figure stands, by the words of the path to it."""


def figure(path: str) -> float:
    found: Any = MEASURED
    for word in path.split():
        found = found[word]
    return float(found)


@pytest.mark.parametrize("row", FIGURES)
def test_a_figure_of_the_page_of_speed_is_that_of_its_file(row: str) -> None:
    """As it stands there, rounded as far as it is shown."""
    (line,) = [
        x for x in (ROOT / "docs/speed.md").read_text().splitlines() if x.startswith(f"| {row}")
    ]
    shown = re.findall(r"\b(\d+(?:\.\d+)?) ms", line)
    assert len(shown) == len(FIGURES[row])
    for text, path in zip(shown, FIGURES[row], strict=True):
        decimals = len(text.partition(".")[2])
        assert f"{figure(path):.{decimals}f}" == text, f"{path}: {figure(path)}"


@pytest.mark.parametrize(
    ("page", "results", "paths"),
    [
        ("speed", "folders", ("hundred_thousand seconds", "hundred_thousand host_mb", "files")),
        (
            "speed",
            "levels",
            tuple(
                f"levels start_ms {level} median"
                for level in ("none", "bubblewrap", "namespaces", "landlock")
            ),
        ),
    ],
)
def test_a_figure_of_a_page_is_that_of_its_file(
    page: str, results: str, paths: tuple[str, ...]
) -> None:
    measured = json.loads((ROOT / f"benchmarks/results/{results}.json").read_text())
    text = (ROOT / f"docs/{page}.md").read_text()
    for path in paths:
        found: Any = measured
        for word in path.split():
            found = found[word]
        shown = f"{round(found, 1):,}".removesuffix(".0")
        assert re.search(rf"\b{re.escape(shown)}\b", text), f"{path}: {found}"
