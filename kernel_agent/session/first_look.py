"""The example cell of a run's prompt: a first look at its own data.

A weak model copies the example that it is shown, in the prompt and each time that a reply of its
could not be read. So the example names the run's own file, reads it by the call that reads it,
runs as it stands, and computes no answer. Only the beginning of the file is looked at.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kernel_agent.formats import LOOK
from kernel_agent.records import DataFile
from kernel_agent.session.filetypes import delimiter_of

_SAMPLE_BYTES = 1 << 16
_TEXT = {"CSV", "TSV", "JSON", "JSON lines", "text"}


def look_at(folder: Path, files: Sequence[DataFile], *, pandas: bool = True) -> str:
    """Return the source of a first look at the first table of a run, or else its first file.

    Parameters
    ----------
    folder
        The session's folder.
    files
        Its inputs.
    pandas
        Whether cells have pandas.
    """
    calls = ((file, _reading(folder, file)) for file in files if pandas)
    table = next(((file, call) for file, call in calls if call), None)
    if table is not None:
        return f"import pandas as pd\n\ndf = pd.{table[1]}\ndf.head()"
    if not files:
        return LOOK if pandas else 'print("ready")'
    path = _quote(files[0].path)
    is_text = files[0].kind in _TEXT and _beginning(_place(folder, files[0]))
    return f"open({path}).read(500)" if is_text else f'open({path}, "rb").read(100)'


def _reading(folder: Path, file: DataFile) -> str:
    """Return the call of pandas that reads a file as it is; empty when a plain one does not."""
    path = _quote(file.path)
    if file.kind == "Parquet" and find_spec("pyarrow"):
        return f"read_parquet({path})"
    if file.kind == "Excel" and not file.path.lower().endswith(".xls") and find_spec("openpyxl"):
        return f"read_excel({path})"
    if file.kind not in ("CSV", "TSV", "JSON lines"):
        return ""
    text = _beginning(_place(folder, file))
    if file.kind == "JSON lines":
        return f"read_json({path}, lines=True)" if text else ""
    delimiter = delimiter_of(text, "\t" if file.kind == "TSV" else "")
    if not delimiter:
        return ""
    separated = "" if delimiter == "," else f", sep={_quote(delimiter)}"
    return f"read_csv({path}{separated})"


def _place(folder: Path, file: DataFile) -> Path:
    return Path(file.source) if file.linked else folder / file.path


def _beginning(path: Path) -> str:
    """Return the beginning of a file in UTF-8; empty when it is not, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_SAMPLE_BYTES)
        return codecs.getincrementaldecoder("utf-8")().decode(head)
    except (OSError, UnicodeDecodeError):
        return ""


def _quote(text: str) -> str:
    r"""Return a text as Python writes it, in double quotes where that needs no escape.

    >>> _quote("data/sales.csv"), _quote("\t")
    ('"data/sales.csv"', '"\\t"')
    """
    written = repr(text)
    plain = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if plain else written
