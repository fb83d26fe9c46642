"""Read a line or cell of ``%agent``: its options, and the question around them.

Options that are settings come from the table of settings, with the defaults that ``%config`` sets.
The rest of a line is prose: in it, an apostrophe opens nothing and ``--`` is a dash, so no shell's
rules (shlex, argparse) can divide it. One expression finds the options, the table says what their
values are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from IPython.core.error import UsageError as MagicUsageError
from traitlets import Enum, Float, Int, Unicode

from kernel_agent.config import SETTINGS, Setting


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: its name, its value's name, its help, and its setting."""

    name: str
    value: str
    about: str
    short: str = ""
    example: str = ""
    row: Setting | None = None


def _settings() -> Iterator[Option]:
    for row in SETTINGS.values():
        if row.magic is not None:
            yield Option(
                name=row.magic_name,
                value=row.magic.value,
                about=row.magic.about,
                example=f"{row.magic.example} How many rows?",
                row=row,
            )


OPTIONS = (
    Option(name="data", value="FILE", example="--data sales.csv How many rows?",
           about="a file to ask about, by its path; again for more files"),
    Option(name="in", short="i", value="NAMES", example="-i df,prices Which sold most?",
           about="variables of yours to pass in; the model is told types and first rows"),
    Option(name="get", short="o", value="NAMES", example="-i df -o result Sales by month?",
           about="variables to take back when the question is answered"),
    Option(name="tools", value="NAMES", example="--tools rate What is 5 $ in euros?",
           about="functions of yours, marked @tool, that the code may call; sql, files=DIR, …"),
    Option(name="mcp", value="SERVER", example="--mcp time What time is it in Tokyo?",
           about="an MCP server: a name, a command or an address; again for more"),
    *_settings(),
    Option(name="out", value="DIR", example="--out ./june How many rows?",
           about="the folder of the session, ./DIR or a path"),
    Option(name="continue", value="", about="insist on the session so far, never a new one"),
    Option(name="new", value="", about="begin a new session: a new kernel and an empty history"),
    Option(name="export", value="PATH", example="--export sales.ipynb How many rows?",
           about="write the notebook of the run there, too"),
    Option(name="insert", value="", about="put the code of the run into a new cell below"),
    Option(name="background", value="",
           about="go on in a session of its own while you work; returns a handle at once"),
)  # fmt: skip

_BY_NAME = {option.name: option for option in OPTIONS}
_SHORT = {option.short: option.name for option in OPTIONS if option.short}
_OPTION = re.compile(
    r"""(?:^|(?<=\s))(?:--(?P<long>[a-z][\w-]*)|-(?P<short>[io])(?=[\s=]|$))"""
    r"""(?:(?:=|\s+)(?P<value>"[^"]*"|'[^']*'|\S+))?"""
)


def _usage() -> str:
    width = 18
    lines = []
    for option in OPTIONS:
        flags = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
        head = f"{flags} {option.value}".rstrip()
        lines.append(f"{head:<{width}}  {option.about}" if len(head) <= width else
                     f"{head}\n{'':<{width}}  {option.about}")  # fmt: skip
    return "\n".join(lines)


HELP = f"""\
%agent TASK                       ask about your data; the steps are shown below
%agent --data FILE TASK           about a file
%agent -i df -o result TASK       about a variable of yours, with a result to go on with
run = %agent TASK                 run.answer, run.text, run.status, run.steps, run.notebook

%%agent [options]
TASK over several lines

{_usage()}

%agent stop       stops what runs          %agent status      says what runs
%agent show       shows the running or the last run again
%agent undo       takes the last step back; `%agent undo 3: the join was wrong` three of them
%config AgentMagics.model = "…"            a default; %config AgentMagics lists all

Questions of one notebook share a session: a later one builds on what an earlier one computed, also
with another --model, --format or --approve. --new, another --data, --tools, --sandbox and the like
need a new kernel: files, tools and variables passed in are there again, and the session before is
kept until the new one has answered.
The kernel's interrupt (the stop button) stops a run; its trace and notebook are kept."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The content of a line or cell: options and question."""

    task: str
    data: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    out: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    goes_on: bool = False
    new: bool = False
    export: str | None = None
    insert: bool = False
    background: bool = False

    def after(self, before: Request) -> Request:
        """Return it with what it leaves open as it was for the session before."""
        return replace(
            self,
            data=self.data or before.data,
            tools=self.tools or before.tools,
            mcp=self.mcp or before.mcp,
            settings={**before.settings, **self.settings},
        )


def read_request(line: str, cell: str | None = None) -> Request:
    """Read the options, wherever they stand in the line, and take the rest as the task.

    Raises
    ------
    UsageError
        IPython's: shown as one line, with what to write instead.

    Examples
    --------
    >>> read_request("How many rows? --data sales.csv").data
    ('sales.csv',)
    """
    found: dict[str, list[str]] = {}
    rest, end = "", 0
    while match := _OPTION.search(line, end):
        option = _option(match["long"] or _SHORT[match["short"]])
        value = (match["value"] or "").strip("\"'")
        if option.value and (not value or _OPTION.fullmatch(match["value"])):
            raise MagicUsageError(f"--{option.name} needs a value, as in: %agent {option.example}")
        rest += line[end : match.start()]
        end = match.end() if option.value else match.end("long")
        found.setdefault(option.name, []).append(value)
    task = " ".join((rest + line[end:]).split())
    request = Request(
        task="\n".join(part for part in (task, (cell or "").strip()) if part),
        data=tuple(found.get("data", ())),
        given=_names(found, "in"),
        wanted=_names(found, "get"),
        tools=_tools(found.get("tools", ())),
        mcp=tuple(found.get("mcp", ())),
        out=found["out"][-1] if "out" in found else None,
        settings={
            option.row.name: _value(option, option.row, found[option.name])
            for option in OPTIONS
            if option.row is not None and option.name in found
        },
        goes_on="continue" in found,
        new="new" in found,
        export=found["export"][-1] if "export" in found else None,
        insert="insert" in found,
        background="background" in found,
    )
    _check(request)
    return request


def _option(name: str) -> Option:
    option = _BY_NAME.get(name)
    if option is None:
        import difflib

        close = difflib.get_close_matches(name, _BY_NAME, n=1)
        meant = f" Did you mean --{close[0]}?" if close else ""
        raise MagicUsageError(f"%agent has no option --{name}.{meant} %agent alone lists them.")
    return option


def _names(found: dict[str, list[str]], option: str) -> tuple[str, ...]:
    names = [name.strip() for text in found.get(option, ()) for name in text.split(",")]
    for name in names:
        if not name.isidentifier():
            raise MagicUsageError(
                f"--{option} needs names of variables with commas and no blanks between, not "
                f"{name or 'nothing'!r}: %agent {_BY_NAME[option].example}"
            )
    return tuple(dict.fromkeys(names))


def _tools(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the tools that are named; what one is about (``fetch=HOST,HOST``) is left whole."""
    names = (name for text in texts for name in ([text] if "=" in text else text.split(",")))
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _value(option: Option, row: Setting, texts: Sequence[str]) -> Any:
    """Return an option's value for its setting; the last one that was given, or all for a list."""
    text = texts[-1]
    if row.kind is bool:
        return True
    if row.choices and text not in row.choices:
        raise MagicUsageError(
            f"--{option.name} is one of {', '.join(row.choices)}, not {text!r}: "
            f"%agent {option.example}"
        )
    if row.kind is list:
        return [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return _number(option, row.kind, text) if row.kind in (int, float) else text


def _number(option: Option, kind: type, text: str) -> Any:
    what = "whole number" if kind is int else f"number of {option.value.lower()}"
    try:
        number = kind(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise MagicUsageError(
            f"--{option.name} needs a {what}, not {text!r}: %agent {option.example}"
        )
    return number


def _check(request: Request) -> None:
    """Refuse options that contradict each other."""
    if request.goes_on and request.new:
        raise MagicUsageError("--continue and --new contradict each other: leave one out.")
    if request.out is not None and request.out.isidentifier():
        raise MagicUsageError(
            f"--out is the folder of the session: --out ./{request.out}, or -o {request.out} "
            "to take back a variable."
        )
    if request.insert and request.background:
        raise MagicUsageError(
            "--insert needs the cell to wait: leave --background out, "
            "or open run.notebook when the run has ended."
        )


# --- defaults for all questions ------------------------------------------------------------------

_NOTHING = {str: (Unicode, ""), int: (Int, 0), float: (Float, 0.0)}


def traits() -> dict[str, Any]:
    """Return the traits that ``%config AgentMagics`` can set, by name; each is empty at first."""
    return {
        _trait(row): _make_trait(row).tag(config=True) for row in SETTINGS.values() if row.trait
    }


def defaults(magics: Any) -> dict[str, Any]:
    """Return the settings that ``%config AgentMagics`` has set."""
    rows = (row for row in SETTINGS.values() if row.trait)
    return {row.name: value for row in rows if (value := getattr(magics, _trait(row)))}


def _trait(row: Setting) -> str:
    return row.magic_name.replace("-", "_")


def _make_trait(row: Setting) -> Any:
    if row.choices:
        return Enum(("", *row.choices), "", help=row.trait)
    kind, nothing = _NOTHING[row.kind]
    return kind(nothing, help=row.trait)
