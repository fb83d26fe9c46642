"""Read a line or cell of ``%agent``: its options, and the question after them.

Options that are settings come from the table of settings, with the defaults that ``%config`` sets.
One expression finds them, one after the other from the line's beginning, the table says what their
values are, and ``--`` ends them.

The rest of a line is prose: in it, an apostrophe opens nothing and ``--`` is a dash, so no shell's
rules (shlex, argparse) can divide it. Nothing in it is ever an option, and nothing is filled in: a
question may hold what others wrote, a pasted mail or the name of a column. So that an option that
was meant is not lost in it, a line with one behind the question is refused.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
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


EXAMPLE = "--data sales.csv How many rows?"
OPTIONS = (
    Option(name="data", value="PATH", example=EXAMPLE,
           about="a file or folder to ask about; again for more"),
    Option(name="in", short="i", value="NAMES", example="-i df,prices Which sold most?",
           about="variables of yours to pass in; the model is told types and first rows"),
    Option(name="get", short="o", value="NAMES", example="-i df -o result Sales by month?",
           about="variables to take back when the question is answered"),
    Option(name="tools", value="NAMES", example="--tools rate What is 5 $ in euros?",
           about="functions of yours, marked @tool, that the code may call; sql, …"),
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
_BLANKS = re.compile(r"\s*")
_OPTION = re.compile(
    r"""(?P<word>--(?P<long>[a-z][\w-]*)|-(?P<short>[io]))(?=[\s=]|$)"""
    r"""(?:(?:=|\s+)(?P<value>"[^"]*"|'[^']*'|\S+))?"""
)
_END = re.compile(r"--(?=\s|$)")
_QUOTED = re.compile(r"""(?<!\S)(?:"[^"]*"|`[^`]*`|“[^”]*”)""")
_LIKE_AN_OPTION = re.compile(r"(?<!\S)(?:--[A-Za-z][\w-]*|-[io](?=[\s=]|$))")
_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # as word processors and mails have them
_VARIABLE = re.compile(r"\$(?P<shell>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)[^{}]*\}")
WORD_CHARS = 40  # of a word of the line, in a message


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
%agent [options] TASK             ask about your data; the steps are shown below
%agent --data PATH TASK           about a file, or a folder of them
%agent -i df -o result TASK       about a variable of yours, with a result to go on with
run = %agent TASK                 run.answer, run.text, run.status, run.steps, run.notebook

%%agent [options]
TASK over several lines

Options come first, and -- ends them; TASK is taken as it is written: nothing is filled in.

{_usage()}

%agent stop       stops what runs          %agent status      says what runs
%agent show       shows the running or the last run again
%agent undo       takes the last step back; `%agent undo 3: the join was wrong` three of them,
                  and `%agent undo question` the last question
%config AgentMagics.model = "…"            a default; %config AgentMagics lists all

Questions of one notebook share a session: a later one builds on what an earlier one computed, also
with another --model, --format or --approve. Another --data, --tools, --sandbox and the like need a
new kernel: files, tools and variables passed in are there again; with --new they are not. The
session before is kept until the new one has answered.
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

    @property
    def eased(self) -> tuple[str, ...]:
        """The options, as they are written, by which less is asked about or held back."""
        given = self.settings
        hosts = given.get("allow_hosts") or ()
        return (
            *(["--approve never"] if given.get("approve") == "never" else []),
            *(["--sandbox none"] if given.get("sandbox") == "none" else []),
            *(f"--allow-host {host}" for host in hosts),
        )

    def after(self, before: Request) -> Request:
        """Return it with what it leaves open as it was for the session before."""
        return replace(
            self,
            data=self.data or before.data,
            tools=self.tools or before.tools,
            mcp=self.mcp or before.mcp,
            settings={**before.settings, **self.settings},
        )


def read_request(line: str, cell: str | None = None, names: Container[str] = ()) -> Request:
    """Read the options at the beginning of the line, and take the rest as the task.

    Parameters
    ----------
    line
        As it was typed.
    cell
        What stands below it, part of the task.
    names
        Names of variables: that of one in ``$`` or braces is refused, since nothing is filled in.

    Raises
    ------
    UsageError
        IPython's: shown as one line, with what to write instead.

    Examples
    --------
    >>> read_request("--data sales.csv How many rows?").data
    ('sales.csv',)
    >>> read_request("-- What does --data do?").task
    'What does --data do?'
    """
    found, prose, is_ended = _divide(line)
    if not is_ended:
        _check_prose(prose)
        _check_variables(prose, names, given=_names(found, "in"))
    task = " ".join(prose.split())
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


def _divide(line: str) -> tuple[dict[str, list[str]], str, bool]:
    """Return the options with their values, the prose, and whether ``--`` stands between them."""
    found: dict[str, list[str]] = {}
    at = _end_of(_BLANKS, line, 0)
    while match := _OPTION.match(line, at):
        option = _option(match["long"] or _SHORT[match["short"]])
        found.setdefault(option.name, []).append(_text_of(option, match))
        at = _end_of(_BLANKS, line, match.end() if option.value else match.end("word"))
    end = _END.match(line, at)
    return found, line[end.end() if end else at :], end is not None


def _end_of(expression: re.Pattern[str], line: str, at: int) -> int:
    match = expression.match(line, at)
    return match.end() if match else at


def _text_of(option: Option, match: re.Match[str]) -> str:
    """Return what was written for an option's value."""
    written = match["value"] or ""
    if not option.value:
        if match.string[match.end("word") :].startswith("="):
            raise MagicUsageError(f"--{option.name} takes no value: leave out what is behind =.")
        return ""
    text = written.strip("\"'")
    if not text or _OPTION.fullmatch(written) or _END.fullmatch(written):
        raise MagicUsageError(f"--{option.name} needs a value, as in: %agent {option.example}")
    return text


def _check_prose(prose: str) -> None:
    """Refuse prose in which an option seems to be meant: it would be lost there."""
    first = prose.split(maxsplit=1)[:1]
    bare = first[0].lstrip(_DASHES).partition("=")[0] if first else ""
    if first and first[0] != bare and (bare in _BY_NAME or bare in _SHORT):
        raise MagicUsageError(
            f"{first[0][:WORD_CHARS]} is no option as it is written: --{_SHORT.get(bare, bare)} "
            "is, with two hyphens."
        )
    if match := _LIKE_AN_OPTION.search(_QUOTED.sub("quoted", prose)):
        word = match[0][:WORD_CHARS]
        raise MagicUsageError(
            f"{word} stands in the question, where no option is read: put options first, as in "
            f"%agent {EXAMPLE} If it belongs to the question, put -- before the question."
        )


def _check_variables(prose: str, names: Container[str], *, given: Sequence[str]) -> None:
    """Refuse prose in which a variable seems to be meant: it would be asked about by its name."""
    for match in _VARIABLE.finditer(prose):
        name = match["shell"] or match["braced"]
        if name in names and name not in given:
            raise MagicUsageError(
                f"{match[0][:WORD_CHARS]} is not filled in: pass the variable in with -i {name}, "
                "or put -- before the question if it is meant as it is written."
            )


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
    """Return the tools that are named; what one is about (``sql=A,B``) is left whole."""
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
