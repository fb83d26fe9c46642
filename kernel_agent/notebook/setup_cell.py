"""The first code cell of an exported notebook, and the module of replays beside it. Pure.

The cell has at most ten lines: a PEP 723 block (https://peps.python.org/pep-0723/), which ``juv``
and ``uv`` read in the first code cell, with the versions that the run had; ``final_answer``; and
what else the run found in its kernel and plain Jupyter does not have. A tool that gave a simple
value for each argument is a line of its own, and so are the texts that cells reopen, so that a
notebook travels alone. Anything longer is in ``replay.py`` beside the notebook; where that is
missing, the cell says so.
"""

from __future__ import annotations

import ast
import inspect
import json
import keyword
import math
import pprint
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.inkernel import no_answer
from kernel_agent.notebook import preamble
from kernel_agent.records import HostCall, Json, as_text, error_output, role_of
from kernel_agent.safe import one_line

MAX_OUTPUT_TEXT = 200_000  # characters of one recorded text that the notebook carries
MAX_LINES = 10  # of the cell
MAX_LITERAL = 160  # characters of a line with a tool's values
MAX_OUTPUTS_LINE = 4_000  # characters of the line with texts that cells reopen
REPLAY = "replay"  # the module beside the notebook, without its ending
MARK = '"""What the host gave in a run, for the notebook beside this file. Made by kernel-agent.'
"""The first line of a module of replays, by which it is known."""
REPEATED = "final_answer was called already"

_FINAL_ANSWER = (
    "def final_answer(value, note=''):  # shows the answer, as in the run\n"
    '    display(value if (rich := not isinstance(value, str)) else {"text/plain": value}, '
    "raw=not rich)"
)

# Where the name on the package index is not the name that is imported.
_DISTRIBUTIONS = {
    "bs4": "beautifulsoup4", "cv2": "opencv-python", "dateutil": "python-dateutil",
    "PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML",
}  # fmt: skip
# What pandas imports when a method is called: no cell names it.
_IMPLIED = (
    (re.compile(r"\.(?:plot|hist|boxplot)\b|%matplotlib"), "matplotlib"),
    (re.compile(r"\b(?:read|to)_(?:parquet|feather|orc)\b|['\"\[]pyarrow\b"), "pyarrow"),
    (re.compile(r"\bread_excel\b|\bto_excel\b|\bExcel(?:Writer|File)\b"), "openpyxl"),
    (re.compile(r"\bread_(?:html|xml)\b|\bto_xml\b"), "lxml"),
    (re.compile(r"\bto_markdown\b"), "tabulate"),
    (re.compile(r"\.style\b|\bto_latex\b"), "Jinja2"),
    (re.compile(r"\b(?:read|to)_hdf\b|\bHDFStore\b"), "tables"),
    (re.compile(r"['\"](?:spearman|kendall|kde|density)['\"]|\.interpolate\(|\.kde\("), "scipy"),
)
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([\w.]+)", re.MULTILINE)
_VERSION = re.compile(r"[\w.!+-]{1,60}")
# ipykernel lets such a cell go on, and ends the kernel; in a run it ends the cell.
_EXIT = 'get_ipython().ask_exit = __import__("sys").exit  # exit() ends a cell, as in the run'
_EXITS = re.compile(r"(?<![\w.])(?:exit|quit)\b")
_OUTPUTS_USED = re.compile(r"\boutputs\b")
_OUTPUTS_OF = re.compile(r"\boutputs\s*\[\s*(\d+)\s*\]")
_CODE_OF = re.compile(r"\boutputs\s*\.\s*code\s*\(\s*(\d+)\s*\)")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The source of the first code cell, and of the module beside it, empty when none is needed."""

    cell: str
    replay: str = ""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What the cells of a notebook need that plain Jupyter does not have.

    Parameters
    ----------
    sources
        The cells that will run.
    versions
        What was installed in the run: version by distribution name, and ``python``.
    texts
        The full text of each step's output, for cells that read ``outputs``.
    codes
        The code of each step, for cells that read ``outputs.code``.
    calls
        What those cells had called, in order.
    tools
        Tools that their code names, called or not.
    docs
        What ``help`` said of them, by name.
    strict
        Whether ``final_answer`` refused or ignored what a cell that will run gave it.
    read
        The files of folders of data that they opened, by their paths beside the notebook.
    """

    sources: Sequence[str]
    versions: Mapping[str, str]
    texts: Mapping[int, str]
    codes: Mapping[int, str] = field(default_factory=dict)
    calls: Sequence[HostCall] = ()
    tools: Sequence[str] = ()
    docs: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    read: Sequence[str] = ()


def make_setup(needs: Needs, *, module: str = REPLAY) -> Setup:
    """Return the cell and the module for cells that will run.

    Parameters
    ----------
    needs
        What they need.
    module
        The name of the module.
    """
    answers = any(re.search(r"\bfinal_answer\b", source) for source in needs.sources)
    short = _FINAL_ANSWER if answers and not needs.strict else ""
    leaving = _EXIT if any(map(_EXITS.search, needs.sources)) else ""
    outputs = _used_outputs(needs)
    recorded = _by_name(needs.calls, needs.tools)
    docs = {name: needs.docs[name] for name in _read_docs(needs) if name in recorded}
    literals = list(_literals(outputs, recorded, needs.sources))
    strict = answers and needs.strict
    needed = _needed_files(needs.read)
    room = MAX_LINES - 4 - short.count("\n") - bool(short) - bool(needed) - bool(leaving)
    if not (strict or docs) and len(literals) <= room and all(literals):
        replay, lines = "", literals
    else:
        names = ["final_answer"] * strict + [*recorded] + ["outputs"] * outputs.used
        replay = _replay_source(outputs, recorded, docs, strict=strict)
        lines = _import_lines(module, names)
    more = ["import pyarrow"] if "'arrow': " in replay else []  # to rebuild tables
    block = _script_block([*needs.sources, *more], needs.versions)
    return Setup(
        cell="\n".join([block, *filter(None, [needed, short, leaving]), *lines]), replay=replay
    )


def is_bare_setup(cell: Mapping[str, Any]) -> bool:
    """Whether a cell is the first of an export, and gives nothing that a session has not itself."""
    left = as_text(cell.get("source")).replace(_FINAL_ANSWER, "").replace(_EXIT, "")
    is_bare = all(line.startswith("#") for line in left.split("\n") if line.strip())
    return role_of(cell) == "environment" and is_bare


def _needed_files(paths: Sequence[str]) -> str:
    """Return a comment that names the files of folders of data; empty without any."""
    if not paths:
        return ""
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    told = one_line(f"{', '.join(paths[:3])}{more}", 300)
    return f"# Reads {told} beside this notebook: `kernel-agent export --with-data` copies them"


def _import_lines(module: str, names: Sequence[str]) -> list[str]:
    told = f"{module}.py is missing: put it beside this notebook"
    return [
        "try:",
        f"    from {module} import {', '.join(names)}  # what the run's host gave",
        "except ModuleNotFoundError:",
        f'    raise FileNotFoundError("{told}") from None',
    ]


def _by_name(calls: Sequence[HostCall], names: Iterable[str]) -> dict[str, list[dict[str, Json]]]:
    """Return what each tool was asked and gave, in order; nothing for one that is only named."""
    by_name: dict[str, list[dict[str, Json]]] = {n: [] for n in names if is_name(n)}
    for call in calls:
        if is_name(call.name):
            by_name.setdefault(call.name, []).append(_record_call(call))
    return by_name


def _literals(
    outputs: _Outputs,
    recorded: Mapping[str, Sequence[dict[str, Json]]],
    sources: Sequence[str],
) -> Iterator[str]:
    """Yield a line for each name that the cells need; an empty one where it would be too long."""
    for name, calls in recorded.items():
        value = _simple_values(name, calls, sources)
        given = f"{value!r}.__getitem__"
        if name == "delegate":  # its data are not in the record
            given = f"lambda task, *_, **__: {value!r}[task]"
        line = f"{name} = {given}  # what it gave in the run"
        yield line if value and len(line) <= MAX_LITERAL else ""
    if outputs.used:
        line = f"outputs = {outputs.literal}"
        yield line if outputs.literal and len(line) <= MAX_OUTPUTS_LINE else ""


def _simple_values(
    name: str, calls: Sequence[dict[str, Json]], sources: Sequence[str]
) -> dict[Any, Json]:
    """Return what a tool gave by its only argument, where that says all; else nothing."""
    if any(re.search(rf"\b{name}\b", _without_calls(name, s)) for s in sources):
        return {}
    values: dict[Any, Json] = {}
    for call in calls:
        match call:
            case {"args": [bool() | int() | str() as given], "kwargs": {}, "result": result}:
                known = values.setdefault(given, result)
                simple = isinstance(result, str | int) or result is None or _is_finite(result)
                if not simple or repr(known) != repr(result):
                    return {}
            case _:
                return {}
    return values


def _without_calls(name: str, source: str) -> str:
    return re.sub(rf"\b{name}\(", "(", source)


def _is_finite(value: Json) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _replay_source(
    outputs: _Outputs,
    recorded: Mapping[str, Sequence[dict[str, Json]]],
    docs: Mapping[str, str],
    *,
    strict: bool,
) -> str:
    """Return the module: replays of the tools, the texts that cells reopen, a strict answer."""
    of_tools = bool({*recorded} - {"delegate"})
    answering: list[Callable[..., Any]] = [no_answer, preamble.final_answer] if strict else []
    failing: list[Callable[..., Any]] = [preamble.ToolError, preamble.failure] if of_tools else []
    replaying: list[Callable[..., Any]] = [preamble.compared, preamble.replayed]
    needed: list[Callable[..., Any]] = [
        *answering,
        *failing,
        *([preamble.revived] if recorded else []),
        *(replaying if of_tools else []),
        *([preamble.delegated] if "delegate" in recorded else []),
        *([preamble.Outputs] if outputs.used else []),
    ]
    lines = [f"{n} = {_replay(n, _literal(list(found)))}" for n, found in recorded.items()]
    lines += [f"{name}.__doc__ = {_literal(doc)}" for name, doc in docs.items()]
    if outputs.used:
        texts, codes = _literal(outputs.texts), _literal(outputs.codes)
        lines.append(f"# outputs[k] is what step k showed.\noutputs = Outputs({texts}, {codes})")
    head = (
        f'{MARK}\n\nIt calls no tool: what was recorded is given again.\n"""\n\n'
        "from __future__ import annotations\n\n"
        "from collections.abc import Callable\nfrom typing import Any"
    )
    parts = [head, *(inspect.getsource(part).rstrip() for part in needed), "\n\n".join(lines)]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def _replay(name: str, recorded: str) -> str:
    if name == "delegate":
        return f"delegated({recorded})"
    return f"replayed({name!r}, {recorded})"


def call_cell(call: HostCall) -> tuple[str, list[dict[str, Any]]]:
    """Return the cell that makes a host call again, and the output that it has then.

    For actions that are calls: the cell reads as the call that the model made, of a tool whose
    name is one (:func:`is_name`).
    """
    given = call.arguments if isinstance(call.arguments, Mapping) else {}
    args, kwargs = given.get("args"), given.get("kwargs")
    args = args if isinstance(args, list | tuple) else []
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    if all(is_name(key) for key in kwargs):
        asked = [*map(_literal, args), *(f"{key}={_literal(v)}" for key, v in kwargs.items())]
    else:
        asked = [*map(_literal, args), f"**{_literal(kwargs)}"]
    line = f"{call.name}({', '.join(asked)})"
    source = line if len(line) <= 88 else f"{call.name}(\n    " + ",\n    ".join(asked) + ",\n)"
    if not call.ok:
        return source, [_error_output(call.error)]
    if call.result is None:
        return source, []
    from IPython.lib.pretty import pretty

    data = {"text/plain": pretty(call.result)}  # type: ignore[no-untyped-call]  # IPython is untyped
    return source, [{"output_type": "execute_result", "data": data, "metadata": {}}]


def _error_output(error: str) -> dict[str, Any]:
    """Return the output of a cell in which a replay raises what the tool raised."""
    raised = preamble.failure(error)
    ename = type(raised).__name__
    return error_output(ename, str(raised), [f"{ename}: {raised}"])


def _script_block(sources: Sequence[str], versions: Mapping[str, str]) -> str:
    pinned = [f'"{name}=={version}"' for name, version in _find_distributions(sources, versions)]
    python = re.match(r"\d+\.\d+", versions.get("python", ""))
    lines = [f'# requires-python = ">={python[0]}"'] if python else []
    return "\n".join(["# /// script", *lines, f"# dependencies = [{', '.join(pinned)}]", "# ///"])


def _find_distributions(
    sources: Sequence[str], versions: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return name and version of the distributions that the cells import, and of ipykernel."""
    wanted = {"ipykernel"}
    for source in sources:
        wanted |= {_DISTRIBUTIONS.get(name, name) for name in _find_imports(source)}
        wanted |= {name for used, name in _IMPLIED if used.search(source)}
    normal = {_normal(name) for name in wanted}
    return sorted(
        (name, version)
        for name, version in versions.items()
        if _normal(name) in normal and _VERSION.fullmatch(name) and _VERSION.fullmatch(version)
    )


def _find_imports(source: str) -> set[str]:
    """Return the top-level names that a cell imports; magics and broken code do not matter."""
    plain = "\n".join(x for x in source.split("\n") if not x.lstrip().startswith(("%", "!")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cell's own escapes: not ours to tell
            tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {name.split(".")[0] for name in _IMPORT.findall(source)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """What of ``outputs`` the cells need: texts and codes by step; ``plain`` where that is all."""

    plain: bool
    texts: dict[int, str]
    codes: dict[int, str]

    @property
    def used(self) -> bool:
        return bool(self.texts or self.codes)

    @property
    def literal(self) -> str:
        """An expression for it; empty where it is used in other ways, too."""
        if not self.plain:
            return ""
        if not self.codes:
            return repr(self.texts)
        return f'type("Outputs", (dict,), {{"code": {self.codes!r}.__getitem__}})({self.texts!r})'


def _used_outputs(needs: Needs) -> _Outputs:
    """Return what cells reopen: the steps that they name, or all when one is computed."""
    used = [source for source in needs.sources if _OUTPUTS_USED.search(source)]
    texts = {int(k) for source in used for k in _OUTPUTS_OF.findall(source)}
    codes = {int(k) for source in used for k in _CODE_OF.findall(source)}
    rest = [_CODE_OF.sub("", _OUTPUTS_OF.sub("", source)) for source in used]
    others = any(map(_OUTPUTS_USED.search, rest))
    all_codes = any(re.search(r"\bcode\b", source) for source in rest if others)
    return _Outputs(
        plain="is_whole" not in "".join(rest),
        texts={k: v[:MAX_OUTPUT_TEXT] for k, v in needs.texts.items() if others or k in texts},
        codes={k: v for k, v in needs.codes.items() if (others and all_codes) or k in codes},
    )


def _read_docs(needs: Needs) -> list[str]:
    """Return the tools whose description a cell reads."""
    return [
        name
        for name in needs.docs
        if any(re.search(rf"\b{re.escape(name)}\.__doc__\b", s) for s in needs.sources)
    ]


def _record_call(call: HostCall) -> dict[str, Json]:
    given = call.arguments if isinstance(call.arguments, Mapping) else {}
    entry: dict[str, Json] = {"args": given.get("args", []), "kwargs": given.get("kwargs", {})}
    return {**entry, "result": call.result} if call.ok else {**entry, "error": call.error}


def _literal(value: Any) -> str:
    """Return a Python expression for JSON types, readable where it can be."""
    text = pprint.pformat(value, width=96, sort_dicts=False)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    return f"__import__('json').loads({json.dumps(value)!r})"  # NaN and infinity


def is_name(name: str) -> bool:
    """Whether a cell can call a tool of this name."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _normal(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
