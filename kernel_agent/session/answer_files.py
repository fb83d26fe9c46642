"""The answer as a file: a table as CSV, or Parquet where it is large, a figure as PNG.

It lies in the run's folder, under a name that nothing has there: cells write there, too. What is
written is the answer itself with all its rows, or there is no file.
"""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from kernel_agent.inkernel import whole_json, write_csv
from kernel_agent.records import ExitStatus
from kernel_agent.safe import Folder, plain

if TYPE_CHECKING:
    import pandas as pd

    from kernel_agent.session.run import Run

MAX_CSV = 5_000_000  # cells; of more a Parquet file is made, where that can be


def keep_answer(run: Run) -> str:
    """Write the answer of a run that has just ended into its folder.

    Returns
    -------
    str
        The file's name; empty where the answer is no table and no picture.

    Raises
    ------
    OSError
        It cannot be written.
    """
    made = answer_file(run)
    if made is None:
        return ""
    content, ending = made
    with Folder(run.trace.parent) as folder:
        for name in chain(["answer"], (f"answer-{number}" for number in count(2))):
            with suppress(FileExistsError), folder.create(f"{name}.{ending}") as file:
                file.write(content)
                return f"{name}.{ending}"
    return ""


def answer_file(run: Run, *, packs: bool = True) -> tuple[bytes, str] | None:
    """Return content and ending of a file with the answer; None where it is none."""
    if run.status is not ExitStatus.ANSWERED:
        return None
    if run.instead:
        return (run.csv.encode("utf-8", "backslashreplace"), "csv") if run.csv else None
    if hasattr(run.value, "getbbox"):  # a picture, also of a figure
        drawn = BytesIO()
        run.value.save(drawn, "PNG")
        return drawn.getvalue(), "png"
    table = _table(run.value)
    if table is None:
        return None
    if packs and table.size > MAX_CSV and find_spec("pyarrow"):
        packed = BytesIO()
        table.to_parquet(packed)
        return packed.getvalue(), "parquet"
    return write_csv(table).encode(), "csv"


def answer_bytes(run: Run) -> bytes:
    """Return the answer alone, for a program: a table, a picture, a number in full, JSON, text."""
    made = answer_file(run, packs=False)
    if made is not None:
        return made[0]
    if isinstance(run.value, Decimal):  # its zeros are meant
        return f"{run.value}\n".encode()
    if isinstance(run.answer, (bool, int, float, dict, list)):
        told = json.dumps(whole_answer(run), ensure_ascii=False)
        return f"{told}\n".encode("utf-8", "backslashreplace")
    text = run.value if isinstance(run.value, str) else run.text
    return f"{plain(text)}\n".encode("utf-8", "backslashreplace")


def whole_answer(run: Run) -> Any:
    """Return the answer in JSON types, with all that it holds where its value was taken out."""
    return run.answer if run.value is None else whole_json(run.value)


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
