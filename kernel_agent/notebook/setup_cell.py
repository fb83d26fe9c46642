"""The first code cells of an exported notebook: its needs, and replays of the host's tools.

Pure. The environment cell starts with a PEP 723 block (https://peps.python.org/pep-0723/), which
``juv`` and ``uv`` read, with the versions that the run had. What the run found in its kernel and
plain Jupyter does not have is defined in plain Python: ``final_answer``, ``outputs`` where a cell
reads it, and host tools as replays of what they gave.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import keyword
import pprint
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernel_agent.inkernel import no_answer
from kernel_agent.notebook import preamble
from kernel_agent.records import HostCall, Json, error_output

MAX_OUTPUT_TEXT = 200_000  # characters of one recorded text that the notebook carries

# Where the name on the package index is not the name that is imported.
_DISTRIBUTIONS = {
    "bs4": "beautifulsoup4", "cv2": "opencv-python", "dateutil": "python-dateutil",
    "PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML",
}  # fmt: skip
# What pandas imports when a method is called: no cell names it.
_IMPLIED = (
    (re.compile(r"\.(?:plot|hist|boxplot)\b|%matplotlib"), "matplotlib"),
    (re.compile(r"\b(?:read|to)_parquet\b|\b(?:read|to)_feather\b"), "pyarrow"),
    (re.compile(r"\bread_excel\b|\bto_excel\b|\bExcelWriter\b"), "openpyxl"),
    (re.compile(r"\.style\b"), "Jinja2"),
)
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([\w.]+)", re.MULTILINE)
_VERSION = re.compile(r"[\w.!+-]{1,60}")
_OUTPUTS_USED = re.compile(r"\boutputs\b")
_OUTPUTS_OF = re.compile(r"\boutputs\s*\[\s*(\d+)\s*\]")


def environment_source(
    sources: Sequence[str],
    *,
    versions: Mapping[str, str],
    texts: Mapping[int, str],
    refused: bool = False,
) -> str:
    """Return the environment cell.

    Parameters
    ----------
    sources
        The cells that will run.
    versions
        What was installed in the run: version by distribution name, and ``python``.
    texts
        The full text of each step's output, for cells that read ``outputs``.
    refused
        Whether a cell that will run gave ``final_answer`` what is no answer, and failed.
    """
    parts = [
        _script_block(sources, versions),
        "# The agent's kernel had these names; nothing of the agent is needed to run the cells.\n"
        + inspect.getsource(preamble.final_answer).rstrip(),
        *([inspect.getsource(no_answer).rstrip()] if refused else []),
    ]
    used = {k: text[:MAX_OUTPUT_TEXT] for k, text in _used_outputs(sources, texts).items()}
    if used:
        parts.append(f"# The texts that cells reopen: outputs[k] is what step k showed.\n"
                     f"outputs = {_literal(used)}")  # fmt: skip
    return "\n\n\n".join(parts)


def tools_source(calls: Sequence[HostCall], names: Iterable[str]) -> str:
    """Return the cell that defines the host tools as replays, or empty when there are none.

    Parameters
    ----------
    calls
        What the cells that will run had called, in order.
    names
        Tools that their code names without having called them.
    """
    by_name: dict[str, list[dict[str, Json]]] = {n: [] for n in names if is_name(n)}
    for call in calls:
        if is_name(call.name):
            by_name.setdefault(call.name, []).append(_record_call(call))
    if not by_name:
        return ""
    of_tools = bool({*by_name} - {"delegate"})
    needed: list[Callable[..., Any]] = [
        *([preamble.ToolError] if of_tools else []),
        preamble.revived,
        *([preamble.replayed] if of_tools else []),
        *([preamble.delegated] if "delegate" in by_name else []),
    ]
    definitions = [f"{n} = {_replay(n, _literal(found))}" for n, found in by_name.items()]
    parts = [
        "# The run called tools on the host. Here they only give again what they gave then.",
        "from collections.abc import Callable\nfrom typing import Any",
        *(inspect.getsource(part).rstrip() for part in needed),
        "\n".join(definitions),
    ]
    return "\n".join(parts[:2]) + "\n\n\n" + "\n\n\n".join(parts[2:])


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
    kind, _, message = error.partition(": ")
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            raised: Exception = known(message)
        except TypeError as refused:  # UnicodeDecodeError takes five arguments: so in the replay
            raised = refused
    else:
        raised = preamble.ToolError(message if kind == "ToolError" else error)
    ename = type(raised).__name__
    return error_output(ename, str(raised), [f"{ename}: {raised}"])


def _script_block(sources: Sequence[str], versions: Mapping[str, str]) -> str:
    pinned = [
        f'#     "{name}=={version}",' for name, version in _find_distributions(sources, versions)
    ]
    python = re.match(r"\d+\.\d+", versions.get("python", ""))
    lines = [f'# requires-python = ">={python[0]}"'] if python else []
    return "\n".join(["# /// script", *lines, "# dependencies = [", *pinned, "# ]", "# ///"])


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


def _used_outputs(sources: Sequence[str], texts: Mapping[int, str]) -> dict[int, str]:
    """Return the texts that cells reopen: those named, or all when one is computed."""
    used = [source for source in sources if _OUTPUTS_USED.search(source)]
    named = {int(k) for source in used for k in _OUTPUTS_OF.findall(source)}
    others = any(_OUTPUTS_USED.search(_OUTPUTS_OF.sub("", source)) for source in used)
    return {k: text for k, text in texts.items() if others or k in named}


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
