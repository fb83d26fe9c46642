"""Decisions on cells and calls, in a person's words and in a program's. Pure.

A decision is worth a line unless it is the ordinary one: a cell that runs because cells run, a call
of a tool that changes nothing.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernel_agent.records.cell import CellResult, Decision, HostCall, not_run
from kernel_agent.records.conversation import Json
from kernel_agent.records.event import Question
from kernel_agent.records.trace import Step
from kernel_agent.safe import encodable, one_line

CELLS_RUN = "cells are not asked about"
NO_EFFECTS = "the tool changes nothing outside"
NOBODY = "nobody can be asked here"
HOW_TO_ALLOW = (
    "What needs a person's approval is denied, because nobody can be asked here. Run it at a "
    "terminal, allow single tools (--approve-tool NAME=allow), or ask nobody (--approve never)."
)
DENIED = "PermissionError"  # the name of the error of a denied cell and of a denied call
MAX_SHOWN = 4_000  # characters of all of them: the question itself stays on the screen
MAX_ARGUMENTS = 40  # arguments in a question
MAX_NAME = 80
MAX_LINES = 30  # of a cell; of a longer one the question says how long it is
MAX_LINE = 200
PILED = 2  # marks over one letter; more are shown by their numbers

Approver: TypeAlias = Callable[[Question], Awaitable[Decision]]
"""Asks a person: a question goes in, a decision comes out."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """One decision with its subject: a step's cell, or one of its calls."""

    step: int
    what: str
    decision: Decision
    call: HostCall | None = None


def list_decisions(step: Step) -> Iterator[Decided]:
    """Return the decisions of a step that are worth telling, the cell's first."""
    calls = step.result.calls if step.result else ()
    if step.decision is not None and _tells(step.decision):
        yield Decided(step=step.number, what="cell", decision=step.decision)
    for call in calls:
        if call.decision is not None and _tells(call.decision):
            yield Decided(step=step.number, what=call.name, decision=call.decision, call=call)


def _tells(decision: Decision) -> bool:
    ordinary = decision.by == "policy" and decision.allowed
    return not (ordinary and decision.reason in (CELLS_RUN, NO_EFFECTS))


def denials(step: Step) -> tuple[str, ...]:
    """Return the denied parts of a step: ``cell``, or the names of the calls."""
    return tuple(d.what for d in list_decisions(step) if not d.decision.allowed)


def as_json(steps: Sequence[Step]) -> list[dict[str, Json]]:
    """Return the decisions of a run for ``--json``."""
    return [
        {
            "step": each.step,
            "kind": "cell" if each.call is None else "call",
            "name": each.what,
            "number": each.call.number if each.call else None,
            "allowed": each.decision.allowed,
            "by": each.decision.by,
            "reason": each.decision.reason,
            "seconds": round(each.decision.seconds, 3),
            "edited": each.decision.edited is not None,
            "influenced_by": list(each.call.influenced_by) if each.call else [],
            "contains": list(each.call.contains) if each.call else [],
        }
        for step in steps
        for each in list_decisions(step)
    ]


def decision_line(each: Decided) -> str:
    """Return a decision as one line.

    Examples
    --------
    >>> no = Decision(allowed=False, by="person", reason="not to them")
    >>> decision_line(Decided(step=1, what="send_mail", decision=no))
    'send_mail was denied by a person: not to them'
    """
    decision = each.decision
    what = "The cell" if each.call is None and each.what == "cell" else one_line(each.what, 80)
    if each.call is not None and each.call.number:
        what += f" (call {each.call.number})"
    who = "a person" if decision.by == "person" else "the policy"
    verb = "allowed" if decision.allowed else "denied"
    changed = ", who changed it first" if decision.edited is not None else ""
    after = f" after {decision.seconds:.0f} s" if decision.seconds >= 1 else ""
    why = f": {one_line(decision.reason, 400)}" if decision.reason else ""
    return f"{what} was {verb} by {who}{after}{changed}{why}"


def untrusted_line(step: Step) -> str:
    """Name the calls of a step whose results are untrusted; empty without any."""
    calls = step.result.calls if step.result else ()
    named = [f"{one_line(c.name, 80)} (call {c.number})" for c in calls if _came(c)]
    shown = ", ".join(named[:10]) + (f" and {len(named) - 10} more" if len(named) > 10 else "")
    return f"Untrusted data came from {shown}" if named else ""


def _came(call: HostCall) -> bool:
    denied = call.decision is not None and not call.decision.allowed
    return call.untrusted and not denied


def denial(what: str, decision: Decision) -> str:
    """Return the message to the model on a denied cell or call."""
    who = "a person" if decision.by == "person" else "the policy"
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{what} was denied by {who}{reason}. Nothing was done. Do not try the same again."


def denied_cell(decision: Decision) -> CellResult:
    """Return the result of a cell that was not run."""
    return not_run(DENIED, denial("this cell", decision))


# --- what a person is shown before deciding ----------------------------------------------------


def source_text(source: str) -> str:
    r"""Return source with nothing that would run hidden from the reader.

    A carriage return ends a line for Python, but lets a terminal write over it; characters that
    cannot be seen, or that turn text around, are shown by their numbers.

    Examples
    --------
    >>> source_text("steal()\rprint(1)")
    'steal()\nprint(1)'
    """
    lines = encodable(source).replace("\r\n", "\n").replace("\r", "\n")
    chars = set(lines)
    marks = "".join(filter(unicodedata.combining, chars))
    if marks:
        pile = re.compile(f"(?<=[{marks}]{{{PILED}}})[{marks}]+")
        lines = pile.sub(lambda match: "".join(map(_mark, match[0])), lines)
    # All characters are in the table: 30 million in steps of Python's took 6 s.
    return lines.translate({ord(char): _escape_char(char) for char in chars})


def _mark(char: str) -> str:
    return f"\\u{ord(char):04x}"


# Letters, marks and symbols that print as nothing (Unicode: Default_Ignorable_Code_Point, as far as
# Python calls them printable, and the blank pattern of Braille). Some may stand in a name.
_BLANK = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164,
              *range(0xFE00, 0xFE10), 0xFFA0, *range(0xE0100, 0xE01F0)])
)  # fmt: skip


def _escape_char(char: str) -> str:
    if char in "\n\t" or (char.isprintable() and char not in _BLANK):
        return char
    if unicodedata.category(char) == "Zs":  # spaces that are not ASCII's
        return f"\\u{ord(char):04x}"
    number = ord(char)
    return f"\\x{number:02x}" if number < 256 else f"\\U{number:08x}"


def cell_length(source: str) -> str:
    r"""Return a remark on the length of a cell that does not fit on the screen.

    Examples
    --------
    >>> cell_length("a = 1" + "\n" * 99)
    'It has 100 lines, above.'
    """
    lines = source_text(source).split("\n")
    longest = max(map(len, lines))
    has = [
        f"{len(lines):,} lines" if len(lines) > MAX_LINES else "",
        f"a line of {longest:,} characters" if longest > MAX_LINE else "",
    ]
    return f"It has {' and '.join(filter(None, has))}, above." if any(has) else ""


def question_text(question: Question, *, whole: bool = False, max_chars: int = MAX_SHOWN) -> str:
    """Return a call as a person reads it: one argument a line, long ones cut.

    Parameters
    ----------
    question
        About a call.
    whole
        Whether long arguments stay whole.
    max_chars
        What all arguments together may have otherwise.
    """
    given = question.arguments if isinstance(question.arguments, Mapping) else {}
    shown = list(given.items()) if whole else list(given.items())[:MAX_ARGUMENTS]
    room = None if whole else max(max_chars // max(len(shown), 4), 100)
    rows = [f"    {_parameter(name)}={_argument(value, room)}," for name, value in shown]
    if len(given) > len(shown):
        rows.append(f"    … {len(given) - len(shown)} more arguments")
    inside = "\n" + "\n".join(rows) + "\n" if rows else ""
    return source_text(f"{one_line(question.name, MAX_NAME)}({inside})")


def _parameter(name: str) -> str:
    """Return a parameter's name; one that a ``**`` took may be any text, even a fake line."""
    if name.isascii() and name.isidentifier() and len(name) <= MAX_NAME:
        return name
    return _shorten_text(json.dumps(name), MAX_NAME)


def _argument(value: Any, room: int | None) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if room is None else _shorten_text(text, room)


def _shorten_text(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def is_cut(question: Question) -> bool:
    """Say whether :func:`question_text` leaves something out."""
    return question_text(question) != question_text(question, whole=True)
