"""The cell that binds what a delegated run was given: values come back, from files as needed."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.inkernel.values import encode
from kernel_agent.session.parameters import opening_of


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("opening"))
    Path("data").mkdir()
    yield
    os.chdir(before)


def bound(data: dict[str, Any]) -> dict[str, Any]:
    """Return the variables that the cell binds, in a folder with its files."""
    opening = opening_of({name: encode(value) for name, value in data.items()})
    for name, content in opening.files.items():
        Path("data", name).write_bytes(content)
    names: dict[str, Any] = {"display": lambda *_: None}
    exec(compile(opening.source, "cell", "exec"), names)
    return names


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.decimals(allow_nan=False)
    | st.builds(dt.timedelta, seconds=st.integers(-(10**6), 10**6))
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(leaves, max_size=3)
    ),
    max_leaves=12,
)


@given(value=values)
def test_every_plain_value_is_bound_as_it_was(value: Any) -> None:
    """Whatever JSON or the typed forms hold, and whatever characters are in it."""
    assert bound({"given": value})["given"] == value


def test_tables_series_and_arrays_become_files_and_keep_their_types() -> None:
    """Also inside lists and dicts."""
    table = pd.DataFrame({"a": pd.array([1, None], dtype="Int8")}, index=pd.Index([5, 6], name="k"))
    array = np.arange(6, dtype="int16").reshape(3, 2)
    names = bound({"table": table, "both": [table, {"a": array}], "one": table.a, "e": array[:0]})
    pd.testing.assert_frame_equal(names["table"], table)
    pd.testing.assert_frame_equal(names["both"][0], table)
    assert names["both"][1]["a"].dtype == np.int16
    assert (names["both"][1]["a"] == array).all()
    pd.testing.assert_series_equal(names["one"], table.a)
    assert names["e"].shape == (0, 2)


def test_long_values_are_files_and_not_in_the_cell() -> None:
    """The model reads the cell."""
    given = {"many": list(range(10_000)), "text": "ä\r\n" * 9_000, "raw": bytes(9_000)}
    opening = opening_of({name: encode(value) for name, value in given.items()})
    assert len(opening.source) < 500
    names = bound(given)
    assert (names["many"], names["text"], names["raw"]) == tuple(given.values())


def test_special_numbers_are_numbers() -> None:
    """JSON has no form for them, the wire has."""
    names = bound({"x": [math.nan, math.inf]})
    assert math.isnan(names["x"][0])
    assert names["x"][1] == math.inf
    assert bound({"x": decimal.Decimal("NaN")})["x"].is_nan()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("a b", 1, "cannot be the name"),
        ("class", 1, "cannot be the name"),
        ("final_answer", 1, "cannot be the name"),
        ("x", {"$": "pickle", "data": "gASVCw=="}, "'pickle' is no kind of value"),
        ("x", {"$": ["table"]}, "is no kind of value"),
        ("x", {"$": "table"}, "not a value of kind 'table'"),
        ("x", {"$": "table", "arrow": "!"}, "base64"),
        ("x", {"$": "table", "arrow": 5}, "not a value of kind"),
        ("x", {"$": "array", "dtype": "O", "shape": [1], "base64": ""}, "no plain type"),
        ("x", {"$": "array", "dtype": "<f8", "shape": ["0)+exit("], "base64": ""}, "no plain"),
        ("x", {"$": "date", "text": 5}, "its text is not a string"),
        ("x", {"$": "tuple", "items": 5}, "not a value of kind"),
        ("x", {"$": "dict", "items": [1]}, "not a value of kind"),
        ("x", [{"$": "float", "text": "1"}] * 5000, "pass a table"),
    ],
)
def test_what_is_no_value_is_refused(name: str, value: Any, told: str) -> None:
    """The request comes from a kernel, which is hostile."""
    with pytest.raises(ValueError, match=told):
        opening_of({name: value})


def test_deep_nesting_is_refused() -> None:
    """And not answered with a recursion error."""
    deep: Any = {"$": "float", "text": "1"}
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        opening_of({"x": deep})


@given(text=st.text())
def test_no_text_of_a_typed_form_becomes_code(text: str) -> None:
    """Each stands in the cell as one literal."""
    opening = opening_of({"x": {"$": "decimal", "text": text}})
    line = opening.source.splitlines()[-2]
    assert line == f"x = Decimal({text!r})"
