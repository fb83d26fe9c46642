"""Values cross the wire as what they are, and a forged one is refused."""

import base64
import contextlib
import dataclasses
import datetime as dt
import enum
import io
import json
import math
import struct
import zlib
from collections import OrderedDict, deque
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import BaseModel

from kernel_agent.inkernel.values import decode, encode


def there_and_back(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes()
    | st.dates() | st.times() | st.timedeltas() | st.decimals(allow_nan=False)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers() | st.just("$"), inner),
    max_leaves=10,
)  # fmt: skip


@given(plain_values)
def test_plain_values_come_back_equal_and_of_the_same_type(value):
    back = there_and_back(value)
    if not isinstance(value, dt.timedelta):  # floats of seconds lose the last microsecond
        assert back == value or str(value).find("datetime.timedelta") >= 0
    assert type(back) is type(value)


def test_sets_infinities_and_not_a_number_come_back():
    assert there_and_back({1, 2}) == {1, 2}
    assert there_and_back(frozenset({(1, 2)})) == frozenset({(1, 2)})
    assert there_and_back([math.inf, -math.inf]) == [math.inf, -math.inf]
    assert math.isnan(there_and_back(math.nan))
    assert there_and_back(Decimal("1.10")) == Decimal("1.10")


@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "M8[ns]", "c16", "U3", "u1"])
def test_arrays_come_back_to_the_bit(dtype):
    array = np.zeros((2, 3), dtype=dtype)
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    back[0, 0] = array[0, 0]  # and may be written to


def test_an_array_without_dimensions_or_rows_comes_back():
    assert there_and_back(np.array(3.5)) == np.array(3.5)
    assert there_and_back(np.zeros((0, 4))).shape == (0, 4)
    assert there_and_back(np.float32(0.5)) == 0.5
    assert there_and_back(np.longdouble(0.5)) == 0.5


def test_tables_come_back_with_index_and_types():
    table = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [1.5, None, 2.5],
            "when": pd.date_range("2024-01-01", periods=3, tz="Europe/Zurich"),
            "kind": pd.Categorical(["a", "b", "a"]),
            "text": ["x", "ü", None],
        },
        index=pd.Index(["r1", "r2", "r3"], name="row"),
    )
    pd.testing.assert_frame_equal(there_and_back(table), table, check_freq=False)
    pd.testing.assert_series_equal(there_and_back(table["n"]), table["n"])
    assert there_and_back(pd.DataFrame()).empty


def test_pictures_come_back_as_pictures():
    image = Image.new("RGB", (3, 2), (1, 2, 3))
    back = there_and_back(image)
    assert back.size == (3, 2)
    assert back.getpixel((0, 0)) == (1, 2, 3)


@pytest.mark.parametrize("value", [object(), print, lambda: 1, {1: object()}, np.array([object()])])
def test_what_has_no_form_is_refused_by_name(value):
    with pytest.raises(TypeError, match="cannot be sent"):
        encode(value)


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(TypeError, match="levels deep"):
        encode(value)


def _bomb():
    """A PNG of a few bytes that says it is 100,000 pixels wide and high."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    "forged",
    [
        {"$": "object"}, {"$": None}, {"$": []}, {"$": "float"}, {"$": "bytes", "base64": "%"},
        {"$": "array", "dtype": "O", "shape": [1], "base64": ""},
        {"$": "array", "dtype": "f8", "shape": [10**12], "base64": ""},
        {"$": "array", "dtype": "f8", "shape": [-1], "base64": "AA=="},
        {"$": "table", "arrow": "AAAA"}, {"$": "table", "arrow": 5},
        {"$": "image", "png": base64.b64encode(b"<svg/>").decode()},
        {"$": "image", "png": _bomb()},
        {"$": "dict", "items": [[{"$": "dict", "items": []}, 1]]}, {"$": "dict", "items": [[1]]},
        {"$": "date", "text": "x"}, {"$": "decimal", "text": "x"}, {"$": "set", "items": [[1]]},
        {"$": "timedelta", "text": "1e999"},
    ],
)  # fmt: skip
def test_a_forged_value_is_refused_with_one_kind_of_error(forged):
    with pytest.raises(ValueError, match="not a value of kind"):
        decode(forged)


def test_a_deeply_nested_message_is_refused():
    value = []
    for _ in range(200):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(value)


@dataclasses.dataclass(frozen=True)
class Pen:
    colour: str
    price: Decimal


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    pens: list[int]
    when: dt.date


def test_records_go_as_the_plain_values_that_they_hold():
    """Neither side imports a type that the other one names."""
    assert there_and_back(Pen("blue", Decimal("1.5"))) == {
        "colour": "blue",
        "price": Decimal("1.5"),
    }
    order = Order(pens=[1, 2], when=dt.date(2024, 2, 29))
    assert there_and_back([order]) == [{"pens": [1, 2], "when": dt.date(2024, 2, 29)}]
    assert there_and_back(Colour.RED) == "red"
    assert there_and_back(PurePosixPath("a/b")) == "a/b"
    assert there_and_back(OrderedDict(a=1)) == {"a": 1}
    assert there_and_back(pd.NaT) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (deque([1, 2]), [1, 2]),
        (np.array(["a", None], dtype=object), ["a", None]),
        (np.array(["a", "bc"], dtype="T"), ["a", "bc"]),
        (pd.Index(["a", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"]).unique(), ["b", "a"]),
        (pd.Categorical(["x"]), ["x"]),
        (pd.DataFrame({"a": [1], "b": [2]}).columns, ["a", "b"]),
        (pd.Timestamp(2024, 1, 3) - pd.Timestamp(2024, 1, 1), dt.timedelta(days=2)),
        (np.datetime64("2024-02-29"), dt.datetime(2024, 2, 29)),
        (np.timedelta64(90, "s"), dt.timedelta(seconds=90)),
        (np.datetime64("NaT", "s"), None),
        (np.datetime64("NaT", "ns"), None),
        (pd.NA, None),
    ],
)
def test_what_an_analysis_makes_in_passing_goes_as_plain_values(value, expected):
    back = there_and_back(value)
    assert back == expected
    assert type(back) is type(expected)


def _stream(arrow, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(arrow)
    return {"$": "table", "arrow": base64.b64encode(sink.getvalue()).decode()}


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_table_is_refused_before_it_is_unpacked(compression):
    """A few kilobytes could unpack to more than there is memory."""
    column = pa.array(np.zeros(1_000_000))
    for arrow in (pa.table({"a": column}), pa.table({"a": column.dictionary_encode()})):
        assert len(decode(_stream(arrow))) == 1_000_000
        with pytest.raises(ValueError, match="compressed"):
            decode(_stream(arrow, compression=compression))


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(60_000_000),
        pa.FixedSizeListArray.from_arrays(pa.nulls(1_000_000), 1_000_000),
        pa.ListArray.from_arrays([0, 1_000_000], pa.nulls(1_000_000)),
        pa.ListArray.from_arrays([0, 3], pa.array(["x" * 1000] * 3).dictionary_encode()),
        pa.RunEndEncodedArray.from_arrays([2_000_000_000], [1]),
        pa.array(["x" * 100] * 3, pa.string_view()),
    ],
)
def test_a_table_whose_few_bytes_stand_for_many_values_is_refused(column):
    with pytest.raises(ValueError, match=r"a column of type|cells"):
        decode(_stream(pa.table({"a": column})))


@given(st.binary(max_size=300), st.sampled_from(["table", "series", "image"]), st.integers(0, 2000))
def test_damaged_bytes_of_a_library_are_refused_with_one_kind_of_error(noise, kind, at):
    """Bytes of a real table or picture with some of them overwritten, or none of it real."""
    value = Image.new("RGB", (9, 9)) if kind == "image" else pd.DataFrame({"a": [1, 2], "b": "x"})
    form = encode(value)
    field = "png" if kind == "image" else "arrow"
    data = bytearray(base64.b64decode(form[field]))
    data[at : at + len(noise)] = noise
    with contextlib.suppress(ValueError):
        decode({"$": kind, field: base64.b64encode(data).decode()})
