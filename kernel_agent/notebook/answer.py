"""An answer as a person would write it, and the display that belongs to it. Pure.

The same for notebook and page, so they cannot differ: a number with its thousands, a day without
its midnight, a dict as names and values, a table from the data that the kernel described, text as
the Markdown that it may be. What has no such form is its printed text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_agent.records import Answer, OutputDict, RunRecords, Step
from kernel_agent.safe import FORMATS, plain

MAX_ENTRIES = 50  # of a dict that is shown as a list
SEPARATED = 10_000  # from here on thousands are set apart: years are numbers, too
_DAYS = frozenset(("Timestamp", "datetime", "datetime64", "date"))
_SCALAR = re.compile(r"\bnp\.(?:float|int|uint|bool|str)\w*\(([^()]*)\)")


def number_text(value: float) -> str:
    """Return a number as a person writes it.

    Examples
    --------
    >>> [number_text(n) for n in (2007, 1234567, 91219.93250000001, 0.5, -12345.0)]
    ['2007', '1,234,567', '91,219.9325', '0.5', '-12,345']
    """
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= SEPARATED else str(value)
    if not math.isfinite(value):
        return str(value)
    size = math.floor(math.log10(abs(value))) if value else 0
    if not -5 <= size < 15:
        return f"{value:.6g}"
    digits = max(9 - size, 0)
    text = f"{value:,.{digits}f}" if abs(value) >= SEPARATED else f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_text(answer: Answer) -> bool:
    """Whether an answer is text, which may be Markdown."""
    return answer.kind in ("text", "str")


def short_answer(answer: Answer) -> str:
    """Return a number, a day or a word as it is shown large; empty for anything else."""
    value = answer.value
    if is_text(answer) or value is None:
        return ""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return number_text(value)
    if answer.kind in _DAYS and isinstance(value, str):
        return plain(value).replace("T", " ").removesuffix(" 00:00:00")
    return ""


def answer_entries(answer: Answer) -> list[tuple[str, str]]:
    """Return the names and values of a dict or a Series of plain values; empty for others."""
    value = answer.value
    if not isinstance(value, Mapping) or not 0 < len(value) <= MAX_ENTRIES:
        return []
    if not all(v is None or isinstance(v, str | int | float) for v in value.values()):
        return []
    return [(plain(str(name)), _entry(item)) for name, item in value.items()]


def _entry(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return plain(str(value))


def printed_answer(answer: Answer) -> str:
    """Return any other answer as it was printed, without the names of numpy's types."""
    return _SCALAR.sub(r"\1", plain(answer.text).strip("\n"))


# --- displays ------------------------------------------------------------------------------


def latest_outputs(run: RunRecords) -> Iterator[tuple[Step, OutputDict]]:
    """Yield the displays of the steps that hold, the latest first, each with its step."""
    for step in reversed(run.steps):
        if step.number not in run.undone:
            for output in reversed(step.result.outputs if step.result else ()):
                yield step, output


def answer_output(run: RunRecords) -> tuple[Step, OutputDict] | None:
    """Return what ``final_answer`` has displayed."""
    found = ((step, output) for step, output in latest_outputs(run) if is_answer(output))
    return next(found, None)


def is_answer(output: OutputDict) -> bool:
    """Whether ``final_answer`` has displayed an output."""
    metadata = output.get("metadata")
    ours = metadata.get("kernel_agent") if isinstance(metadata, Mapping) else None
    return isinstance(ours, Mapping) and ours.get("role") == "answer"


def last_figure(run: RunRecords) -> tuple[Step, OutputDict, str] | None:
    """Return the picture that was drawn last, which most often belongs to what the run says."""
    for step, output in latest_outputs(run):
        data = output.get("data")
        for mime in FORMATS:
            if isinstance(data, Mapping) and mime in data:
                return step, output, mime
    return None
