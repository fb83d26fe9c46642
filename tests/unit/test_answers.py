"""An answer is said as a person would write it, whatever its value, and wherever it came from."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.records import Answer, word_answer
from kernel_agent.records.answers import say_value

RECORDS = [{"region": f"R{n}", "sold": n * 1.25, "year": 2020 + n} for n in range(30)]


def words(value: Any, kind: str = "") -> str:
    return word_answer(Answer(text="as given", value=value, kind=kind or type(value).__name__)).text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (42, "42"),
        (12345, "12,345"),
        (-1234567, "-1,234,567"),
        (2025, "2025"),
        (5.0, "5"),
        (91219.93250000001, "91,219.93"),
        (0.1 + 0.2, "0.3"),
        (0.000123456789, "0.000123457"),
        (1e-9, "1e-09"),
        (float("nan"), "not a number"),
        (float("-inf"), "minus infinite"),
        (10**400, "a number of more than 77 digits"),
        (True, "Yes"),
        ("2025-01-01T00:00:00", "2025-01-01"),
        ("2025-01-01T14:30:15.250Z", "2025-01-01 14:30:15 UTC"),
        ("2025-01-01T14:30:00+02:00", "2025-01-01 14:30 +02:00"),
        ("2025 or so", "2025 or so"),
        (None, "—"),
    ],
)
def test_a_single_value_is_said_plainly(value: Any, said: str) -> None:
    assert say_value(value) == said


@pytest.mark.parametrize(
    ("value", "kind", "form", "said"),
    [
        ("# Result\n**North**", "str", "text", "# Result\n**North**"),
        (None, "NoneType", "nothing", "No value"),
        (None, "Lock", "description", "as given"),
        ("2025-01-01T00:00:00", "Timestamp", "date", "2025-01-01"),
        ("2025-01-01T00:00:00", "str", "text", "2025-01-01T00:00:00"),
        ("a figure of 400 by 200 pixels", "Figure", "description", "a figure of 400 by 200 pixels"),
        ([1, "x", None], "list", "list", "1, x, —"),
        ([], "list", "list", "An empty list"),
        ({}, "dict", "pairs", "Nothing in it"),
        ([], "DataFrame", "table", "An empty table"),
        ([[1, 2.5], [3, 4.0]], "ndarray", "table", "1  2.5\n3  4.0"),
        (
            {"from": "2025-01-01", "sold": [1, 2]},
            "dict",
            "pairs",
            "from  2025-01-01\nsold  1, 2",
        ),
        ([{"a": 1200, "b": "x"}], "list", "table", "    a  b\n1,200  x"),
        ([{"a": 1}, {"b": 2}], "list", "list", "a: 1, b: 2"),
    ],
)
def test_each_kind_has_its_form(value: Any, kind: str, form: str, said: str) -> None:
    worded = word_answer(Answer(text="as given", value=value, kind=kind))
    assert (worded.kind, worded.text) == (form, said)


def test_a_table_is_said_with_its_first_rows_and_its_real_size() -> None:
    value = {"type": "DataFrame", "length": 5_000_000, "first": RECORDS}
    worded = word_answer(
        Answer(text="", value=value, kind="DataFrame", shape=(5_000_000, 3)), rows=3
    )
    assert worded.columns == ("region", "sold", "year")
    assert worded.rows == (("R0", "0.00", "2020"), ("R1", "1.25", "2021"), ("R2", "2.50", "2022"))
    assert worded.right == {1, 2}
    assert worded.size == "5,000,000 rows, 3 columns; the first 3 shown"
    assert worded.text.endswith(f"\n({worded.size})")


@pytest.mark.parametrize(
    ("rows", "columns", "shape", "size"),
    [
        (1, 2, (), "1 row, 2 columns"),
        (1, 2, (1, 2), "1 row, 2 columns"),
        (2, 1, (2,), "2 rows, 1 column"),
        (2, 3, (2, 9), "2 rows, 9 columns; the first 3 columns shown"),
        (2, 60, (), "2 rows, 60 columns; the first 50 columns shown"),
        (30, 60, (30, 60), "30 rows, 60 columns; the first 20 rows and 50 columns shown"),
        (30, 2, (30, 2), "30 rows, 2 columns; the first 20 shown"),
    ],
)
def test_rows_of_single_values_are_a_table_with_its_real_size(
    rows: int, columns: int, shape: tuple[int, ...], size: str
) -> None:
    """Whether or not the kernel has said its shape, and also where it has one row only."""
    worded = word_answer(Answer(text="", value=[[0] * columns] * rows, kind="ndarray", shape=shape))
    assert (worded.kind, worded.size) == ("table", size)


def test_a_small_table_is_whole_and_its_text_says_no_size() -> None:
    worded = word_answer(Answer(text="", value=RECORDS[:2], kind="DataFrame"))
    assert worded.size == "2 rows, 3 columns"
    assert worded.text.splitlines() == [
        "region  sold  year",
        "R0      0.00  2020",
        "R1      1.25  2021",
    ]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        ([1200, None, 3], ["1,200", "—", "3"]),
        ([2024, None, 2025], ["2024", "—", "2025"]),
        ([1000.0, 2.378], ["1,000.00", "2.38"]),
        ([999.0, 0.012345], ["999.0000", "0.0123"]),
        ([0.00123456, 0.0005], ["0.001235", "0.000500"]),
        (["2025-01-01T00:00:00", None, "2025-01-02 00:00"], ["2025-01-01", "—", "2025-01-02"]),
        (["2025-01-01T00:00", "2025-01-02 08:30"], ["2025-01-01 00:00", "2025-01-02 08:30"]),
    ],
)
def test_the_cells_of_a_column_have_one_form(column: list[Any], texts: list[str]) -> None:
    value = [{"a": cell} for cell in column]
    worded = word_answer(Answer(text="", value=value, kind="DataFrame"))
    assert [cell for [cell] in worded.rows] == texts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([["a", ["b", ["c"]]]], "a · b, c"),
        ([["a", ["b", ["c", ["d"]]]]], "a · b · c, …"),
        ({"n": [1, ["a", ["b"]]]}, "n  1 · a, b"),
    ],
)
def test_lists_within_lists_are_said_down_to_the_third(value: Any, said: str) -> None:
    assert words(value) == said


def test_a_dict_that_only_looks_shortened_is_a_dict() -> None:
    worded = word_answer(Answer(text="", value={"type": 1, "length": 2, "first": 3}, kind="dict"))
    assert [name for name, _ in worded.rows] == ["type", "length", "first"]


@pytest.mark.parametrize(
    "value",
    [
        [float("nan"), 10**400, 1.5],
        [{"a": float("inf")}, {"a": None}],
        {"type": "DataFrame", "length": -1, "first": [{"a": 10**5000}]},
        {"type": "DataFrame", "length": "x", "first": {}},
        [[], []],
        [[[[[["deep"]]]]]],
        {"\x1b[31m": "\x1b[2J\u202e"},
        [{"a" * 10_000: "b" * 10_000}] * 10_000,
    ],
)
def test_what_a_hostile_kernel_says_is_worded_within_bounds(value: Any) -> None:
    worded = word_answer(Answer(text="", value=value, kind="DataFrame"))
    assert len(worded.rows) <= 20
    assert all(len(cell) <= 2_000 and "\x1b" not in cell for row in worded.rows for cell in row)
    assert "\x1b" not in worded.text
