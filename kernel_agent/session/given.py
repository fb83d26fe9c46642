"""Variables that the user passes into the kernel: looked at, fingerprinted, and written down.

A variable crosses as what a colleague could read, too: one statement that sets it, and where that
is no short literal a file in ``data/`` that the statement loads (Feather, ``.npy``, PNG, JSON). The
kernel runs that statement, and so does the notebook when it is run again. No pickle on the way.

What the model is told of it is made here as well: type, shape, columns and the first rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_agent.errors import InputError, how_to_install
from kernel_agent.inkernel import values
from kernel_agent.records import DataFile, Given
from kernel_agent.safe import Folder, make_private, one_line, plain

LITERAL_CHARS = 2000  # of a value that stands in the statement itself
SOURCE_CHARS = 100_000  # of a value that has no file form
PREVIEW_ROWS = 3
PREVIEW_COLUMNS = 40
PREVIEW_CHARS = 300  # of a value that is no table
DATA = "data"


def check_names(names: Mapping[str, Any]) -> None:
    """Check that these are names that a variable of the kernel may have.

    Raises
    ------
    InputError
        The caller's.
    """
    import keyword

    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InputError(f"{name!r} is no name of a variable")
        if name in ("final_answer", "outputs"):
            raise InputError(f"the kernel has a {name} of its own: pass yours under another name")


def fingerprint(value: Any) -> str:
    """Return a fingerprint of a value's content, the same for equal values.

    Raises
    ------
    TypeError
        The value has no form in which it could be passed.
    """
    digest = hashlib.sha256(type(value).__name__.encode())
    if _kind(value) in ("DataFrame", "Series"):
        try:
            digest.update(_table_digest(value))
        except TypeError:  # a cell that holds a list has no hash
            pass
        else:
            return digest.hexdigest()
    digest.update(json.dumps(values.encode(value), sort_keys=True).encode())
    return digest.hexdigest()


def _table_digest(table: Any) -> bytes:
    import pandas as pd

    frame = table.to_frame() if table.ndim == 1 else table
    schema = [[str(name), str(dtype)] for name, dtype in frame.dtypes.items()]
    names = [[str(name) for name in frame.index.names], schema, str(getattr(table, "name", ""))]
    return json.dumps(names).encode() + pd.util.hash_pandas_object(frame).to_numpy().tobytes()


def write_down(name: str, value: Any, folder: Path) -> Given:
    """Write a value into the session's folder, and return its record.

    Called by the session, before the kernel sets the variable.

    Parameters
    ----------
    name
        The variable's name.
    value
        Its value; it is not changed.
    folder
        The session's folder.

    Raises
    ------
    InputError
        The caller's: the value has no form in which it can be passed, or the disk is full. One
        line that names the variable.
    """
    try:
        given = value
        if not _kind(given):  # refuses what has no form; records arrive as what they hold
            value = values.decode(values.encode(given))
        writing = _Writing(name, folder)
        source = writing.statement(value)
        return Given(
            name=name,
            type=type(value).__name__,
            shape=_shape(value),
            about=_about(value),
            source=source,
            fingerprint=fingerprint(given),
            files=tuple(writing.files),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} cannot be passed in: {one_line(str(error), 200)}") from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{name} cannot be written to {folder / DATA}: {reason}") from None


# --- the statement, and the file that it loads ----------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The file form of values of one type."""

    suffix: str
    kind: str
    write: Callable[[Any], bytes]
    imports: str
    load: str


def _kind(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "pandas" and kind.__name__ in ("DataFrame", "Series"):
        return kind.__name__
    if module == "numpy" and kind.__name__ == "ndarray":
        return "array"
    if module == "PIL" or (module == "matplotlib" and hasattr(value, "savefig")):
        return "picture"
    return ""


class _Writing:
    """Writes one variable: its statement, and the file if it needs one."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self.files: list[DataFile] = []

    def statement(self, value: Any) -> str:
        """Return the Python source that sets the variable."""
        form = _FORMS.get(_kind(value))
        if form is None:
            form, source = self._plain(value)
            if source:
                return source
        assert form is not None
        path = self._save(form, form.write(value))
        load = form.load.format(path=json.dumps(path))
        if _kind(value) == "Series":
            load += f".iloc[:, 0].rename({_literal(value.name)})"
        return f"{form.imports}\n{self._name} = {load}"

    def _plain(self, value: Any) -> tuple[_Form | None, str]:
        """Return a literal where that is short enough to read, else the form of a JSON file."""
        text = _literal(value)
        if len(text) > LITERAL_CHARS and _is_json(value):
            return _JSON, ""
        if len(text) > SOURCE_CHARS:
            raise TypeError(f"it has {len(text):,} characters; pass a list, an array or a table")
        imports = "".join(f"import {m}\n" for m in ("datetime", "decimal") if f"{m}." in text)
        return None, f"{imports}{self._name} = {text}"

    def _save(self, form: _Form, content: bytes) -> str:
        make_private(self._folder, exist_ok=True)
        with Folder(self._folder) as opened, opened.folder(DATA, make=True) as data:
            placed, number = f"{self._name}{form.suffix}", 1
            while _there(data, placed):
                number += 1
                placed = f"{self._name}-{number}{form.suffix}"
            with data.create(placed) as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o444)
        path = f"{DATA}/{placed}"
        self.files.append(
            DataFile(
                path=path,
                source=f"variable {self._name}",
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                kind=form.kind,
            )
        )
        return path


def _there(folder: Folder, name: str) -> bool:
    try:
        folder.status(name)
    except FileNotFoundError:
        return False
    return True


def _feather(table: Any) -> bytes:
    """Return a table in Arrow's file format, which is Feather; its index is kept, too."""
    try:
        import pyarrow as pa
    except ImportError:
        raise TypeError(
            f"a {type(table).__name__} needs pyarrow: {how_to_install('data')}"
        ) from None
    frame = table if table.ndim == 2 else table.to_frame("value")
    if not frame.columns.is_unique:
        raise TypeError("it has several columns of one name: rename them")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # that names of columns become other ones
            arrow = pa.Table.from_pandas(frame)
    except (pa.ArrowException, TypeError, ValueError, UserWarning) as error:
        raise TypeError(f"it has a column that Arrow cannot hold: {one_line(str(error))}") from None
    for field in arrow.schema:  # pandas.cut makes such a column, and pandas cannot read it back
        if pa.types.is_dictionary(field.type) and hasattr(field.type.value_type, "storage_type"):
            kind = field.type.value_type.extension_name
            raise TypeError(
                f"the categories of its column {field.name} are of type {kind}, which cannot be"
                " sent: convert it with astype(str)"
            )
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def _npy(array: Any) -> bytes:
    import numpy as np

    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype}: convert it with tolist()")
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    return sink.getvalue()


def _png(picture: Any) -> bytes:
    sink = io.BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(sink, format="png")
    else:
        picture.save(sink, format="PNG")
    return sink.getvalue()


_JSON = _Form(
    suffix=".json",
    kind="JSON",
    write=lambda value: json.dumps(value).encode(),
    imports="import json\nimport pathlib\n",
    load="json.loads(pathlib.Path({path}).read_text())",
)
_TABLE = _Form(
    suffix=".feather",
    kind="Feather",
    write=_feather,
    imports="import pandas as pd\n",
    load="pd.read_feather({path})",
)
_FORMS = {
    "DataFrame": _TABLE,
    "Series": _TABLE,
    "array": _Form(
        suffix=".npy",
        kind="NumPy",
        write=_npy,
        imports="import numpy as np\n",
        load="np.load({path})",
    ),
    "picture": _Form(
        suffix=".png",
        kind="PNG",
        write=_png,
        imports="from PIL import Image\n",
        load="Image.open({path})",
    ),
}


def _is_json(value: Any) -> bool:
    """Whether JSON gives back the very value: no tuples, bytes, dates, keys that are no text."""
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
    if type(value) is list:
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)


def _literal(value: Any) -> str:
    """Return Python source of a value of the plain types; ``datetime`` and ``decimal`` by module.

    Raises
    ------
    TypeError
        It holds something else.
    """
    kind = type(value)
    if kind in (dict, list, tuple, set, frozenset):
        return _literal_container(value)
    if kind is float and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or kind in (str, int, float, bool, bytes, bytearray):
        return repr(value)
    return _literal_of_library(value)


def _literal_container(value: Any) -> str:
    kind = type(value)
    if kind is dict:
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    items = ", ".join(map(_literal, value))
    if kind is list:
        return f"[{items}]"
    if kind is tuple:
        return f"({items}{',' if len(value) == 1 else ''})"
    return f"{kind.__name__}([{items}])"


def _literal_of_library(value: Any) -> str:
    kind = type(value)
    if hasattr(value, "to_pydatetime"):
        return _literal(value.to_pydatetime(warn=False))
    if kind.__module__ == "datetime":
        zoned = getattr(value, "tzinfo", None) is not None
        return f"datetime.{kind.__name__}.fromisoformat({str(value)!r})" if zoned else repr(value)
    if kind.__module__ == "decimal":
        return f"decimal.{value!r}"
    if hasattr(value, "item"):  # a numpy scalar
        return _literal(value.item())
    raise TypeError(f"a {kind.__name__} within it: pass that under a name of its own")


# --- what is told of it ---------------------------------------------------------------------------


def _shape(value: Any) -> str:
    """Return rows and columns, the length of what has one, or the size of a picture."""
    kind = _kind(value)
    if kind == "DataFrame":
        return f"{value.shape[0]:,} rows x {value.shape[1]:,} columns"
    if kind == "Series":
        return f"{len(value):,} rows"
    if kind == "array":
        return " x ".join(map(str, value.shape)) or "scalar"
    if kind == "picture" and hasattr(value, "width"):
        return f"{value.width} x {value.height} pixels"
    counted = isinstance(value, list | tuple | dict | set | frozenset)
    return f"{len(value):,} items" if counted else ""


def _about(value: Any) -> str:
    """Return the schema and a short preview, never all of something large."""
    kind = _kind(value)
    if kind in ("DataFrame", "Series"):
        return _about_table(value)
    if kind == "array":
        return f"type {value.dtype}"
    if kind == "picture":
        return ""
    text = _literal(value)
    return plain(text if len(text) <= PREVIEW_CHARS else f"{text[: PREVIEW_CHARS - 1]}…")


def _about_table(table: Any) -> str:
    import pandas as pd

    with pd.option_context("display.width", 160, "display.max_columns", 20,
                           "display.max_colwidth", 40):  # fmt: skip
        rows = table.head(PREVIEW_ROWS).to_string()
    columns = table.dtypes.items() if table.ndim == 2 else [(table.name, table.dtype)]
    named = [f"{one_line(str(name), 60)} ({dtype})" for name, dtype in columns]
    more = len(named) - PREVIEW_COLUMNS
    told = ", ".join(named[:PREVIEW_COLUMNS]) + (f", and {more} more" if more > 0 else "")
    rows = re.sub(r"(?m)^(.{240}).+$", r"\1…", plain(rows))
    return f"columns: {told}\nfirst rows:\n{rows}"
