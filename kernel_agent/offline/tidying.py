"""Text that stands for something else: numbers and dates are converted, once, after the first look.

A column is converted only where all of it can be; otherwise it stays the text it was.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from kernel_agent.errors import ModelError
from kernel_agent.offline.cells import Cell, quote
from kernel_agent.offline.conversation import failure
from kernel_agent.offline.looking import look_at
from kernel_agent.offline.printed import DATE, look_again
from kernel_agent.offline.schema import Column, Table


def tidy(table: Table, *, comma: bool = False) -> Generator[Cell, str, Table]:
    """Convert text that stands for numbers or dates, and look again; yields at most one cell.

    Parameters
    ----------
    table
        As the first looks showed it.
    comma
        Whether the table was read with the comma as the decimal sign.

    Raises
    ------
    ModelError
        The table has no rows or no header, or its columns cannot be converted.
    """
    _check_header(table)
    comma_seen = any(c.kind == "number" or decimal_comma(c.sample) for c in table.columns)
    disguised = [
        c for c in table.columns if c.disguise and (comma_seen or not (comma and _either_sign(c)))
    ]
    if not disguised and not table.odd_names:
        return table
    code, thoughts = [], []
    if table.odd_names:
        thoughts.append("Some columns are not named by text; I give them names.")
        code.append(f"{table.variable}.columns = [str(name) for name in {table.variable}]")
    if disguised:
        told = ", ".join(f"{c.name} ({c.disguise}s)" for c in disguised)
        thoughts.append(
            f"Some text stands for something else: {told}. I convert it where all of it fits."
        )
        code += [_conversion(table.variable, c, comma=comma) for c in disguised]
        code.append(look_at(table.variable, disguised))
    observation = yield Cell(thought=" ".join(thoughts), code="\n".join(code))
    failed = failure(observation)
    if failed:
        raise ModelError(
            f"Columns of {table.path} could not be converted ({failed[0]}: {failed[1]})."
        )
    return look_again(table, observation)


def _check_header(table: Table) -> None:
    """Refuse a table whose columns are not named by a header."""
    names = [c.name for c in table.columns]
    first = f"The first line of {table.path}"
    if table.rows == 0:
        raise ModelError(f"{table.path} has a header but no rows; there is nothing to analyse.")
    if [n for n in names if n != "index"] == [str(i) for i in range(len(set(names) - {"index"}))]:
        raise ModelError(
            f"The columns of {table.path} have numbers for names; name them (in JSON, write each"
            " row as an object with its columns' names)."
        )
    if _headless(table):
        raise ModelError(f"{first} holds numbers, not column names; add a header line.")
    named = [n for n in names if not n.startswith("Unnamed:")]
    if len(named) <= 1 < len(names) - len(named) and names[-1] not in named:
        raise ModelError(
            f"{first} names {len(named)} of {table.width} columns, so it seems to be a title;"
            " remove what stands above the header line."
        )


def _headless(table: Table) -> bool:
    """Whether the names look like a row: all numbers, or some and a value of its own column."""
    numbers = [c for c in table.columns if re.fullmatch(r"-?[\d.,]+", c.name)]
    values = [
        c
        for c in table.columns
        if (c.listed and c.name in c.values)
        or ("date" in (c.kind, c.disguise) and DATE.fullmatch(c.name))
    ]
    alone = len(numbers) == len(table.columns) and not table.others
    return alone or bool(values and any(c.kind in ("number", "whole") for c in numbers))


def _conversion(variable: str, column: Column, *, comma: bool) -> str:
    """Return the lines that convert a column if every value in it can be."""
    target = f"{variable}[{quote(column.name)}]"
    if column.disguise == "date":
        formats = date_formats(column.sample)
        if len(formats) == 1:
            written, start = target, ""
            if re.search(r":\d\d(?:\.\d+)?[+-]\d\d:?\d\d\b", column.sample):
                start = "# The times as written: offsets from UTC may differ, as in summer.\n"
                start += f'text = {target}.str.replace(r"[+-]\\d\\d:?\\d\\d$", "", regex=True)\n'
                written = "text"
            style = quote(formats[0])
            return (
                f'{start}dates = pd.to_datetime({written}, format={style}, errors="coerce")\n'
                f"if dates.count() == {target}.count():  # every one was read\n"
                f"    {target} = dates"
            )
        listed = ", ".join(map(quote, formats))
        return (
            f"fits = []\nfor style in ({listed}):\n"
            f'    dates = pd.to_datetime({target}, format=style, errors="coerce")\n'
            f"    if dates.count() == {target}.count():\n        fits.append(style)\n"
            f"if fits:\n    {target} = pd.to_datetime({target}, format=fits[0])\n"
            f'    print({quote(repr(column.name))}, *fits, sep=" fits ")'
        )
    comma = decimal_comma(column.sample) or (comma and not decimal_point(column.sample))
    thousands, point = (".", ",") if comma else (",", ".")
    whole = (
        rf"(?:[1-9]\d{{0,2}}(?:[{thousands}]\d{{3}})+|0|[1-9]\d*)"  # 00123 is a code, not a number
    )
    number = rf"[-+]?[$€£¥]? ?{whole}(?:[{point}]\d+)? ?[%€$£]?"
    cleaned = rf'text.str.replace(r"[^\d{point}+-]", "", regex=True)'
    if point == ",":
        cleaned += '.str.replace(",", ".")'
    return (
        f"text = {target}.dropna().astype(str).str.strip()\n"
        f'number = r"{number}"\n'
        'nothing = r"[-?.]*|n/?a|nan|<na>|none|null"\n'
        'if text.str.fullmatch(f"{number}|{nothing}", case=False).all():\n'
        f'    {target} = pd.to_numeric({cleaned}, errors="coerce")'
    )


def decimal_comma(sample: str) -> bool:
    """Whether sampled numbers can only be read with the comma as the decimal sign."""
    style = r"\.\d{3},|,(?:\d{1,2}|\d{4,})(?!\d)|\.\d{3}\.|(?<![\d.])0,\d"
    return bool(re.search(style, sample))


def decimal_point(sample: str) -> bool:
    """Whether sampled numbers can only be read with the point as the decimal sign."""
    return decimal_comma(sample.translate({ord(","): ".", ord("."): ","}))


def _either_sign(column: Column) -> bool:
    """Whether a point in a column's numbers may stand before thousands or before decimals."""
    sample = column.sample
    clear = decimal_comma(sample) or decimal_point(sample)
    return column.disguise == "number" and "." in sample and not clear


def date_formats(sample: str) -> tuple[str, ...]:
    """Return the formats that sampled dates may be written in, the likeliest first.

    Examples
    --------
    >>> date_formats("03/04/2021 25/12/2020")
    ('%m/%d/%Y', '%d/%m/%Y')
    >>> date_formats("Jan 1 2000")
    ('%b %d %Y',)
    """
    clock = next((c for c in (" %H:%M:%S", " %H:%M") if _has_clock(sample, c)), "")
    short = re.search(r"\b\d{1,2}([-/.])\d{1,2}\1(\d{4}|\d{2})\b", sample)
    if re.match(r"\d{4}[-/.]", sample):
        sep = sample[4]
        if sep == "-":
            return ("ISO8601",)
        days = re.match(r"\d{4}(\D)\d+\1\d", sample)
        return (f"%Y{sep}%m{sep}%d{clock}",) if days else (f"%Y{sep}%m",)
    if short:
        sep, year = short[1], "%Y" if len(short[2]) == 4 else "%y"
        styles = (f"%m{sep}%d{sep}{year}{clock}", f"%d{sep}%m{sep}{year}{clock}")
        return styles[::-1] if sep == "." else styles
    words = re.findall(r"[A-Za-z]+", sample)
    month = "%b" if words and max(map(len, words)) <= 3 else "%B"
    comma = "," if "," in sample else ""
    if re.match(r"\d{1,2} [A-Za-z]", sample):
        return (f"%d {month} %Y",)
    if re.match(r"[A-Za-z]+ \d{1,2}\b", sample):
        return (f"{month} %d{comma} %Y",)
    return (f"{month} %Y",)


def _has_clock(sample: str, style: str) -> bool:
    return bool(re.search(r"\d " + r":".join([r"\d{1,2}"] * style.count("%")) + r"\b", sample))
