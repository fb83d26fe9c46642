"""A traceback as the person who wrote the cell needs it: their frames, the type, the message.

Pure. IPython hands over a list of strings (its "Context" mode): a rule, a header, one string a
frame with five source lines and an arrow, the message, and the same again for each exception of
a chain. Syntax errors and exceptions raised while a traceback is made look different, and
exception groups come as Python's own text on stderr. A kernel can also send anything else: what
is not recognised is kept as it is, and bounded where it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from kernel_agent.records import CellError, OutputDict, error_output
from kernel_agent.safe import one_line, plain, shorten

# CPython 3.11 has a frame for each, in which IPython numbers the lines of another place.
_COMPREHENSION = re.compile(r", in <(?:(?:list|dict|set)comp|genexpr)>")
_LISTED = re.compile(r"^(?:-+>)? *(\d+) (.*)$", re.MULTILINE)

FIRST_FRAMES, LAST_FRAMES = 3, 8  # frames of the user's code that are shown of each exception
MAX_PART = 40_000  # characters read of one string
MAX_PARTS = 5_000  # strings read; Python's recursion limit gives about a thousand

_RULE = re.compile(r"-{20,}\s*$")
_HEADER = re.compile(r"(?:[\w.]+\s+)?Traceback \(most recent call last\):?\s*$")
_CELL = re.compile(r"\s*Cell In\[(?P<n>\d+)\], line (?P<line>\d+)(?P<where>, in .+)?")
_FILE = re.compile(r"\s*File (?P<path>.+?):(?P<line>\d+)(?:,? in (?P<where>.+))?\s*$", re.MULTILINE)
_ARROW = re.compile(r"^-+> *\d+ ?(.*)$", re.MULTILINE)
_NUMBERED = re.compile(r"\bCell In\[(\d{1,9})\]")
_NO_SOURCE = "'Could not get source"
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/|/lib(?:64)?/python\d|\.p(?:yx|xi|xd)$|^<frozen "
    r"|/kernel_agent/inkernel/"
)

CELL_FILE = re.compile(r"(?:/[\w.~-]{1,100}){0,12}/ipykernel_\d{1,10}/\d{1,20}\.py")
"""The name under which Python knows a cell in warnings and in its own tracebacks."""

_NATIVE_FRAME = re.compile(
    r'^(?P<bar>[ |+]*)File "(?P<path>[^"\n]+)", line \d+.*\n'
    r"(?:(?P=bar)  (?!File ).*\n)*",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class ShortTraceback:
    """A traceback in two parts: ``message`` must not be cut away, ``before`` may be."""

    before: str
    message: str


@dataclass(frozen=True, kw_only=True)
class _Part:
    kind: str  # "frame", "library", "chain", "text"
    text: str = ""


def cut_traceback(error: CellError) -> ShortTraceback:
    """Return the frames of the user's code, library frames counted, and the message.

    Parameters
    ----------
    error
        As Jupyter sent it; every part of it may be anything.
    """
    ename = one_line(error.ename) or "Error"
    message = _message(f"{ename}: {_bound(error.evalue)}")
    texts = [_bound(text) for text in error.traceback[:MAX_PARTS]]
    known = _listed_lines(texts)
    parts = [part for text in texts for part in _parts(text, known)]
    last = max((i for i, p in enumerate(parts) if p.kind in ("frame", "library")), default=-1)
    said = _message("\n".join(part.text for part in parts[last + 1 :]))
    if not any(line.startswith(ename) for line in said.split("\n")):
        said = f"{said}\n{message}".strip()
    return ShortTraceback(before="\n".join(_frames(parts[: last + 1])), message=said)


def line_of_cell(error: CellError) -> int:
    """Return the line of the cell itself at which it failed, from 1; 0 where nothing says it."""
    heads = (_CELL.match(_bound(text)) for text in error.traceback[:MAX_PARTS])
    lines = (head["line"] for head in heads if head and not head["where"])
    return int(next(lines, "0")[:_LINE_DIGITS])


_LINE_DIGITS = 9


def cut_native(text: str) -> str:
    """Drop library frames from tracebacks in Python's own form; name cells as cells."""
    if "Traceback (most recent call last)" in text:
        text = _NATIVE_FRAME.sub(lambda m: "" if _LIBRARY.search(m["path"]) else m[0], text)
    return CELL_FILE.sub("<cell>", text) if "/ipykernel_" in text else text


def short_error(output: OutputDict, numbers: Mapping[int, int]) -> OutputDict:
    """Return an error with the short traceback, and cells by their numbers in the notebook.

    Parameters
    ----------
    output
        As recorded.
    numbers
        The notebook's number of each step's cell.
    """

    def renumber(named: re.Match[str]) -> str:
        return f"Cell In[{numbers.get(int(named[1]), named[1])}]"

    ename, evalue = str(output.get("ename", "")), str(output.get("evalue", ""))
    lines = output.get("traceback")
    given = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    cut = cut_traceback(CellError(ename=ename, evalue=evalue, traceback=tuple(given)))
    short = [_NUMBERED.sub(renumber, text) for text in (cut.before, cut.message) if text]
    return error_output(ename, evalue, short)


def _listed_lines(texts: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the lines of source that frames show, by cell and number."""
    found: dict[tuple[str, str], str] = {}
    for text in texts:
        head = _CELL.match(text)
        if head and not _COMPREHENSION.match(head["where"] or ""):
            found |= {(head["n"], n): line for n, line in _LISTED.findall(text)}
    return found


def _parts(text: str, known: Mapping[tuple[str, str], str]) -> Iterator[_Part]:
    """Read one string of a traceback; a syntax error is a frame and a message in one."""
    if not text.strip() or _RULE.match(text) or _HEADER.match(text):
        return
    head = _frame_head(text)
    if text.strip().startswith(_CHAIN):
        yield _Part(kind="chain", text=f"\n{text.strip()}\n")
    elif head is None:
        yield _Part(kind="text", text=text.strip("\n"))
    elif (cell := _CELL.match(text)) and _COMPREHENSION.match(cell["where"] or ""):
        yield _frame(head, known.get((cell["n"], cell["line"]), "").strip())
    else:
        lines = text.strip("\n").split("\n")[1:]
        arrow = _ARROW.search(text)
        told = 0 if arrow else next((i for i, x in enumerate(lines) if x[:1].strip()), len(lines))
        source = arrow[1].strip() if arrow else _dedent("\n".join(lines[:told]))
        yield _frame(head, source)
        if not arrow and lines[told:]:
            yield _Part(kind="text", text="\n".join(lines[told:]))


def _frame_head(text: str) -> str | None:
    """Return the line that says where a frame is; empty for a library's, None for no frame."""
    if match := _CELL.match(text):
        return f"Cell In[{match['n']}], line {match['line']}{match['where'] or ''}"
    if match := _FILE.match(text):
        where = f", in {match['where']}" if match["where"] else ""
        known = _LIBRARY.search(match["path"])
        return "" if known else f"File {match['path']}, line {match['line']}{where}"
    return None


def _frame(head: str, source: str) -> _Part:
    if not head:
        return _Part(kind="library")
    if not source or source.startswith(_NO_SOURCE):
        return _Part(kind="frame", text=head)
    return _Part(kind="frame", text=f"{head}\n{_indent(source)}")


def _bound(text: str) -> str:
    return plain(shorten(text, MAX_PART))


def _message(text: str) -> str:
    return text.strip().removesuffix(":")


def _frames(parts: Iterable[_Part]) -> Iterator[str]:
    for kind, group in groupby(parts, key=lambda part: part.kind):
        texts = [part.text for part in group]
        if kind == "library":
            plural = "s" if len(texts) > 1 else ""
            yield f"({len(texts)} library frame{plural} left out)"
        elif kind == "frame":
            yield from _few(list(_collapse(texts)))
        else:
            yield from texts


def _collapse(frames: Iterable[str]) -> Iterator[str]:
    for frame, group in groupby(frames):
        count = len(list(group))
        yield frame
        if count > 1:
            yield f"(the frame above {count - 1:,} more times)"


def _few(frames: list[str]) -> list[str]:
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    if left_out <= 1:
        return frames
    return [*frames[:FIRST_FRAMES], f"({left_out:,} frames left out)", *frames[-LAST_FRAMES:]]


def _dedent(text: str) -> str:
    lines = text.strip("\n").split("\n")
    margin = min((len(x) - len(x.lstrip(" ")) for x in lines if x.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).strip("\n")


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
