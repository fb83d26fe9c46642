"""What a table of pandas has beside its columns, as JSON: index, labels, pandas' own types, attrs.

Arrow streams of pandas carry this as metadata, from which pyarrow makes classes by name: a few
letters of a type are enough to have a file opened. Here it is a small object beside the stream,
written by whoever has the table and checked by whoever gets it::

    {"index": {"levels": 2, "names": ["city", "year"]},    # the last two columns
     "labels": {"range": [0, 3, 1], "names": [null]},      # or "table", or "items"
     "types": {"Int64": [0, 3]}, "attrs": {"unit": "kg"}}

All of it may be left out; then the rows are numbered, and the columns are called as Arrow has them.
Names, labels and attributes are values as :mod:`.values` has them, which is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

ATTRS_CHARS = 1_000_000  # of all texts in the attributes
ATTRS_ITEMS = 10_000  # values in them; pandas copies all of them with each operation
_PLAIN = (str, int, float, bool, type(None), list, dict)
_MASKED = {
    "Int8": "int8", "Int16": "int16", "Int32": "int32", "Int64": "int64",
    "UInt8": "uint8", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
    "Float32": "float", "Float64": "double", "boolean": "bool",
}  # fmt: skip
"""The types of pandas that know missing values, and what they are in Arrow."""
_STRINGS: dict[str, Any] = {"string[python]": "python", "string[pyarrow]": "pyarrow"}

Step = Callable[[Any], Any]


# --- writing -------------------------------------------------------------------------------------


def describe(table: Any, write: Step) -> dict[str, Any]:
    """Return what a table has beside the columns that Arrow makes of it.

    Parameters
    ----------
    table
        A DataFrame. Its index, where it is no range, follows the columns in Arrow.
    write
        Writes a value as JSON.

    Raises
    ------
    TypeError
        Its attributes are too large to be sent along.
    """
    frame = {"index": _rows(table.index, write)}
    if labels := _labels(table.columns, write):
        frame["labels"] = labels
    if types := _types([*table.dtypes, *(level.dtype for level in _levels(table.index))]):
        frame["types"] = types
    if attrs := _attrs(table.attrs):
        frame["attrs"] = write(attrs)
    return frame


def _rows(index: Any, write: Step) -> dict[str, Any]:
    kept = _as_range(index) or {"levels": index.nlevels}
    return {**kept, "names": _names(index, write)}


def _as_range(axis: Any) -> dict[str, Any]:
    if type(axis).__name__ != "RangeIndex":
        return {}
    return {"range": [axis.start, axis.stop, axis.step]}


def _levels(index: Any) -> list[Any]:
    if type(index).__name__ == "RangeIndex":
        return []
    return list(index.levels) if index.nlevels > 1 else [index]


def _labels(labels: Any, write: Step) -> dict[str, Any]:
    """Describe the columns' labels; nothing where they are texts, which Arrow has as they are."""
    if _are_texts(labels) and labels.names == [None]:
        return {}
    kept = _as_range(labels) or _in_a_table(labels, write)
    return {**kept, "names": _names(labels, write)}


def _in_a_table(labels: Any, write: Step) -> dict[str, Any]:
    """Write labels as a table, which keeps their types, or as a list where they are mixed."""
    import pandas as pd

    nameless = labels.set_names([None] * labels.nlevels)  # a name may be another level's number
    levels = [nameless.get_level_values(n) for n in range(labels.nlevels)]
    if all(level.dtype != object or _are_texts(level) for level in levels):
        made = pd.DataFrame({str(n): level for n, level in enumerate(levels)})
        try:
            return {"table": write(made)}
        except TypeError:  # Arrow has no such type: intervals, periods
            pass
    return {"items": [_value(label, write) for label in labels]}


def _are_texts(labels: Any) -> bool:
    """Whether labels are texts of the type that this pandas makes of texts."""
    import pandas as pd

    usual = labels.nlevels == 1 and labels.dtype == pd.Index(["a"]).dtype
    return usual and all(type(label) is str for label in labels)


def _names(axis: Any, write: Step) -> list[Any]:
    return [_value(name, write) for name in axis.names]


def _value(value: Any, write: Step) -> Any:
    try:
        return write(value)
    except TypeError:  # a label that has no form is called by its text
        return str(value)


def _types(kinds: list[Any]) -> dict[str, list[int]]:
    """Return which columns are of which type that is pandas' own."""
    found: dict[str, list[int]] = {}
    for n, kind in enumerate(kinds):
        if name := _name_of(kind):
            found.setdefault(name, []).append(n)
    return found


def _name_of(kind: Any) -> str:
    """Return the name of a type that is pandas' own; nothing for one that Arrow has."""
    known = type(kind).__name__
    if known == "ArrowDtype":
        return "arrow"
    if known == "StringDtype":
        return f"string[{kind.storage}]" if str(kind) == "string" else ""
    return str(kind) if str(kind) in _MASKED else ""


def _attrs(attrs: dict[Any, Any]) -> Any:
    """Return attributes as JSON has them; those that it has not are left out, as by pandas.

    Raises
    ------
    TypeError
        They are too large.
    """
    if excess := _excess(attrs):
        raise TypeError(excess)
    try:
        return json.loads(json.dumps(attrs))
    except (TypeError, ValueError, RecursionError):
        return {}


def _excess(attrs: Any) -> str:
    """Return what is too much of attributes, counted before one step in C would take them all."""
    chars = 0
    for count, item in enumerate(_each(attrs)):
        chars += len(item) if isinstance(item, str) else 0
        if count > ATTRS_ITEMS or chars > ATTRS_CHARS:
            return (
                f"the attrs of a table hold more than {ATTRS_ITEMS:,} values or {ATTRS_CHARS:,}"
                " characters"
            )
    return ""


def _each(value: Any) -> Iterator[Any]:
    """Yield a value, and what it holds all the way down."""
    left = [value]
    while left:
        item = left.pop()
        yield item
        if isinstance(item, dict):
            left.extend(item)
            left.extend(item.values())
        elif isinstance(item, (list, tuple)):
            left.extend(item)


# --- reading -------------------------------------------------------------------------------------


def own_types(frame: dict[str, Any], schema: Any) -> list[tuple[list[str], Step]]:
    """Return columns, and what makes pandas' own type of their Arrow type, for each of those types.

    Parameters
    ----------
    frame
        What :func:`describe` wrote; anything, from a hostile kernel.
    schema
        The columns in Arrow, called by their numbers.

    Raises
    ------
    ValueError
        A type is none of those here, or not one for its column.
    """
    types = dict(frame.get("types", {}))
    named = [n for columns in types.values() for n in columns]
    if not all(type(n) is int and 0 <= n < len(schema) for n in named):
        raise ValueError("types of columns that are not there")
    if len(set(named)) != len(named):
        raise ValueError("a column of two types")
    return [
        ([str(n) for n in columns], _own_type(name, {str(schema.field(n).type) for n in columns}))
        for name, columns in types.items()
    ]


def _own_type(name: str, kinds: set[str]) -> Step:
    """Return what makes pandas' own type, by a name from the list here, of these Arrow types."""
    import pandas as pd

    if name == "arrow":
        return pd.ArrowDtype
    if name in _MASKED and kinds == {_MASKED[name]}:
        masked = getattr(pd, f"{name[0].upper()}{name[1:]}Dtype")()
        return lambda _: masked
    if name in _STRINGS and kinds <= {"string", "large_string"}:
        string = pd.StringDtype(_STRINGS[name])
        return lambda _: string
    raise ValueError(f"columns of pandas' type {name[:40]!r}")


def rebuild(body: Any, names: list[str], frame: dict[str, Any], read: Step) -> Any:
    """Return a table with the index, the labels and the attributes that are stated for it.

    Parameters
    ----------
    body
        Its columns in order, those of its index last.
    names
        What Arrow calls them.
    frame
        What :func:`describe` wrote; anything, from a hostile kernel.
    read
        Reads a value from JSON.

    Raises
    ------
    ValueError
        It does not fit.
    """
    import pandas as pd

    stated = frame.get("index", {})
    levels = 0 if "range" in stated else stated.get("levels", 0)
    width = len(names) - levels
    if type(levels) is not int or not 0 <= levels <= len(names):
        raise ValueError("a table whose index is not in it")
    made = body.iloc[:, :width].copy(deep=False)
    if levels:
        made.index = _index_of([body.iloc[:, n] for n in range(width, len(names))], stated, read)
    elif "range" in stated:
        made.index = _range_of(stated, len(body), read)
    made.columns = _read_labels(frame["labels"], width, read) if "labels" in frame else (
        pd.Index(names[:width])
    )  # fmt: skip
    made.attrs = _read_attrs(frame.get("attrs", {}), read)
    return made


def _read_attrs(stated: Any, read: Step) -> dict[str, Any]:
    """Return attributes of JSON's own types: pandas copies them with each operation."""
    if excess := _excess(stated):
        raise ValueError(excess)
    attrs = read(stated)
    if not isinstance(attrs, dict) or not all(type(item) in _PLAIN for item in _each(attrs)):
        raise ValueError("attributes that are no dict of plain values")
    return attrs


def _index_of(levels: list[Any], stated: dict[str, Any], read: Step) -> Any:
    import pandas as pd

    names = _read_names(stated, len(levels), read)
    if len(levels) == 1:
        return pd.Index(levels[0]).set_names(names)
    return pd.MultiIndex.from_arrays(levels, names=names)


def _range_of(stated: dict[str, Any], length: int, read: Step) -> Any:
    import pandas as pd

    start, stop, step = stated["range"]
    if not all(type(number) is int for number in (start, stop, step)):
        raise ValueError("a range of something else than integers")
    made = pd.RangeIndex(start, stop, step)
    if len(made) != length:
        raise ValueError(f"{len(made):,} numbers for {length:,} rows or columns")
    return made.set_names(_read_names(stated, 1, read))


def _read_names(stated: dict[str, Any], levels: int, read: Step) -> list[Any]:
    names = [read(name) for name in stated.get("names", [None] * levels)]
    if len(names) != levels:
        raise ValueError(f"{len(names):,} names of {levels:,} levels")
    return names


def _read_labels(stated: dict[str, Any], width: int, read: Step) -> Any:
    import pandas as pd

    if "range" in stated:
        return _range_of(stated, width, read)
    labels = read(stated["table"]) if "table" in stated else read(stated["items"])
    if len(labels) != width:
        raise ValueError(f"{len(labels):,} labels for {width:,} columns")
    if isinstance(labels, pd.DataFrame):
        return _index_of([labels.iloc[:, n] for n in range(labels.shape[1])], stated, read)
    if not isinstance(labels, list):
        raise ValueError("labels that are neither a list nor a table")  # noqa: TRY004 - damage
    names = _read_names(stated, len(stated["names"]), read)
    if len(names) > 1:
        return pd.MultiIndex.from_tuples(labels, names=names)
    return pd.Index(labels, dtype=object, tupleize_cols=False).set_names(names)
