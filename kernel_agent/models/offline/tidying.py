"""Text that stands for something else: numbers and dates are converted, once, after the first look.

A column is converted only where all of it can be; otherwise it stays the text it was.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from kernel_agent.errors import ModelError
from kernel_agent.models.offline.cells import Cell, quoted
from kernel_agent.models.offline.conversation import failure
from kernel_agent.models.offline.looking import look_at
from kernel_agent.models.offline.printed import look_again
from kernel_agent.models.offline.schema import Column, Table


def tidied(table: Table) -> Generator[Cell, str, Table]:
    """Convert what stands for something else, and look again; yields at most one cell.

    Raises
    ------
    ModelError
        The table has no rows or no header, or its columns cannot be converted.
    """
    if table.rows == 0:
        raise ModelError(f"{table.path} has a header but no rows; there is nothing to analyse.")
    if all(re.fullmatch(r"-?[\d.,]+", c.name) for c in table.columns) and not table.others:
        raise ModelError(
            f"The first line of {table.path} holds numbers, not column names; add a header line."
        )
    disguised = [c for c in table.columns if c.disguise]
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
        code += [_conversion(table.variable, c) for c in disguised]
        code.append(look_at(table.variable, disguised))
    observation = yield Cell(thought=" ".join(thoughts), code="\n".join(code))
    failed = failure(observation)
    if failed:
        raise ModelError(
            f"Columns of {table.path} could not be converted ({failed[0]}: {failed[1]})."
        )
    return look_again(table, observation)


def _conversion(variable: str, column: Column) -> str:
    """Return the lines that convert a column if every value in it can be."""
    target = f"{variable}[{quoted(column.name)}]"
    if column.disguise == "date":
        formats = date_formats(column.sample)
        if len(formats) == 1:
            return (
                f'dates = pd.to_datetime({target}, format={quoted(formats[0])}, errors="coerce")\n'
                f"if dates.count() == {target}.count():  # every one was read\n"
                f"    {target} = dates"
            )
        listed = ", ".join(map(quoted, formats)) + ("," if len(formats) == 1 else "")
        return (
            f"for style in ({listed}):\n"
            f'    dates = pd.to_datetime({target}, format=style, errors="coerce")\n'
            f"    if dates.notna().sum() == {target}.notna().sum():\n"
            f"        {target} = dates\n        break"
        )
    thousands, point = (".", ",") if _decimal_comma(column.sample) else (",", ".")
    whole = rf"(?:\d{{1,3}}(?:[{thousands}]\d{{3}})+|0|[1-9]\d*)"  # 00123 is a code, not a number
    number = rf"[-+]?[$€£¥]? ?{whole}(?:[{point}]\d+)? ?[%€$£]?"
    cleaned = rf'text.str.replace(r"[^\d{point}+-]", "", regex=True)'
    if point == ",":
        cleaned += '.str.replace(",", ".")'
    return (
        f"text = {target}.astype(str).str.strip()\n"
        f'number = r"{number}"\n'
        'nothing = r"[-?.]*|n/?a|nan|<na>|none|null"\n'
        'if text.str.fullmatch(f"{number}|{nothing}", case=False).all():\n'
        f'    {target} = pd.to_numeric({cleaned}, errors="coerce")'
    )


def _decimal_comma(sample: str) -> bool:
    """Whether sampled numbers can only be read with the comma as the decimal sign."""
    return bool(re.search(r"\.\d{3},|,(?:\d{1,2}|\d{4,})(?!\d)|\.\d{3}\.", sample))


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
