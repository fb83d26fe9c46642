"""Write the pages of ``docs/reference`` from the code: ``make reference``.

Each page is what one function here returns, and a test compares the two. Only the glossary is
written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
from kernel_agent_extension.options import OPTIONS

import kernel_agent
from kernel_agent import errors
from kernel_agent.cli.app import app
from kernel_agent.config import SETTINGS
from kernel_agent.config.table import VARIABLES
from kernel_agent.records import Event, ExitStatus
from kernel_agent.records.action import Call, Code, Final
from kernel_agent.records.cell import Answer, CellResult, Delegated, HostCall, Observation
from kernel_agent.records.conversation import ModelWindow
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    FormatChange,
    Given,
    Record,
    Retry,
    RunStart,
    RunStop,
    Step,
    Undone,
)
from kernel_agent.session import Run

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/reference"
MADE = "<!-- Made from the code by `make reference`: change it there. -->\n"


# --- the command ---------------------------------------------------------------------------------


def command() -> str:
    """Return the page of the command: each with its options and their defaults, as the help has."""
    parts = ["# Command", "What `kernel-agent COMMAND --help` prints, for all commands."]
    for name, each in _commands(typer.main.get_command(app), "kernel-agent"):
        context = typer.Context(each, info_name=name)
        records = [p.get_help_record(context) for p in each.get_params(context)]
        parts += [f"## {name}", each.help.strip() if each.help else ""]
        parts.append(f"```\n{name} {' '.join(each.collect_usage_pieces(context))}\n```")
        parts += [
            _listed((f"`{what}`", _with_default(what, how)) for what, how in filter(None, records))
        ]
        parts.append((each.epilog or "").replace("  ", " ").strip())
    return _page(parts)


def _with_default(what: str, how: str) -> str:
    """Return the help of an option with the default of its setting."""
    flag = what.split(maxsplit=1)[0]
    row = next((r for r in SETTINGS.values() if r.option and r.flag == flag), None)
    told = row is None or row.kind is bool or "default" in how or row.default in (None, (), {})
    return how if told or row is None else f"{how} Default: {_default(row.default)}."


def _commands(each: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, each
    for word, below in getattr(each, "commands", {}).items():
        yield from _commands(below, f"{name} {word}")


# --- settings and the magic ----------------------------------------------------------------------

ELSEWHERE = {"data": "--data", "mcp": "--mcp NAME", "sql": "--tools sql=NAME"}
MAGIC_ELSEWHERE = {"data": "--data", "mcp": "--mcp"}
"""Options that use a setting without being one of the table's."""


def settings() -> str:
    """Return the page of settings and variables."""
    rows = []
    for name, row in SETTINGS.items():
        flag = row.flag if row.option else ELSEWHERE.get(name, "")
        magic = f"--{row.magic_name}" if row.magic else MAGIC_ELSEWHERE.get(name, "")
        option = f"`{flag}`" if flag else ""
        rows.append(
            (
                f"`{name}`",
                f"`{_default(row.default)}`",
                option,
                f"`{magic}`" if magic else "",
                _linked(row.about),
            )
        )
    variables = [(f"`{name}`", about) for name, about in VARIABLES.items()]
    return _page([
        "# Settings",
        ("How to set them: [settings](../settings.md). The variable of a setting is "
        "`KERNEL_AGENT_` and its name in capitals. The type of a setting is that of its default; "
        "`none` stands for nothing."),
        _table(("setting", "default", "option of the command", "of `%agent`", ""), rows),
        "## Further variables",
        _table(("variable", ""), variables),
    ])  # fmt: skip


def _default(value: Any) -> str:
    if value in (None, (), {}):
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def magic() -> str:
    """Return the page of ``%agent``."""
    options = [
        (f"`-{o.short}`, `--{o.name}`" if o.short else f"`--{o.name}`", f"`{o.value}`" * bool(o.value), o.about)
        for o in OPTIONS
    ]  # fmt: skip
    traits = [
        (f"`{row.magic_name.replace('-', '_')}`", row.trait)
        for row in SETTINGS.values()
        if row.trait
    ]
    return _page([
        "# %agent",
        ("Put options first; `--` ends them. `%agent` alone prints this list. How to use it: "
        "[in a notebook](../jupyter.md)."),
        "## Options",
        _table(("option", "value", ""), options),
        "## Lines without a question",
        _listed([
            ("`%agent stop`", "stop what runs."),
            ("`%agent status`", "say what runs."),
            ("`%agent show`", "show the running or the last run again."),
            ("`%agent undo`", ("take the last step back; `%agent undo 3: the join was wrong` takes "
             "three, with the reason; `%agent undo question` takes back the last question.")),
        ]),
        "## Defaults for a notebook",
        "`%config AgentMagics.NAME = VALUE` sets one; `%config AgentMagics` lists them.",
        _table(("name", ""), traits),
    ])  # fmt: skip


# --- Python --------------------------------------------------------------------------------------

FURTHER = {
    "kernel_agent.records": ("read_trace", "Decision", "Question", "Message", "Reply"),
    "kernel_agent.formats": ("register",),
    "kernel_agent.config": ("load_config",),
    "kernel_agent.models": ("Model",),
    "kernel_agent.adapters.smolagents": ("KernelExecutor",),
}
"""Public names beside those of the package itself, by the module to import them from."""

METHODS = {
    "Session": ("run", "execute", "put", "take", "undo", "change", "stop", "hibernate", "play", "start",
                "close", "list_data", "run_sync", "execute_sync", "put_sync", "take_sync", "undo_sync"),
    "Model": ("prepare", "complete", "close"),
}  # fmt: skip
"""Methods that are shown of a class."""


def python() -> str:
    """Return the page of the public names, each with its signature and its docstring."""
    parts = [
        "# Python",
        (
            "The public names. A break of one is listed in the [changelog](../../CHANGELOG.md). "
            "Everything else may change without a word. How to use them: [Python](../python.md)."
        ),
    ]
    for module, names in {"kernel_agent": tuple(kernel_agent.__all__), **FURTHER}.items():
        parts += [f"## {module}"]
        for name in names:
            parts += _described(name, getattr(import_module(module), name))
    parts += [
        "## Events",
        (
            "What `Session(on_event=…)` is given, from `kernel_agent.records`. Those that are records "
            "of the trace are described in [a run's folder](run-folder.md)."
        ),
    ]
    for kind in typing.get_args(Event):
        if kind not in typing.get_args(Record):
            parts += _record(kind, level=3)
    parts += ["## Errors", ("All are in `kernel_agent.errors`. A run raises none for an ending: look "
              "at `run.status`."), "\n".join(_errors(errors.KernelAgentError))]  # fmt: skip
    return _page(parts)


def _described(name: str, thing: Any) -> list[str]:
    doc = inspect.getdoc(thing) or ""
    if name == "Config":
        return [f"### {name}", (f"{_plain(doc.partition('Parameters')[0])} Its fields and their "
                "defaults: [settings](settings.md).")]  # fmt: skip
    if dataclasses.is_dataclass(thing):
        return _record(thing, level=3, nothing="None")
    parts = [f"### {name}", _signature(name, thing), _prose(doc)]
    if name == "ExitStatus":
        parts.append("Its values: [a run's folder](run-folder.md#endings).")
    for method in METHODS.get(name, ()):
        function = getattr(thing, method)
        parts += [
            f"#### {name}.{method}",
            _signature(method, function),
            _prose(inspect.getdoc(function) or ""),
        ]
    return parts


def _signature(name: str, thing: Any) -> str:
    """Return it as a stub has it, one argument a line where it is long."""
    if isinstance(thing, type) and issubclass(thing, ExitStatus):
        return ""
    if inspect.isclass(thing) and getattr(thing, "_is_protocol", False):
        return ""
    signature = inspect.signature(thing)
    told, starred = [], False
    for each in signature.parameters.values():
        if each.name not in {"self", "lineage"}:
            if each.kind is each.KEYWORD_ONLY and not starred:
                told, starred = [*told, "*"], True
            told.append(_argument(each))
    result = signature.return_annotation
    back = "" if result is signature.empty or inspect.isclass(thing) else f" -> {result}"
    start = f"{'async ' if inspect.iscoroutinefunction(thing) else ''}{name}("
    line = f"{start}{', '.join(told)}){back}"
    if len(line) > 90:
        line = f"{start}\n" + "".join(f"    {each},\n" for each in told) + f"){back}"
    return f"```\n{line}\n```"


def _argument(each: inspect.Parameter) -> str:
    kind = "" if each.annotation is each.empty else f": {each.annotation}"
    default = "..." if callable(each.default) else repr(each.default)
    mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    return f"{mark}{each.name}{kind}{'' if each.default is each.empty else f' = {default}'}"


def _errors(kind: type, depth: int = 0) -> Iterator[str]:
    about = _plain((kind.__doc__ or "").strip().split("\n\n")[0])
    code = vars(kind).get("exit_code")
    yield f"{'  ' * depth}- `{kind.__name__}`{f' (exit code {code})' if code else ''}: {about}"
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _errors(below, depth + 1)


# --- a run's folder ------------------------------------------------------------------------------


def run_folder() -> str:
    """Return the page of a run's folder: its files, the records of the trace, the endings."""
    nested = [k for k in sorted(_within(Record), key=_place) if k not in typing.get_args(Record)]
    parts = [
        "# A run's folder",
        "How to read a trace: [trace](../trace.md).",
        "## Endings",
        "`status` of a run, and what the command exits with.",
        _table(
            ("status", "exit code", "it says"),
            [(f"`{e}`", str(e.exit_code), e.sentence) for e in ExitStatus],
        ),
        (
            "Otherwise: 2 is wrong use, or an input, output or endpoint that cannot be used; 5 is a "
            "kernel that did not start; 1 is a check that does not hold (`verify`, `doctor`, "
            "`microvm status`, no file found by `data`). `eval` has codes of its own: "
            "[command](command.md#kernel-agent-eval)."
        ),
        "## The object of `--json`",
        "`status` (`usage_error` where no run began), `steps` (a count), `decisions` (what was decided "
        "on cells and calls), and, as in [Run](python.md#run): "
        + ", ".join(f"`{key}`" for key in _keys() if key not in {"status", "steps", "decisions"})
        + ".",
        "## Records of the trace",
        "Each line of `trace.jsonl` is one of these; `$` has its kind.",
    ]
    for kind in typing.get_args(Record):
        parts += _record(kind, level=3)
    parts += ["## Records within records"]
    for kind in nested:
        parts += _record(kind, level=3)
    return _page(parts)


NOTES: Mapping[type, Mapping[str, str]] = {
    RunStart: {
        "time": "ISO 8601 in UTC, as everywhere",
        "sandbox": "`level`, `statement`, `not_covered`, and `report` of the self-test",
        "tools": "their names",
        "tool_docs": "what `help` says of each",
        "config": "without secrets",
        "parent_id": "the run that delegated this one",
    },
    Step: {
        "result": "null where no cell ran",
        "model_seconds": "of the model",
        "cell_seconds": "of the cell",
        "decision": "on the cell; `action` is what ran",
    },
    RunStop: {
        "steps": "how many",
        "network": "with what its agents asked",
        "obeyed": "`…` at the end: the folder holds more than is looked at",
    },
    FormatChange: {"format": "the one that follows"},
    Condensation: {"reason": "why, in words"},
    Undone: {"reason": "what the person said"},
    DataFile: {
        "path": "in the folder",
        "source": "as the user named it",
        "sha256": "empty where it was not taken",
        "files": "how many, of a folder",
    },
    ModelWindow: {"tokens": "prompt and reply together"},
    Given: {"files": "where its value lies"},
    Retry: {"content": "the reply", "feedback": "what the model was told"},
    Code: {"left_out": "absent where empty, as the two that follow"},
    Call: {"repaired": "absent where false"},
    Final: {"repaired": "absent where 0"},
    CellResult: {"outputs": "as the kernel sent them, up to the limit"},
    HostCall: {
        "arguments": '`args` and `kwargs`; what is large is described: `{"$": "left out", …}`',
        "seconds": "without waiting for a person",
        "decision": "null where none was needed",
    },
    Delegated: {"folder": "its own trace is there", "note": "absent where empty"},
    Answer: {"value": "null for None, and for a text that is too long"},
    Observation: {"text": "exactly what the model was shown"},
    Run: {
        "run_id": "as in the trace",
        "task": "the question",
        "status": "how it ended; `run.status.exit_code` is the command's exit code",
        "answer": "the answer in JSON types; None without one",
        "text": "the answer as a person reads it",
        "partial": "what was achieved, where there is no answer",
        "message": "why it ended so",
        "steps": "its turns, with code, outputs and calls",
        "seconds": "without waiting for a person",
        "usage": "tokens and, with prices, US dollars",
        "trace": "`trace.jsonl`",
        "notebook": "`run.ipynb`; None where it could not be written",
        "sandbox": "the level",
        "sandbox_report": "level, statement, what is not covered, findings of the self-test",
        "files": "what its cells made or changed",
        "value": "the answer itself, with its type and all its rows",
        "instead": "why `value` is not the answer itself, where it is not",
        "csv": "a table as text, where it could not leave the kernel itself",
        "note": "a caveat beside the answer",
        "in_words": "the model wrote the answer: no cell gave it",
    },
}
"""What a field's name and its record's docstring leave open."""


def _keys() -> list[str]:
    tree = ast.parse((ROOT / "kernel_agent/cli/ask.py").read_text())
    (function,) = (n for n in tree.body if getattr(n, "name", "") == "_as_json")
    (made,) = (n.value for n in ast.walk(function) if isinstance(n, ast.Return))
    assert isinstance(made, ast.Dict)
    return [key.value for key in made.keys if isinstance(key, ast.Constant)]


def _sentence(text: str) -> str:
    plain = _plain(text)
    return f". {plain[:1].upper()}{plain[1:].rstrip('.')}." if plain else ""


def _record(kind: type, level: int, nothing: str = "null") -> list[str]:
    """Return a record's heading, its docstring, and a list of its fields with their types."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    told = _parameters(doc) | _after_fields(kind) | NOTES.get(kind, {})
    prose = doc.partition("\nParameters\n---")[0]
    fields = dataclasses.fields(kind)
    lines = [
        (f"`{f.name}`", f"{_worded(f.type, nothing)}{_sentence(told.get(f.name, ''))}")
        for f in fields
    ]
    return [f"{'#' * level} {kind.__name__}", _prose(prose), _listed(lines)]


def _within(kind: Any) -> set[type]:
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


def _place(kind: type) -> tuple[str, int]:
    return kind.__module__, inspect.getsourcelines(kind)[1]


WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false",
         "Json": "JSON", "Plain": "JSON types",  "Path": "path",
         "OutputDict": "output of nbformat 4", "Action": "`Code`, `Calls` or `Final`",
         "ExitStatus": "status", "CellStatus": "text", "Any": "any value"}  # fmt: skip


def _worded(kind: Any, nothing: str = "null") -> str:
    """Return a type of annotation in words.

    Examples
    --------
    >>> _worded("tuple[DataFile, ...]"), _worded("str | None")
    ('list of `DataFile`', 'text or null')
    """
    text = str(kind)
    if text.startswith("Literal["):
        return " or ".join(f"`{word}`" for word in ast.literal_eval(text[7:]))
    if match := re.fullmatch(r"(?:tuple|Sequence)\[(.+?)(?:, \.\.\.)?\]", text):
        return f"list of {_worded(match[1], nothing)}"
    if match := re.fullmatch(r"Mapping\[str, (.+)\]", text):
        return f"object of {_worded(match[1], nothing)} by name"
    if " | " in text:
        return " or ".join(_worded(each, nothing) for each in text.split(" | "))
    return nothing if text == "None" else WORDS.get(text, f"`{text}`")


# --- limits --------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _bytes(value: float) -> str:
    if value >= 1e6 and value % 1e6 == 0:
        return f"{value / 1e6:,g} MB"
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size:g} {unit}"
    return f"{value:,g} bytes"


def _seconds(value: float) -> str:
    if value >= 86_400:
        return f"{value / 86_400:g} days"
    return f"{value / 60:g} minutes" if value >= 120 and value % 60 == 0 else f"{value:g} s"


UNITS: Mapping[str, Callable[[Any], str]] = {
    "bytes": _bytes,
    "MB": lambda v: f"{v:,} MB",
    "s": _seconds,
    "share": lambda v: f"{v:.0%}",
}

LIMITS: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "A run": (
        ("steps", "setting:max_steps", "", "`--max-steps`"),
        ("time, without waiting for you", "setting:max_seconds", "s", "`--max-seconds`"),
        ("time of one cell", "setting:cell_seconds", "s", "`--cell-seconds`"),
        ("time without a byte of a reply", "setting:request_timeout_s", "s", "`request_timeout_s`"),
        ("retries of one request", "setting:max_retries", "", "`max_retries`"),
        ("times that an unreadable reply is asked for again", "agent.decider:RE_ASKS", "", ""),
        ("same failures of the same action that end a run", "agent.rules:SAME_FAILURES", "", ""),
        ("denials of the same action that end a run", "agent.rules:SAME_DENIALS", "", ""),
        ("steps in a row with a denial that end a run", "agent.rules:DENIALS_IN_A_ROW", "", ""),
    ),
    "What the model is shown": (
        ("one observation, usually; a fifth more stays whole", "agent.decider:OBSERVATION_CHARS", "characters", ""),
        ("the conversation: half of what the model holds, at most", "models.listing:CEILING", "tokens", "`context_tokens`"),
        ("the conversation, where nobody says what the model holds", "models.listing:UNKNOWN", "tokens", "`context_tokens`"),
        ("rows of a table that is shown whole", "inkernel.preview:WHOLE_ROWS", "", ""),
        ("columns of a table that is shown whole", "inkernel.preview:WHOLE_COLUMNS", "", ""),
        ("one cell of a table", "inkernel.preview:CELL_CHARS", "characters", ""),
        ("items of an array or a list that is shown whole", "inkernel.preview:WHOLE_ITEMS", "", ""),
        ("longer side of a picture", "agent.figures:MAX_SIDE", "pixels", ""),
        ("a text file that is told whole", "session.first_look:WHOLE", "characters", ""),
        ("first look at all files together, until later ones are only named", "session.first_look:MAX_ALL", "characters", ""),
    ),
    "A kernel in its sandbox": (
        ("memory, as a share of the machine's", "sandbox.grants:MEMORY_SHARE", "share", "`--memory-mb`"),
        ("written to disk", "sandbox.levels:Limits.disk_mb", "MB", "`--disk-mb`"),
        ("one file, and never more than the disk", "sandbox.levels:Limits.file_mb", "MB", ""),
        ("processes and threads", "sandbox.levels:Limits.processes", "", ""),
        ("open files", "sandbox.levels:Limits.open_files", "", ""),
        ("files made, but for `microvm`", "sandbox.watchdog:MAX_FILES", "", ""),
        ("timers and waiting signals", "sandbox.steps:PENDING_SIGNALS", "", ""),
        ("descriptors watched by epoll", "sandbox.watchdog:MAX_WATCHES", "", ""),
        ("`/dev/shm`, where a level has its own", "sandbox.rootfs:SHARED_MEMORY_MB", "MB", ""),
        ("time to start", "sandbox.levels:Level.patience_s", "s", ""),
        ("time to start at the level `microvm`", "sandbox.microvm:LEVEL.patience_s", "s", ""),
        ("from the interrupt of a cell to the end of its kernel", "kernel.process:INTERRUPT_GRACE_S", "s", ""),
        ("connections at once to allowed hosts", "sandbox.proxy:CONNECTIONS_MAX", "", ""),
        ("such a connection without a byte", "sandbox.connection:IDLE_S", "s", ""),
        ("inputs at the level `remote`, together", "kernel.remote:SENT_MAX", "bytes", ""),
        ("memory at the level `interpreter`", "kernel.interpreter:MEMORY_BYTES", "bytes", ""),
        ("inputs at the level `interpreter`, together", "sandbox.interpreter:MAX_INPUT_BYTES", "bytes", ""),
        ("files and folders that one machine of `microvm` may make", "sandbox.microvm.files:MAX_ENTRIES", "", ""),
    ),
    "What a cell gives": (
        ("one printed stream as it comes", "inkernel.stream:HEAD", "characters", ""),
        ("its end, when the cell is over", "inkernel.stream:TAIL", "characters", ""),
        ("outputs of one step that `outputs[k]` reopens", "inkernel.outputs:CELL_CAP", "bytes", ""),
        ("displays of one cell", "inkernel.display:MAX_CELL", "characters", ""),
        ("one picture, base64", "inkernel.display:MAX_BINARY", "characters", ""),
        ("rows of a table that pandas is told to show whole", "inkernel.display:MAX_ROWS", "", ""),
        ("an answer in the trace, as JSON", "inkernel.plain:CHARS", "characters", ""),
        ("rows of a table in it", "inkernel.plain:ROWS", "", ""),
        ("an answer as `answer.csv`; a larger one is Parquet", "session.answer_files:MAX_CSV", "cells", ""),
        ("variables that are taken at once", "inkernel.transfer:MAX_CHARS", "characters", ""),
        ("cells of one table that crosses", "inkernel.tables:CELLS_MAX", "", ""),
        ("outputs of one cell that are kept", "kernel.collect:MAX_OUTPUTS", "", ""),
        ("memory for outputs of one cell", "kernel.collect:MAX_CELL", "bytes", ""),
        ("of it printed text", "kernel.collect:MAX_STREAMS", "bytes", ""),
        ("one output or reply", "kernel.client:MAX_MESSAGE", "bytes", ""),
        ("printed text in one message", "kernel.client:MAX_TEXT", "bytes", ""),
        ("lists, objects, items and texts in one message", "kernel.messages:MAX_ITEMS", "", ""),
        ("levels of lists and objects in one output", "kernel.collect:MAX_DEPTH", "", ""),
        ("messages of one cell, together", "kernel.client:MAX_CELL_BYTES", "bytes", ""),
        ("parts of one message; more end the kernel", "kernel.zmtp:MAX_PARTS", "", ""),
        ("one message; a larger one ends the kernel", "kernel.zmtp:MAX_SIZE", "bytes", ""),
        ("text beside an answer (`note`)", "inkernel.display:MAX_NOTE", "characters", ""),
        ("one variable at a level without a common folder", "session.variables:APART_MAX", "bytes", ""),
        ("columns of one table that crosses", "inkernel.schemas:COLUMNS_MAX", "", ""),
        ("one picture that crosses", "inkernel.values:PIXELS_MAX", "pixels", ""),
        ("levels of lists and dicts that cross", "inkernel.values:DEPTH_MAX", "", ""),
        ("a number or date that crosses", "inkernel.room:TEXT_MAX", "characters", ""),
        ("requests and answers that are kept for undo", "session.undo:MAX_KEPT", "characters", ""),
    ),
    "Inputs": (
        ("files that one pattern may fit", "session.inputs:MAX_MATCHING", "", ""),
        ("a file that is copied; a larger one is a link", "session.inputs:LINK_ABOVE_BYTES", "bytes", ""),
        ("files of a folder of data", "session.folders.scan:MAX_FILES", "", ""),
        ("folders within folders of data", "session.folders.scan:MAX_DEPTH", "", ""),
        ("time to read a folder's files for its index", "session.folders.library:INDEX_SECONDS", "s", ""),
        ("files found by one search", "session.folders.search:MOST", "", "`find_data(most=…)`"),
        ("files that a search may be asked for", "session.folders.search:MAX_MOST", "", ""),
        ("files of a folder that a run's record lists", "session.folders.reads:MAX_READ", "", ""),
        ("list of a folder's files that the model is shown", "session.folders.listing:MAX_LISTING", "characters", ""),
        ("time in which a folder must answer", "session.folders.scan:SILENT_SECONDS", "s", ""),
        ("places left out of a folder of data", "session.folders.scan:MAX_LEFT_OUT", "", ""),
        ("size of files read of which digests are recorded", "session.folders.reads:MAX_BYTES", "bytes", ""),
        ("indexes of folders that are kept", "session.folders.kept:MAX_KEPT", "", ""),
    ),
    "Tools": (
        ("one request of a cell", "tools.broker:MAX_REQUEST", "characters", ""),
        ("calls of one cell", "tools.broker:MAX_CELL_CALLS", "", ""),
        ("calls that run side by side", "tools.caller:SIDE_BY_SIDE", "", ""),
        ("result of one call", "tools.caller:MAX_RESULT", "characters", ""),
        ("arguments of one call in the trace", "tools.broker:KEPT_CHARS", "characters", ""),
        ("picture whose content the trace keeps", "tools.recorded:DATA_PIXELS", "pixels", ""),
        ("values of a table or array whose content the trace keeps", "tools.recorded:DATA_VALUES", "", ""),
        ("result of one call in the trace", "tools.broker:KEPT_RESULT", "characters", ""),
        ("calls of one cell that the trace lists", "tools.broker:LISTED", "", ""),
        ("lists, objects and items of one request", "safe.gate:NODES", "", ""),
        ("calls in one request", "tools.requests:MAX_CALLS", "", ""),
        ("memory for one request, beside 20 bytes a character", "safe.gate:BASE", "bytes", ""),
        ("requests that wait for an answer", "tools.broker:MAX_UNDER_WAY", "", ""),
        ("threads of plain tools in one process", "tools.threads:MOST", "", ""),
        ("all calls of one cell in the trace", "tools.broker:KEPT_CELL_CHARS", "characters", ""),
        ("tools that the model is shown whole; of more, one line each", "tools.definition:MANY", "", ""),
        ("description of a tool that the model is shown", "tools.definition:MAX_TOLD", "characters", ""),
        ("earlier untrusted results that a call lists", "records.cell:MAX_INFLUENCES", "", ""),
        ("shortest value that is kept as a secret", "tools.secrets:SHORTEST", "characters", ""),
        ("denied questions of one cell, then no more are asked", "tools.policy:MAX_DENIED", "", ""),
        ("tools of one MCP server", "tools.mcp.connected:TOOLS_MAX", "", ""),
        ("start of an MCP server", "tools.mcp.servers:START_S", "s", "`start_seconds`"),
        ("one call of an MCP server", "tools.mcp.servers:CALL_S", "s", "`call_seconds`"),
        ("restarts of an MCP server", "tools.mcp.connection:RESTARTS_MAX", "", ""),
        ("description of a tool of an MCP server that the model is shown", "tools.mcp.foreign:DESCRIPTION_MAX", "characters", ""),
        ("one message of an MCP server", "tools.mcp.pipes:MESSAGE_MAX", "bytes", ""),
        ("lines of an MCP server that are no messages", "tools.mcp.pipes:JUNK_MAX", "", ""),
        ("rows of one query of `sql`", "tools.builtin.database:ROWS_MAX", "", ""),
        ("result of one query of `sql`", "tools.builtin.database:BYTES_MAX", "bytes", ""),
        ("time of one query of `sql`", "tools.builtin.database:QUERY_S", "s", ""),
    ),
    "Agents": (
        ("depth of agents beneath a run", "session.delegation.tool:MAX_DEPTH", "", ""),
        ("agents beneath a session", "session.delegation.tool:MAX_AGENTS", "", ""),
        ("agents of one run at a time", "session.delegation.tool:AT_ONCE", "", ""),
        ("share of what is left that one agent may spend", "records.budget:LARGEST_SHARE", "share", ""),
        ("prompts of `llm` at a time", "session.delegation.prompts:PROMPTS_AT_ONCE", "", ""),
        ("one task or prompt", "session.delegation.tool:MAX_TASK", "characters", ""),
        ("one table or value given to `delegate`", "inkernel.delegate:MAX_FORM", "characters", ""),
    ),
    "Files": (
        ("settings file", "config.files:MAX_BYTES", "bytes", ""),
        ("line of a trace", "records.store:MAX_LINE", "bytes", ""),
        ("outputs of one cell in the trace", "records.store:OUTPUTS_BYTES", "bytes", ""),
        ("trace that is read", "records.store:MAX_BYTES", "bytes", ""),
        ("notebook that is read", "notebook.reader:MAX_BYTES", "bytes", ""),
        ("one text in the exported notebook", "notebook.outputs:MAX_TEXT", "characters", ""),
        ("rows of an answer in the exported notebook", "notebook.answer:MAX_ROWS", "", ""),
        ("page of a run (`run.html`)", "notebook.page:MAX_PAGE", "characters", ""),
        ("page of a run below a cell", "notebook.page:MAX_SUMMARY", "characters", ""),
        ("time of one cell in `verify`", "session.verification:CELL_TIMEOUT_S", "s", "`verify(timeout_s=…)`"),
        ("file of tasks", "evaluation.tasks:MAX_BYTES", "bytes", ""),
    ),
    "Endpoints": (
        ("one reply", "models.draft:MAX_REPLY_CHARS", "characters", ""),
        ("pause that a server may ask for", "models.errors:MAX_RETRY_AFTER_S", "s", ""),
        ("how long the format that `auto` found is remembered", "models.probe:MAX_AGE_S", "s", ""),
        ("texts of one run for OpenTelemetry", "session.telemetry.content:RUN_BYTES", "bytes", ""),
        ("one text for OpenTelemetry", "session.telemetry.content:CONTENT_CHARS", "characters", ""),
        ("calls of tools of one run for OpenTelemetry", "session.telemetry.content:CALLS_BYTES", "bytes", ""),
    ),
}  # fmt: skip
"""Of each part: what is limited, the module and constant that say it, its unit, what raises it."""


def limits() -> str:
    """Return the page of all limits that users meet."""
    rows = [
        (part, what, _value(where, unit), raised or "fixed")
        for part, those in LIMITS.items()
        for what, where, unit, raised in those
    ]
    return _page([
        "# Limits",
        ("What reaches a limit is cut and counted, is refused in one line, or ends the cell or the run. *Fixed*: no setting "
        "changes it. [Settings](settings.md) lists defaults and options."),
        _table(("", "limit of", "value", "changed by"), rows),
    ])  # fmt: skip


def _value(where: str, unit: str) -> str:
    module, _, path = where.partition(":")
    if module == "setting":
        found = SETTINGS[path].default
    else:
        found = import_module(f"kernel_agent.{module}")
        for name in path.split("."):
            found = getattr(found, name)
    return UNITS[unit](found) if unit in UNITS else f"{_number(found)} {unit}".strip()


# --- versions ------------------------------------------------------------------------------------


def versions() -> str:
    """Return the page of versions, from ``pyproject.toml``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    extras = [
        (f"`{name}`", ", ".join(f"`{each}`" for each in packages))
        for name, packages in project["optional-dependencies"].items()
    ]
    return _page([
        "# Versions and support",
        f"This is version {kernel_agent.__version__}. [Changelog](../../CHANGELOG.md).",
        "## What 0.x promises",
        ("- A version may break what the one before it had. Each break is a line of the changelog.\n"
        "- The names in [Python](python.md), the options and settings, exit codes and the fields of "
        "a trace are what counts as a break; wording and looks do not.\n"
        "- A trace of an older version stays readable, but for the breaks that the changelog lists.\n"
        "- Only the newest version gets fixes."),
        "## What it runs on",
        (f"- Python {', '.join(pythons)} (`{project['requires-python']}`).\n"
        "- Linux. Nothing is tested elsewhere.\n"
        "- JupyterLab 4.4 and Notebook 7.4 or newer for `%agent`."),
        "## Packages",
        "What is installed with it:",
        "\n".join(f"- `{each}`" for each in project["dependencies"]),
        "What an extra adds (`pip install '.[data]'` in a clone):",
        _table(("extra", "packages"), extras),
        "Exact versions with which every change is tested stand in `constraints.txt`.",
        "## Help",
        ("Ask in the repository's issues. Report a vulnerability "
        "[privately](../../SECURITY.md#reporting)."),
    ])  # fmt: skip


# --- Markdown ------------------------------------------------------------------------------------


def _page(parts: Sequence[str]) -> str:
    title, *rest = (part.strip("\n") for part in parts if part.strip())
    return "\n\n".join([title, MADE.strip(), *rest]) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)]
    return "\n".join(line.replace("|  ", "| ") for line in lines)


def _listed(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f"- {name}: {' '.join(about.split())}" if about else f"- {name}" for name, about in rows
    )


def _plain(text: str) -> str:
    """Return a docstring's marks as Markdown's, in one line."""
    text = re.sub(r" \(:mod:`.+?`\)", "", text)
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return _linked(" ".join(re.sub(r"``(.+?)``", r"`\1`", text).split()))


def _linked(text: str) -> str:
    """Make links of the pages that a text names."""
    return re.sub(r"`docs/([\w-]+)\.md`", r"[\1](../\1.md)", text)


def _prose(doc: str) -> str:
    """Return a docstring in numpy's style as Markdown: paragraphs, and lists of what is named."""
    text, *sections = re.split(r"^(\w+)\n-{3,}\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    parts = [_plain(each) for each in text.strip().split("\n\n")]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title == "Examples":
            parts += ["Example:", f"```\n{body.strip()}\n```"]
        else:
            parts += [f"{title}:", _listed((f"`{n}`", _plain(t)) for n, t in _entries(body))]
    return "\n\n".join(part for part in parts if part)


def _entries(body: str) -> list[tuple[str, str]]:
    found = re.split(r"^(\S.*)\n", body.strip("\n") + "\n", flags=re.MULTILINE)[1:]
    return [
        (name, textwrap.dedent(text)) for name, text in zip(found[::2], found[1::2], strict=True)
    ]


def _parameters(doc: str) -> dict[str, str]:
    _, _, rest = doc.partition("\nParameters\n----------\n")
    body = re.split(r"^\w+\n-{3,}\n", rest, flags=re.MULTILINE)[0]
    return {n: text for names, text in _entries(body) for n in names.split(", ")} if rest else {}


def _after_fields(kind: type) -> dict[str, str]:
    """Return the texts that stand below fields in the source of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        before.target.id: str(after.value.value)
        for before, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


PAGES: Mapping[str, Callable[[], str]] = {
    "command": command,
    "settings": settings,
    "magic": magic,
    "python": python,
    "run-folder": run_folder,
    "limits": limits,
    "versions": versions,
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / f"{name}.md").write_text(make())
