"""Tables cross the wire as what they are, and nothing that a kernel calls one opens a file."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import from_dtype

from kernel_agent.inkernel.room import Room, TooMuch
from kernel_agent.inkernel.schemas import COLUMNS_MAX, SCHEMA_MAX, check_zone, read_columns
from kernel_agent.inkernel.values import decode, encode
from kernel_agent.safe import room_for

ROWS = 4
ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata", "+05:30", "-11:00")
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.integers(-(2**63), 2**63 - 1)
spans = st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))
moments = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1))


def there_and_back(value: Any) -> Any:
    """Send a value as it crosses: as JSON, and read within the room that its request has."""
    form = json.loads(json.dumps(encode(value), allow_nan=False))
    return decode(form, room_for(form))


def rows(values: st.SearchStrategy[Any], count: int = ROWS) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=count, max_size=count)


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[pd.Series]:
    return rows(st.none() | values).map(lambda made: pd.Series(made, dtype=object))


def _decimals() -> st.SearchStrategy[pd.Series]:
    short = st.decimals(-1000, 1000, places=3, allow_nan=False)
    return objects(short).filter(lambda made: made.notna().any())


def _zoned() -> st.SearchStrategy[pd.Series]:
    def made(when: list[Any], zone: str, unit: str) -> pd.Series:
        return pd.Series(pd.DatetimeIndex(when, tz="UTC").as_unit(unit).tz_convert(zone))

    return st.builds(
        made, rows(st.none() | moments).filter(any), st.sampled_from(ZONES),
        st.sampled_from(["s", "ms", "us", "ns"]),
    )  # fmt: skip


def _categories() -> st.SearchStrategy[pd.Series]:
    def made(names: list[Any], codes: list[int], ordered: bool) -> pd.Series:
        held = [code % (len(names) + 1) - 1 for code in codes]
        return pd.Series(pd.Categorical.from_codes(held, pd.Index(names), ordered=ordered))

    names = st.lists(text, min_size=1, max_size=5, unique=True)
    whole = st.lists(numbers, min_size=1, max_size=5, unique=True)
    return st.builds(made, names | whole, rows(st.integers(0, 9)), st.booleans())


def _own(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pd.Series]:
    return rows(st.none() | values).map(lambda made: pd.Series(pd.array(made, dtype=kind)))


def _numpy(kind: str) -> st.SearchStrategy[pd.Series]:
    return rows(from_dtype(np.dtype(kind))).map(lambda made: pd.Series(made, dtype=kind))


columns = st.one_of(
    *(_numpy(kind) for kind in ("i1", "i8", "u2", "u8", "f4", "f8", "?")),
    _own("Int64", numbers), _own("UInt8", st.integers(0, 255)), _own("boolean", st.booleans()),
    _own("Float64", st.floats(allow_nan=False)), _own("string", text), _own("str", text),
    _own("int64[pyarrow]", numbers), _decimals(), _zoned(), _categories(),
    objects(st.booleans()).filter(lambda made: made.isna().any()),
    objects(st.binary(max_size=5)), objects(st.dates()),
    objects(st.times()), objects(st.lists(st.integers(0, 9), max_size=3)).filter(any),
    objects(st.fixed_dictionaries({"a": st.integers(0, 9), "ü": text})),
    objects(st.fixed_dictionaries({"a": st.lists(text, min_size=1, max_size=2)})).filter(any),
    rows(moments).map(lambda made: pd.Series(pd.DatetimeIndex(made).as_unit("ms"))),
    rows(spans).map(lambda made: pd.Series(pd.TimedeltaIndex(made).as_unit("us"))),
)  # fmt: skip
plain_names = st.none() | text | st.integers(0, 9) | st.tuples(text, st.integers(0, 9))
levels = st.one_of(
    rows(numbers).map(pd.Index), rows(text).map(lambda made: pd.Index(made, dtype="str")),
    rows(st.floats(allow_nan=False)).map(pd.Index), _zoned().map(pd.Index),
    _categories().map(pd.Index), _own("Int64", numbers).map(pd.Index),
    rows(st.booleans()).map(pd.Index), st.just(pd.RangeIndex(ROWS)),
)  # fmt: skip
attrs = st.dictionaries(
    text,
    st.recursive(
        st.none() | st.booleans() | numbers | text | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)


@st.composite
def indices(draw: st.DrawFn) -> pd.Index:
    kind = draw(st.sampled_from(["range", "one", "several"]))
    if kind == "range":
        start, step = draw(st.integers(-99, 99)), draw(st.sampled_from([1, 2, -3]))
        made: pd.Index = pd.RangeIndex(start, start + step * ROWS, step)
    elif kind == "one":
        made = draw(levels)
    else:
        made = pd.MultiIndex.from_arrays(draw(st.lists(levels, min_size=2, max_size=3)))
    return made.set_names(draw(st.lists(plain_names, min_size=made.nlevels, max_size=made.nlevels)))


@st.composite
def labels(draw: st.DrawFn, width: int) -> pd.Index:
    kind = draw(st.sampled_from(["texts", "numbers", "range", "times", "mixed", "several"]))
    unique: dict[str, Any] = {"min_size": width, "max_size": width, "unique_by": str}
    if kind == "range":
        made: pd.Index = pd.RangeIndex(width)
    elif kind == "times":
        when = draw(st.lists(moments, **unique))
        made = pd.DatetimeIndex(when, tz=draw(st.sampled_from(ZONES[:4])))
    elif kind == "mixed":
        held = text | st.integers(0, 9) | st.none() | st.dates()
        made = pd.Index(draw(st.lists(held, **unique)), dtype=object)
    elif kind == "several":
        pairs = draw(st.lists(st.tuples(text, text | st.integers(0, 9)), **unique))
        made = pd.MultiIndex.from_tuples(pairs) if width else pd.MultiIndex.from_arrays([[], []])
    else:
        made = pd.Index(draw(st.lists(text if kind == "texts" else numbers, **unique)))
        made = made if width else pd.Index([], dtype="str")
    return made.set_names(draw(st.lists(plain_names, min_size=made.nlevels, max_size=made.nlevels)))


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    held = draw(st.lists(columns, min_size=1, max_size=5))
    made = pd.concat(held, axis=1)
    made.columns = draw(labels(len(held)))
    made.index = draw(indices())
    made.attrs = draw(attrs)
    return made


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(frames())
def test_a_table_arrives_as_it_left(table: pd.DataFrame) -> None:
    """Types, index, labels, names and attributes; arrays for lists, and ints for inner ranges."""
    back = there_and_back(table)
    pd.testing.assert_frame_equal(back, table, check_freq=False, check_column_type=True)
    assert type(back.index) is type(table.index)
    assert back.attrs == table.attrs
    assert list(back.columns.names) == list(table.columns.names)
    assert list(back.index.names) == list(table.index.names)


# --- forged ones ---------------------------------------------------------------------------------


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    writing = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=writing) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    return sink.getvalue()


def form(data: bytes, **frame: Any) -> dict[str, Any]:
    return {"$": "table", "arrow": base64.b64encode(data).decode(), "frame": frame}


PLAIN = pa.table({"a": [1, 2], "b": ["x", "y"]})


def test_forged_tables_open_no_file() -> None:
    """Metadata, extensions, zones, types, labels and names that name one, in 300 tables."""
    ran = subprocess.run(
        [sys.executable, "-m", "support.forged_tables", "300"], check=True, capture_output=True,
        cwd=Path(__file__).parents[2], env={"PYTHONPATH": ".:tests", "TZ": "UTC"},
    )  # fmt: skip
    told = json.loads(ran.stdout)
    assert told["opened"] == []
    assert told["read"] > 30
    assert told["refused"] > 30


def test_the_metadata_of_a_stream_are_not_read() -> None:
    """Not those of the table, of a column, or of a field within one."""
    noted = {b"pandas": b"[" * 1_000_000, b"ARROW:extension:name": b"pandas.period"}
    inner = pa.list_(pa.field("item", pa.int64(), metadata=noted))
    schema = pa.schema([pa.field("a", inner, metadata=noted)], metadata=noted)
    back = decode(form(stream(pa.table([[[1, 2]]], schema=schema))), Room(9_000_000))
    assert list(back["a"][0]) == [1, 2]
    assert back.attrs == {}


@pytest.mark.parametrize(
    "zone",
    [
        "/etc/localtime", "dateutil//etc/passwd", "../../etc/passwd", "tzlocal()", "localtime",
        "Europe/../Europe/Zurich", "europe/zurich", "+05:30:10", "+24:00", ":UTC",
    ],
)  # fmt: skip
@pytest.mark.parametrize("within", [lambda kind: kind, pa.list_, lambda k: pa.struct([("x", k)])])
def test_a_zone_that_is_in_no_table_of_zones_is_refused_wherever_it_stands(
    zone: str, within: Any
) -> None:
    with pytest.raises(ValueError, match="not known here"):
        check_zone(zone)
    kind = within(pa.timestamp("s", tz=zone))
    with pytest.raises(ValueError, match="not known here"):
        decode(form(stream(pa.table({"a": pa.nulls(1, kind)}))))
    categories = pa.dictionary(pa.int8(), pa.timestamp("s", tz=zone))
    with pytest.raises(ValueError, match="not known here"):
        decode(form(stream(pa.table({"a": pa.nulls(1, categories)}))))


@pytest.mark.parametrize(
    "frame",
    [
        {"types": {"datetime64[ns, dateutil//etc/passwd]": [0]}}, {"types": {"Int64": [1]}},
        {"types": {"category": [0]}}, {"types": {"Int64": [0], "arrow": [0]}}, {"types": 5},
        {"types": {"Int64": [2]}}, {"types": {"Int64": ["0"]}}, {"types": {"Int64": [True]}},
        {"index": {"levels": 3}}, {"index": {"levels": -1}}, {"index": {"levels": True}},
        {"index": {"levels": 1, "names": []}}, {"index": {"levels": 1, "names": [[]]}},
        {"index": {"range": [0, 10**9, 1]}}, {"index": {"range": [0, 2, 0]}}, {"index": []},
        {"index": {"range": [0, 2.0, 1]}}, {"index": {"range": [0, 10**30, 10**30]}},
        {"labels": {"items": ["a"], "names": [None]}}, {"labels": {"items": "ab", "names": [1]}},
        {"labels": {"items": [["a", 1], ["b", 2]], "names": [1, 2, 3]}}, {"labels": {}},
        {"labels": {"table": form(stream(PLAIN)), "names": [1]}}, {"labels": 7},
        {"attrs": [1]}, {"attrs": {"$": "object"}}, {"attrs": {"x": form(stream(PLAIN))}},
    ],
)  # fmt: skip
def test_what_does_not_fit_its_table_is_refused_with_one_kind_of_error(frame: Any) -> None:
    with pytest.raises(ValueError, match="not a value of kind 'table'"):
        decode(form(stream(PLAIN), **frame))


@pytest.mark.parametrize("frame", [5, "index", [], None])
def test_a_frame_that_is_no_object_is_refused(frame: Any) -> None:
    with pytest.raises(ValueError, match="not a value of kind 'table'"):
        decode({**form(stream(PLAIN)), "frame": frame})


def test_a_table_without_a_frame_has_its_columns_and_numbered_rows() -> None:
    """As programs without pandas write it, and earlier versions of this one."""
    back = decode({"$": "table", "arrow": form(stream(PLAIN))["arrow"]})
    pd.testing.assert_frame_equal(back, PLAIN.to_pandas())


def test_categories_that_come_in_parts_are_refused() -> None:
    """Each batch would hold a copy of all of the categories before it."""
    kind = pa.dictionary(pa.int32(), pa.string())
    codes = pa.array([0], pa.int32())
    parts = [pa.DictionaryArray.from_arrays(codes, pa.array([*names])) for names in ("a", "ab")]
    table = pa.table({"a": pa.chunked_array(parts, kind)})
    assert len(decode(form(stream(table)))) == 2
    with pytest.raises(ValueError, match="in parts"):
        decode(form(stream(table, emit_dictionary_deltas=True)))


def test_a_schema_beyond_its_bound_is_refused_before_it_is_looked_at() -> None:
    large = PLAIN.replace_schema_metadata({b"x": b"y" * SCHEMA_MAX})
    with pytest.raises(ValueError, match="schema has"):
        read_columns(stream(large), Room(0))


def test_fields_are_charged_before_arrow_builds_them() -> None:
    many = pa.schema([(f"column {n}", pa.int64()) for n in range(5_000)]).empty_table()
    with pytest.raises(TooMuch):
        read_columns(stream(many), Room(2_000_000))
    assert len(read_columns(stream(many), Room(4_000_000)).names) == 5_000
    more = pa.schema([(str(n), pa.int8()) for n in range(COLUMNS_MAX + 1)]).empty_table()
    with pytest.raises(ValueError, match="columns"):
        read_columns(stream(more), Room(1 << 40))


@pytest.mark.parametrize("kind", [pa.string(), pa.timestamp("s")])
def test_the_schema_of_ours_says_what_came(kind: pa.DataType) -> None:
    types = [
        pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.binary(),
        pa.large_binary(), pa.large_string(), pa.date32(), pa.date64(), pa.time32("s"), pa.null(),
        pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("ms"), pa.duration("ns"),
        pa.decimal128(10, 2), pa.decimal256(60, -3), pa.month_day_nano_interval(), pa.list_(kind),
        pa.large_list(pa.struct([("a", kind), ("b", pa.list_(kind))])), pa.timestamp("ms", "UTC"),
        pa.dictionary(pa.int16(), kind, ordered=True), pa.dictionary(pa.uint8(), pa.int64()),
    ]  # fmt: skip
    empty = pa.schema([(f"c{n}", kind) for n, kind in enumerate(types)]).empty_table()
    columns = read_columns(stream(empty), Room(1_000_000))
    assert columns.schema.types == types
    assert columns.names == empty.column_names


@given(st.binary(min_size=1, max_size=20), st.integers(8, 700))
def test_a_damaged_schema_is_refused_with_one_kind_of_error(noise: bytes, at: int) -> None:
    data = bytearray(stream(pa.table({"a": [[{"x": dt.datetime(2024, 1, 1)}]], "b": ["ü"]})))
    data[at : at + len(noise)] = noise
    try:
        read_columns(bytes(data), Room(1_000_000))
    except ValueError as error:
        assert str(error)  # noqa: PT017 - or it is still a schema


def test_attributes_that_are_too_large_are_refused_where_they_are() -> None:
    table = pd.DataFrame({"a": [1]})
    for large in ([[]] * 500_000, "x" * 2_000_000, ["x" * 1_000] * 2_000):
        table.attrs = {"x": large}
        with pytest.raises(TypeError, match="attrs of a table hold more"):
            encode(table)
        with pytest.raises(ValueError, match="attrs of a table hold more"):
            decode(form(stream(PLAIN), attrs={"x": large}))
    table.attrs = {"x": object()}
    assert there_and_back(table).attrs == {}


def test_types_that_arrow_was_given_by_others_are_refused_where_they_are() -> None:
    for column in (pd.period_range("2024", periods=2, freq="M"), pd.cut([1, 5], 2)):
        with pytest.raises(TypeError, match=r"convert it with astype\(str\)"):
            encode(pd.DataFrame({"a": column}))


def test_a_label_that_has_no_form_is_called_by_its_text() -> None:
    table = pd.DataFrame([[1, 2]], columns=pd.interval_range(0, 2))
    assert list(there_and_back(table).columns) == ["(0, 1]", "(1, 2]"]


def test_a_series_keeps_its_name_its_index_and_its_attributes() -> None:
    for name in (None, 5, "x", ("a", 1)):
        series = pd.Series([1, 2], index=pd.Index(["p", "q"], name=3), name=name)
        series.attrs = {"unit": "kg"}
        back = there_and_back(series)
        pd.testing.assert_series_equal(back, series)
        assert back.attrs == series.attrs
