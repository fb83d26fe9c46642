"""Reading a look back: the lines that :mod:`~kernel_agent.offline.looking` prints.

Names and values are printed as Python literals, and read as such, so that quotes, line ends and
any script survive. A line that was cut, or that is something else, is no column; how many
columns a table has stands in its first line, so that a missing one is noticed.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernel_agent.offline.schema import Column, Table, Value

_HEADER = re.compile(
    r"(?P<variable>\w+): (?P<rows>\d+) rows x (?P<width>\d+) columns, (?P<index>\w+\(.*)"
)
_NAME = r"""(?P<name>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"].*?)"""
_COLUMN = re.compile(
    _NAME + r": (?P<dtype>\w+(?:\[[^\]]*\])?), (?P<missing>\d+) missing,"
    r" (?P<distinct>\d+) distinct: (?P<values>.*)"
)
_OTHERS = "Other columns: "
_SHEET = re.compile(r"Sheet (?P<name>.+), the first of (?P<count>\d+)")
_FITS = re.compile(_NAME + r"(?P<styles>(?: fits %\S+(?: %\S+)*){2,})")
_NAMED = re.compile(_NAME + r" in the question: (?P<values>\[.*\])")
_BLANKS = re.compile(_NAME + r" has no value where it says: (?P<values>\[.*\])")
_MOST_WHOLE = 12  # as many different whole numbers at most can be categories
_NUMBER = re.compile(r"[-+]?[$€£¥]? ?\d[\d.,]* ?[%€$£]?")
DATE = re.compile(
    r"\d{4}[-/]\d{1,2}(?:[-/]\d{1,2})?(?:[ T].*)?|\d{4}\.\d{1,2}\.\d{1,2}(?: .*)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?: .*)?"
    r"|(?:\d{1,2} )?[A-Za-z]{3,9} (?:\d{1,2},? )?\d{4}"
)
_NOTHING = {"", "-", "--", "?", ".", "n/a", "na", "nan", "none", "null"}


def read_tables(observations: Iterable[str]) -> dict[str, Table]:
    """Read every look in the observations; a later, partial one updates the earlier."""
    tables: dict[str, Table] = {}
    current = ""
    for observation in observations:
        for line in observation.splitlines():
            header = _HEADER.fullmatch(line)
            if header:
                current = header["variable"]
                tables[current] = _empty(header)
            elif current:
                tables[current] = _with_line(tables[current], line)
    return {variable: table for variable, table in tables.items() if table.columns}


def look_again(table: Table, observation: str) -> Table:
    """Return a table with the columns that a later look printed."""
    for line in observation.splitlines():
        table = _with_line(table, line)
    return table


def read_named(observation: str) -> dict[str, tuple[Value, ...]]:
    """Read which values the question names, by column."""
    named: dict[str, tuple[Value, ...]] = {}
    for line in observation.splitlines():
        match = _NAMED.fullmatch(line)
        name = _literal(match["name"]) if match else None
        if match and isinstance(name, str):
            named[name] = _values(match["values"]) or ()
    return named


def _empty(header: re.Match[str]) -> Table:
    plain = f"RangeIndex(start=0, stop={header['rows']}, step=1)"
    return Table(
        variable=header["variable"],
        rows=int(header["rows"]),
        width=int(header["width"]),
        columns=(),
        odd_index=header["index"] != plain,
    )


def _with_line(table: Table, line: str) -> Table:
    """Return the table with the facts of one printed line, if it has any."""
    if line.startswith(_OTHERS):
        others = tuple(map(str, _values(line.removeprefix(_OTHERS)) or ()))
        return table.merged(replace(table, columns=(), others=others))
    sheet = _SHEET.fullmatch(line)
    if sheet:
        name = _literal(sheet["name"])
        return replace(table, sheet=str(name or ""), sheets=int(sheet["count"]))
    fits = _FITS.fullmatch(line)
    if fits:
        return table.doubting(str(_literal(fits["name"])), fits["styles"].split(" fits ")[1:])
    blanks = _BLANKS.fullmatch(line)
    if blanks:
        words = tuple(str(v) for v in _values(blanks["values"]) or () if str(v).strip())
        return table.blank(str(_literal(blanks["name"])), words)
    match = _COLUMN.fullmatch(line)
    name = _literal(match["name"]) if match else None
    column = _column(str(name), match) if match and name is not None else None
    if column is None:
        return table
    seen = table.merged(replace(table, columns=(column,), others=()))
    return replace(seen, odd_names=table.odd_names or not isinstance(name, str))


def _column(name: str, match: re.Match[str]) -> Column | None:
    """Return a column as one line shows it; None when its values were cut."""
    text = match["values"]
    listed = _values(text) if text.startswith("[") else None
    ends = listed[:1] + listed[-1:] if listed is not None else _span(text)
    if ends is None:
        return None
    distinct, kind = int(match["distinct"]), _kind(match["dtype"])
    texts = [str(v) for v in (ends if listed is None else listed)]
    numeric = kind in ("number", "whole", "date")
    few = listed is not None and (
        kind in ("text", "bool") or (kind == "whole" and distinct <= _MOST_WHOLE)
    )
    return Column(
        name=name,
        kind=kind if distinct else "empty",
        missing=int(match["missing"]),
        distinct=distinct,
        low=texts[0] if numeric and texts else None,
        high=texts[-1] if numeric and texts else None,
        values=listed if listed and few else (),
        listed=few and distinct > 0,
        disguise=_disguise(texts) if kind in ("text", "other") else "",
        sample=" ".join(texts)[:200] if kind in ("text", "other") else "",
    )


def _kind(dtype: str) -> str:
    """Return the kind of a column with that pandas type; lists and mixtures are ``other``."""
    kinds = {
        "whole": r"U?[Ii]nt\d+|uint\d+",
        "number": r"[Ff]loat\d+",
        "bool": r"bool(ean)?",
        "text": r"string|str|category",
        "date": r"datetime64\[.*\]",
    }
    return next((kind for kind, style in kinds.items() if re.fullmatch(style, dtype)), "other")


def _disguise(shown: Sequence[str]) -> str:
    """Classify the shown values of a text column: ``number``, ``date`` or neither."""
    texts = [t.strip() for t in shown if t.strip().lower() not in _NOTHING]
    if not texts:
        return ""
    if all(DATE.fullmatch(t) for t in texts):
        return "date"
    return "number" if all(_NUMBER.fullmatch(t) for t in texts) else ""


def _span(text: str) -> tuple[Value, ...] | None:
    """Read ``'first' to 'last'``; None for other text."""
    for between in re.finditer(" to ", text):
        first, last = _literal(text[: between.start()]), _literal(text[between.end() :])
        if first is not None and last is not None:
            return str(first), str(last)
    return None


def _values(text: str) -> tuple[Value, ...] | None:
    """Read a printed list; None when it is not one."""
    value = _literal(text)
    return value if isinstance(value, tuple) else None


def _literal(text: str) -> Value | tuple[Value, ...] | None:
    """Read a printed value: a literal, a list of them, or a call such as ``Timestamp('…')``."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if isinstance(node, ast.List):
        parts = [_scalar(part) for part in node.elts]
        return tuple(p for p in parts if p is not None) if None not in parts else None
    return _scalar(node) if not isinstance(node, ast.Tuple) else text.strip()


def _scalar(node: ast.expr) -> Value | None:
    """Return a printed value; anything but a number, text or truth value as its text."""
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.Name(id="inf"):
            return math.inf
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _scalar(operand)
            return -number if isinstance(number, int | float) else None
        case ast.Call(args=[ast.Constant(value=str() as text), *_]):
            return text
    return ast.unparse(node) if isinstance(node, ast.Call) else None
