"""The answer as a file: a table as CSV, or Parquet where it is large, a figure as PNG.

It lies in the run's folder, under a name that nothing has there: cells write there, too. What is
written is the answer itself with all its rows, or there is no file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from kernel_agent.records import Event, ExitStatus, Notice
from kernel_agent.safe import Folder, plain

if TYPE_CHECKING:
    import pandas as pd

    from kernel_agent.session import Run

MAX_CSV = 5_000_000  # cells; of more a Parquet file is made, where that can be


def keep_answer(run: Run, tell: Callable[[Event], None]) -> Run:
    """Write the answer into the run's folder, and return the run with that file among its own.

    Parameters
    ----------
    run
        That has just ended.
    tell
        Told when it cannot be written.
    """
    made = answer_file(run)
    if made is None:
        return run
    content, ending = made
    names = chain(["answer"], (f"answer-{number}" for number in count(2)))
    try:
        with Folder(run.trace.parent) as folder:
            for name in names:
                try:
                    with folder.create(f"{name}.{ending}") as file:
                        file.write(content)
                except FileExistsError:
                    continue
                return dataclasses.replace(run, files=(*run.files, f"{name}.{ending}"))
    except OSError as error:
        tell(Notice(text=f"The answer could not be written as a file: {error.strerror}."))
    return run


def answer_file(run: Run) -> tuple[bytes, str] | None:
    """Return the content and the ending of a file with the answer; None where it is no file."""
    if run.status is not ExitStatus.ANSWERED or run.instead:
        return None
    if hasattr(run.value, "getbbox"):  # a picture, also of a figure
        drawn = BytesIO()
        run.value.save(drawn, "PNG")
        return drawn.getvalue(), "png"
    table = _table(run.value)
    if table is None:
        return None
    if table.size > MAX_CSV and find_spec("pyarrow"):
        packed = BytesIO()
        table.to_parquet(packed)
        return packed.getvalue(), "parquet"
    index = table.index
    says_nothing = index.nlevels == 1 and index.name is None and index.dtype.kind in "iu"
    return table.to_csv(index=not says_nothing).encode("utf-8", "backslashreplace"), "csv"


def answer_bytes(run: Run) -> bytes:
    """Return the answer alone, for a program: a table, a picture, a number in full, JSON, text."""
    made = answer_file(run)
    if made is not None:
        return made[0]
    if isinstance(run.answer, (bool, int, float, dict, list)):
        return f"{json.dumps(run.answer, ensure_ascii=False)}\n".encode("utf-8", "backslashreplace")
    return f"{plain(run.text)}\n".encode("utf-8", "backslashreplace")


def _table(value: Any) -> pd.DataFrame | None:
    """Return a value as a table where it is one: a frame, a Series, a grid, a list of dicts."""
    rows = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    is_grid = type(value).__name__ == "ndarray" and value.ndim == 2
    if not rows and not is_grid and type(value).__name__ not in ("DataFrame", "Series"):
        return None
    import pandas as pd

    if isinstance(value, pd.Series):
        return value.to_frame("value" if value.name is None else value.name)
    return pd.DataFrame(value)
