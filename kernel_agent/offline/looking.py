"""The cells that look at a table, as a good analyst would type them.

The first look is short and the same for every table: each column with its type, what is missing,
how many different values it has, and these or their range. A second look is written only where
the first shows the need of it: at the columns of a table so wide, or of texts so long, that the
observation was shortened; and at the values of a column with too many of them to list, where the
question may name one. :mod:`kernel_agent.offline.printed` reads what they print.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_agent.offline.cells import Cell, quote
from kernel_agent.offline.matching import canonical, tokens_of
from kernel_agent.offline.mentions import Mention, mentions_of
from kernel_agent.offline.schema import Column, Table
from kernel_agent.offline.words import SAME

_MOST_COLUMNS = 40  # looked at closely; with the room below they fill about an observation
_ROOM = 5000  # characters for all of them
_CLEAR = {"col", "val", "num", "date", "noun", "monthname", "periodnoun", "unit"}


def first_look(variable: str, *, mixed: bool, workbook: str = "") -> str:
    """Return the code that prints a line for the table and one for each of its columns.

    Parameters
    ----------
    variable
        The table's variable.
    mixed
        Whether cells may hold lists, or numbers beside text, which have no order.
    workbook
        The file, where it may have other sheets than the one that was read.
    """
    sheets = (
        f"with pd.ExcelFile({quote(workbook)}) as workbook:\n"
        "    names = workbook.sheet_names\n"
        'print(f"Sheet {names[0]!r}, the first of {len(names)}")\n'
    )
    return (
        f'print("{variable}: %d rows x %d columns," % {variable}.shape, {variable}.index)\n'
        f"{sheets if workbook else ''}"
        f"{_each_column(variable, mixed=mixed)}\n{variable}.head()"
    )


def look_at(variable: str, columns: Sequence[Column]) -> str:
    """Return the code that prints the lines of some columns, after they were changed."""
    names = ", ".join(quote(c.name) for c in columns)
    mixed = any(c.kind == "other" for c in columns)
    return _each_column(f"{variable}[[{names}]]", mixed=mixed)


def _each_column(table: str, *, mixed: bool) -> str:
    values = "values = column.dropna().unique().tolist()"
    if mixed:
        values = (
            "known = column.dropna()\n"
            "    if known.dtype == object:  # lists, or numbers among text: looked at as text\n"
            "        known = known.astype(str)\n"
            "    values = known.unique().tolist()"
        )
    return (
        f"for name, column in {table}.convert_dtypes().items():\n"
        f"    {values}\n"
        "    few = len(values) <= 30\n"
        '    shown = sorted(values) if few else f"{min(values)!r} to {max(values)!r}"\n'
        '    counts = f"{column.isna().sum()} missing, {len(values)} distinct"\n'
        '    print(f"{name!r}: {column.dtype}, {counts}:", shown)'
    )


def closer_look(table: Table, question: str) -> Cell:
    """Return the cell that looks at the columns which a shortened observation did not show.

    Of a table with many columns it chooses those that share most words with the question, and
    names some of the others.
    """
    variable, source, choice = table.variable, table.variable, ""
    if table.width > _MOST_COLUMNS:
        source = f"{variable}[close]"
        choice = (
            f"asked = {{{', '.join(map(quote, _find_words(question)))}}}\n\n\n"
            "def shared(name):\n"
            '    """Count the words of a column\'s name that the question may mean."""\n'
            '    words = str(name).lower().replace("_", " ").split()\n'
            "    return sum(word in asked or (len(word) > 2 and any(a.startswith(word[:5])"
            " for a in asked)) for word in words)\n\n\n"
            f"close = sorted(filter(shared, {variable}), key=shared, reverse=True)"
            f"[:{_MOST_COLUMNS}]\n"
            f"close = close or list({variable})[:20]\n"
        )
    return Cell(
        thought=f"{variable} has too much in it for one look. I look closer at"
        f" {'the columns that the question may mean' if choice else 'it, with long values cut'}.",
        code=choice + _look_shortened(source, min(table.width, _MOST_COLUMNS))
        + (f'\nprint("Other columns:", [name for name in {variable} if name not in close][:60])'
           if choice else ""),
    )  # fmt: skip


def _find_words(question: str) -> list[str]:
    """Return the question's words and others for the same."""
    said = [t.low for t in tokens_of(question) if t.kind in ("word", "number")]
    said += [t.low for q in tokens_of(question) if q.kind == "quote" for t in tokens_of(q.low)]
    meant = {canonical(word) for word in said}
    return list(dict.fromkeys([*said, *sorted(meant), *(w for w in SAME if SAME[w] in meant)]))


def _look_shortened(table: str, columns: int) -> str:
    room = max(40, _ROOM // columns - 70)
    return (
        f"for name, column in {table}.convert_dtypes().items():\n"
        "    known = column.dropna()\n"
        "    known = known.astype(str) if known.dtype == object else known\n"
        "    values = known.unique().tolist()\n"
        "    shown = sorted(values) if len(values) <= 30 else values\n"
        f"    if len(values) > 30 or len(str(values)) > {room}:\n"
        '        shown = f"{str(min(values))[:30]!r} to {str(max(values))[:30]!r}"\n'
        '    counts = f"{column.isna().sum()} missing, {len(values)} distinct"\n'
        '    print(f"{name!r}: {column.dtype}, {counts}:", shown)'
    )


def values_look(table: Table, question: str) -> Cell | None:
    """Return the cell that looks for values that the question names; None when it can name none.

    Only columns count that have too many values to list, and only questions with a word that
    may be such a value: an unknown one, or one written with a capital; or with the column itself.
    """
    columns = [c for c in table.columns if c.kind == "text" and not c.listed]
    mentions, misspelt = mentions_of(question, table)
    if not columns or not (misspelt or any(_may_be_value(m, columns) for m in mentions)):
        return None
    said = " ".join(re.sub(r"""["\u201c\u201d\u2018]|(?<!\w)'|'(?!\w)""", " ", question).split())
    names = ", ".join(quote(c.name) for c in columns[:_MOST_COLUMNS])
    return Cell(
        thought="The question may name a value that was not listed. I look which one.",
        code=(
            f"question = {quote(' ' + said.lower()[:600])}\n"
            f"for name in [{names}]:\n"
            f"    values = {table.variable}[name].dropna().astype(str).unique().tolist()\n"
            '    named = [value for value in values if f" {value.lower()}" in question]\n'
            '    print(f"{name!r} in the question:", sorted(named, key=len)[-12:])'
        ),
    )


def _may_be_value(mention: Mention, columns: Sequence[Column]) -> bool:
    if mention.kind == "unknown":
        return True
    if mention.kind == "col":
        return not mention.exact or any(c in columns for c in mention.columns)
    capital = any(word[:1].isupper() for word in mention.text.split())
    return capital and mention.start > 0 and mention.kind not in _CLEAR
