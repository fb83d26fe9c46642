"""Tables on the wire: Arrow IPC streams, measured before they are unfolded.

A few bytes of a stream can stand for many values, so only flat columns that are not compressed are
read, and what each takes in pandas is charged to a :class:`~.room.Room` from types and lengths
alone.
"""

from __future__ import annotations

import io
import struct
from typing import Any

from .room import Room

CELLS_MAX = 50_000_000  # rows times columns of a table
COLUMNS_MAX = 20_000
BATCHES_MAX = 100_000  # of a table, times its columns; ours have one
OBJECTS = 50_000  # values of a table that become objects of Python's at a time
COLUMN_BYTES = 2_000  # what a column costs beside its values, in pandas and Arrow
BATCH_BYTES = 400  # what a column of a batch costs in Arrow


def write_table(table: Any) -> bytes:
    """Return a table as an Arrow IPC stream.

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
    try:
        arrow = pa.Table.from_pandas(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "mixed types"
        raise TypeError(f"the table has a column that Arrow cannot hold: {reason}") from None
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def read_table(data: bytes, room: Room) -> Any:
    """Return the table of an Arrow IPC stream, checked before and while it is read.

    Raises
    ------
    ValueError
        It is no Arrow stream, or unfolds to more than there is room for.
    """
    import pyarrow as pa

    try:
        batches = _count_batches(data, room)
        with pa.ipc.open_stream(data) as stream:
            if len(stream.schema) > COLUMNS_MAX or len(stream.schema) * batches > BATCHES_MAX:
                raise ValueError(f"a table of {len(stream.schema):,} columns in {batches:,} parts")
            for field in stream.schema:
                _check_flat(field.type, top=True)
            room.take(len(stream.schema) * (COLUMN_BYTES + batches * BATCH_BYTES))
            table = stream.read_all()
        if table.num_rows * max(table.num_columns, 1) > CELLS_MAX:
            raise ValueError(f"a table of more than {CELLS_MAX:,} cells")
        for column in table.columns:
            room.take(sum(_estimate_size(chunk) for chunk in column.chunks))
        table.validate(full=True)
        return _in_pandas(table)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


def _count_batches(data: bytes, room: Room) -> int:
    """Return how many messages an Arrow stream has; each is looked at, and nothing of it read."""
    import pyarrow as pa

    count = 0
    for message in pa.ipc.MessageReader.open_stream(data):
        room.take(BATCH_BYTES)
        count += 1
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("a table that is compressed")
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


def _in_pandas(table: Any) -> Any:
    """Return a table in pandas; columns of objects are made of a few rows at a time."""
    import pandas as pd

    objects = sum(_is_of_objects(field.type) for field in table.schema)
    if table.num_rows * objects <= OBJECTS:
        return table.to_pandas()
    rows = max(OBJECTS // objects, 1)
    made = pd.concat([table.slice(at, rows).to_pandas() for at in range(0, table.num_rows, rows)])
    if not _has_index(table):  # a range is stated once, for all of the rows
        index = table.select([]).to_pandas().index
        made.index = index if len(index) == len(made) else pd.RangeIndex(len(made))
    return made


def _is_of_objects(kind: Any) -> bool:
    """Whether pandas makes an object of each value in a column of this type."""
    import pandas as pd
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return int(pd.__version__.partition(".")[0]) < 3  # since then they stay as Arrow has them
    plain = types.is_primitive(kind) and not (types.is_date(kind) or types.is_time(kind))
    return not (plain or types.is_dictionary(kind) or types.is_null(kind))


def _has_index(table: Any) -> bool:
    stated = (table.schema.pandas_metadata or {}).get("index_columns", ())
    return any(isinstance(column, str) for column in stated)


def _check_flat(kind: Any, *, top: bool = False) -> None:
    """Refuse the types whose few bytes can stand for many values.

    A list's length is bounded by its offsets as long as what it holds takes room itself; a
    dictionary within a list is written out once a mention.
    """
    from pyarrow import types

    if (top and types.is_dictionary(kind)) or types.is_list(kind) or types.is_large_list(kind):
        _check_flat(kind.value_type)
    elif types.is_struct(kind) and kind.num_fields:
        for n in range(kind.num_fields):
            _check_flat(kind.field(n).type)
    elif not (
        types.is_primitive(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or (top and types.is_null(kind))
    ):
        raise ValueError(f"a column of type {str(kind)[:60]}")


def _is_compressed(metadata: bytes) -> bool:
    """Whether the body of an Arrow message is compressed, read from its flatbuffer.

    https://arrow.apache.org/docs/format/Columnar.html; field 3 of a RecordBatch is its
    compression, field 1 of a DictionaryBatch a RecordBatch. pyarrow has no way to ask.
    """
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind_at or not header_at:
        return False
    kind, batch = metadata[kind_at], header_at + _u32(metadata, header_at)
    if kind == 2:  # a DictionaryBatch
        inner = _field(metadata, batch, 1)
        batch = inner + _u32(metadata, inner)
    return kind in (2, 3) and bool(_field(metadata, batch, 3))


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 for one that is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size, at = struct.unpack_from("<H", data, vtable)[0], 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
    return table + offset if offset else 0


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
