"""Tables on the wire: Arrow IPC streams, measured before they are unfolded.

A few bytes of a stream can stand for many values, so only flat columns that are not compressed are
read, and what each takes in pandas is charged to a :class:`~.room.Room` from types and lengths
alone. The schema is read by :mod:`.schemas`, and what pandas has beside it by :mod:`.frames`: of
the metadata in a stream nothing is read. It stands there for programs that have no other form.
"""

from __future__ import annotations

import io
from typing import Any

from .frames import Step, describe, own_types, rebuild
from .room import Room
from .schemas import check_batch, read_columns

CELLS_MAX = 50_000_000  # rows times columns of a table
BATCHES_MAX = 100_000  # of a table, times its columns; ours have one
OBJECTS = 50_000  # values of a table that become objects of Python's at a time
COLUMN_BYTES = 2_000  # what a column costs beside its values, in pandas and Arrow
BATCH_BYTES = 400  # what a column of a batch costs in Arrow
OWN_COPIES = 2  # more of a column, on its way to a type that is pandas' own

Own = list[tuple[list[str], Step]]  # columns, and what makes pandas' own type of their Arrow type


def write_table(table: Any, write: Step) -> tuple[bytes, dict[str, Any]]:
    """Return a table as an Arrow IPC stream, and what it has beside its columns as JSON.

    Parameters
    ----------
    table
        A DataFrame.
    write
        Writes a value as JSON, as :func:`.values.encode` does.

    Raises
    ------
    TypeError
        It has a column that Arrow cannot hold, or pyarrow is not there.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise TypeError(
            "a table can be sent where pyarrow is installed: pip install pyarrow"
        ) from None
    frame = describe(table, write)
    bare = table.copy(deep=False)
    bare.attrs = {}  # Arrow would write them into the schema
    # Arrow takes a level that is called 1 for the second one.
    bare.index = bare.index.set_names([n if n is None else str(n) for n in bare.index.names])
    if bare.columns.inferred_type.startswith("mixed"):  # it makes texts of them, with a warning
        bare.columns = [str(name) for name in bare.columns]
    in_columns = True if "levels" in frame["index"] else None  # ranges among several levels, too
    try:
        arrow = pa.Table.from_pandas(bare, preserve_index=in_columns)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "mixed types"
        raise TypeError(f"the table has a column that Arrow cannot hold: {reason}") from None
    _check_types(arrow.schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue(), frame


def write_csv(table: Any) -> str:
    """Return a table or a Series as CSV, with its index unless that only numbers the rows."""
    if type(table).__name__ == "Series" and table.name is None:
        table = table.rename("value")
    index = table.index
    only_numbers = index.nlevels == 1 and index.name is None and index.dtype.kind in "iu"
    text: str = table.to_csv(index=not only_numbers)
    return text.encode("utf-8", "backslashreplace").decode()


def _check_types(schema: Any) -> None:
    """Refuse types that others than Arrow have given it: periods, intervals."""
    import pyarrow as pa

    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if isinstance(kind, pa.BaseExtensionType):
            raise TypeError(
                f"the column {field.name[:60]} of the table is of type {kind.extension_name}, which"
                " cannot be sent: convert it with astype(str)"
            )


def read_table(data: bytes, frame: Any, room: Room, read: Step) -> Any:
    """Return the table of an Arrow IPC stream, checked before and while it is read.

    Parameters
    ----------
    data
        The stream.
    frame
        What stands beside it, in JSON.
    room
        What it may become.
    read
        Reads a value from JSON, in the same room.

    Raises
    ------
    ValueError
        It is no Arrow stream, or unfolds to more than there is room for.
    """
    import pyarrow as pa

    if not isinstance(frame, dict):
        raise ValueError("a table whose index and labels are no object")  # noqa: TRY004 - damage
    try:
        names, table = _read_arrow(data, room)
        own = own_types(frame, table.schema)
        for columns, copies in [(table.column_names, 1), *((c, OWN_COPIES) for c, _ in own)]:
            for column in table.select(columns).columns:
                room.take(copies * sum(_estimate_size(chunk) for chunk in column.chunks))
        return rebuild(_in_pandas(table, own), names, frame, read)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


def _read_arrow(data: bytes, room: Room) -> tuple[list[str], Any]:
    """Return the names of the columns, and a table in which they are called by their numbers.

    What Arrow is given begins with a schema of our own, in the place of the one that came.
    """
    import pyarrow as pa

    columns = read_columns(data, room)
    width = len(columns.schema)
    room.take(len(data) + width * COLUMN_BYTES)
    stream = columns.schema.serialize().to_pybytes() + data[columns.batches :]
    batches = _check_batches(stream, room)
    if width * batches > BATCHES_MAX:
        raise ValueError(f"a table of {width:,} columns in {batches:,} parts")
    room.take(width * batches * BATCH_BYTES)
    with pa.ipc.open_stream(stream) as opened:
        table = opened.read_all()
    if table.num_rows * max(table.num_columns, 1) > CELLS_MAX:
        raise ValueError(f"a table of more than {CELLS_MAX:,} cells")
    table.validate(full=True)
    return columns.names, table


def _check_batches(data: bytes, room: Room) -> int:
    """Return how many messages follow the schema; each is looked at, and nothing of it read."""
    import pyarrow as pa

    count = 0
    messages = pa.ipc.MessageReader.open_stream(data)
    next(messages)  # the schema, which is ours
    for message in messages:
        room.take(BATCH_BYTES)
        count += 1
        check_batch(message.metadata.to_pybytes())
    return count


def _estimate_size(chunk: Any) -> int:  # noqa: PLR0911 - a table
    """Return about how many bytes a column takes in pandas, the two copies of its objects included.

    From types and lengths alone, which a stream states and :meth:`validate` checks afterwards. The
    sizes of objects are CPython's (``sys.getsizeof``), plus the pointers to them.
    """
    from pyarrow import types

    kind, rows = chunk.type, len(chunk)
    if types.is_null(kind):
        return 16 * rows
    if types.is_dictionary(kind):
        return 16 * rows + _estimate_size(chunk.dictionary)
    if types.is_struct(kind):
        return 248 * rows + sum(_estimate_size(chunk.field(n)) for n in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind):
        return 192 * rows + _estimate_size(chunk.values)
    if types.is_decimal(kind):
        return 128 * rows
    if types.is_date(kind) or types.is_time(kind):
        return 64 * rows
    if types.is_primitive(kind):
        return 16 * rows
    return 80 * rows + 4 * _text_bytes(chunk)  # a character may take four bytes in Python's texts


def _text_bytes(chunk: Any) -> int:
    return sum(buffer.size for buffer in chunk.buffers() if buffer is not None)


def _in_pandas(table: Any, own: Own) -> Any:
    """Return a table in pandas; columns of objects are made of a few rows at a time."""
    import pandas as pd

    objects = sum(_is_of_objects(field.type) for field in table.schema)
    if table.num_rows * objects <= OBJECTS:
        return _in_types(table, own)
    rows = max(OBJECTS // objects, 1)
    slices = (table.slice(at, rows) for at in range(0, table.num_rows, rows))
    return pd.concat([_in_types(part, own) for part in slices], ignore_index=True)


def _in_types(table: Any, own: Own) -> Any:
    """Return a table in pandas, with columns that have a type of pandas' own in that type."""
    import pandas as pd

    if not own:
        return table.to_pandas()
    other = set(table.column_names).difference(*(columns for columns, _ in own))
    parts = [table.select([n for n in table.column_names if n in other]).to_pandas()]
    parts += [table.select(columns).to_pandas(types_mapper=made) for columns, made in own]
    return pd.concat(parts, axis=1)[table.column_names]


def _is_of_objects(kind: Any) -> bool:
    """Whether pandas makes an object of each value in a column of this type."""
    import pandas as pd
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return int(pd.__version__.partition(".")[0]) < 3  # since then they stay as Arrow has them
    plain = types.is_primitive(kind) and not (types.is_date(kind) or types.is_time(kind))
    return not (plain or types.is_dictionary(kind) or types.is_null(kind))
