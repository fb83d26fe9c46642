"""The offline analyst reads back what its first cell prints, whatever the table."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import io
import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_agent.offline.cells import fit_lines
from kernel_agent.offline.conversation import failure
from kernel_agent.offline.loading import variable_for
from kernel_agent.offline.looking import closer_look, first_look, values_look
from kernel_agent.offline.printed import look_again, read_named, read_tables
from kernel_agent.offline.schema import Column, Table, plural, singular
from kernel_agent.offline.tidying import date_formats
from kernel_agent.safe.text import shorten


def printed(code: str, table: pd.DataFrame) -> str:
    """Run a cell over a table; what it prints, shortened as an observation is."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(fit_lines(code), {"sample": table})
    return shorten(out.getvalue(), 6000)


def first(table: pd.DataFrame, *, mixed: bool = False) -> Table:
    return read_tables([printed(first_look("sample", mixed=mixed), table)])["sample"]


def closer(seen: Table, table: pd.DataFrame, question: str) -> Table:
    return look_again(seen, printed(closer_look(seen, question).code, table))


def test_every_kind_of_column_is_read_back() -> None:
    """Kinds, missing values, ranges and listed values survive the way through print."""
    table = first(
        pd.DataFrame(
            {
                "body_mass_g": [3750.0, None, 4000.0],
                "ratio": [0.5, 1.5, 2.25],
                "sex": ["male", None, "fe|male"],
                "alive": [True, False, True],
                "when": pd.to_datetime(["2020-01-01", "2021-06-30", "2020-02-02"]),
                "Total (USD)": ["$1,200.50", "$3", "?"],
                "day": ["2020/01/31", "2020/02/01", "2020/02/02"],
            }
        )
    )
    mass = table.column("body_mass_g")
    assert (mass.kind, mass.missing, mass.low, mass.high) == ("whole", 1, "3750", "4000")
    assert (mass.label, mass.unit) == ("body mass", "g")
    assert table.column("ratio").kind == "number"
    assert table.column("sex").values == ("fe|male", "male")
    assert table.column("alive").truth == (True, False)
    assert table.column("when").low == "2020-01-01 00:00:00"
    assert table.column("Total (USD)").disguise == "number"
    assert table.column("day").disguise == "date"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=6, unique=True))
def test_no_column_name_or_value_is_lost(names: list[str]) -> None:
    """Names and values with quotes, line ends, colons or any script come back as they are."""
    rows = pd.DataFrame({name: [name, "other " + name] for name in names})
    table = first(rows, mixed=True)
    assert [c.name for c in table.columns] == names
    for column in table.columns:
        assert set(column.values) == {column.name, "other " + column.name}
        assert column.listed


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ([1, 2], "other"),
        ({"a": 1}, "other"),
        (decimal.Decimal("1.50"), "number as text"),
        (dt.date(2020, 1, 31), "date as text"),
        (pd.Timestamp("2020-01-31", tz="UTC"), "date"),
        (pd.Timedelta("1 day"), "other"),
        (math.inf, "number"),
        (-2.5, "number"),
        (True, "bool"),
        (None, "empty"),
    ],
)
def test_cells_of_every_type_are_told_apart(value: object, seen: str) -> None:
    """Lists, decimals, dates, spans and infinities are seen as what they are."""
    column = first(pd.DataFrame({"x": pd.Series([value, value])}), mixed=True).column("x")
    disguise = f"{column.disguise} as text" if column.disguise else ""
    assert (disguise or column.kind) == seen


def test_the_first_look_is_short() -> None:
    """A newcomer reads it at a glance, whatever the table's name."""
    for mixed in (False, True):
        code = fit_lines(first_look("a_table_with_rather_a_long_name", mixed=mixed))
        assert len(code.splitlines()) <= 15
        assert all(len(line) <= 99 for line in code.splitlines())


@pytest.mark.parametrize("columns", [120, 300])
def test_a_wide_table_is_looked_at_twice(columns: int) -> None:
    """What the first observation could not hold is noticed; a second shows what is asked for."""
    rows = pd.DataFrame({f"measurement_{i:03d}_mm": [i, i + 0.5] for i in range(columns)})
    rows["kind"] = ["alpha", "beta"] * (len(rows) // 2)
    seen = first(rows)
    assert not seen.complete
    asked = f"average of measurement {columns // 2:03d} by kind"
    seen = closer(seen, rows, asked)
    wanted = seen.column(f"measurement_{columns // 2:03d}_mm")
    assert (wanted.low, wanted.high) == (f"{columns // 2}.0", f"{columns // 2}.5")
    assert seen.column("kind").values == ("alpha", "beta")
    assert len(seen.columns) + len(seen.others) <= columns + 1


def test_a_table_of_long_texts_is_looked_at_twice() -> None:
    """Texts of many lines hide no column, and are not taken for all there is."""
    rows = pd.DataFrame({"review": [f"{i} says:\n" + "words " * 900 for i in range(20)],
                         "stars": [1, 2] * 10, "shop": ["north", "south"] * 10})  # fmt: skip
    seen = first(rows)
    assert not seen.complete
    seen = closer(seen, rows, "average stars by shop")
    assert [c.name for c in seen.columns if c.name != "review"] == ["stars", "shop"]
    assert seen.complete
    assert not seen.column("review").listed
    assert seen.column("shop").listed


CARS = pd.DataFrame(
    {"name": [f"car number {i:04d}" for i in range(500)] + ["ford torino"], "mass": range(501)}
)


def test_values_that_the_question_names_are_found_in_long_columns() -> None:
    """A column with too many values to list still says which of them the question means."""
    seen = first(CARS)
    cell = values_look(seen, "the mass of a “Ford Torino”")
    assert cell is not None
    column = seen.naming(read_named(printed(cell.code, CARS))).column("name")
    assert not column.listed
    assert column.values == ("ford torino",)


@pytest.mark.parametrize(
    ("question", "needed"),
    [
        ("average mass", False),
        ("how many cars are there?", False),
        ("mass of the ford torino", True),
        ("which name is up", True),
        ("average mass in US", True),
        ("How many cars have a mass above 40", False),
    ],
)
def test_a_second_look_is_taken_only_where_a_word_may_be_a_value(
    question: str, needed: bool
) -> None:
    """An unknown word, a capital, or the column's own name ask for it; nothing else does."""
    seen = replace(first(CARS), path="cars.csv")
    assert (values_look(seen, question) is not None) is needed


@pytest.mark.parametrize(
    ("name", "kind", "label", "unit"),
    [
        ("flipper_length_mm", "number", "flipper length", "mm"),
        ("Culmen Length (mm)", "number", "culmen length", "mm"),
        ("Weight_in_lbs", "whole", "weight", "lb"),
        ("petalWidth", "number", "petal width", ""),
        ("IMDB_Rating", "number", "IMDB rating", ""),
        ("temp_min", "number", "temp min", ""),
        ("Running_Time_min", "whole", "running time", "min"),
        ("price", "number", "price", ""),
        ("g", "number", "g", ""),
    ],
)
def test_a_name_says_its_label_and_unit(name: str, kind: str, label: str, unit: str) -> None:
    """A unit at the end of a name is told apart from the words before it."""
    column = Column(name=name, kind=kind, missing=0, distinct=9)
    assert (column.label, column.unit) == (label, unit)


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        ("data/penguins.csv", "penguins"),
        ("data/My cars (1).csv", "my_cars_1"),
        ('data/2020 report\'s "final".xlsx', "table_2020_report_s_final"),
        ("data/données.csv", "donnes"),
        ("data/class.csv", "class_table"),
    ],
)
def test_a_file_gets_a_readable_variable(path: str, variable: str) -> None:
    """The name of the variable follows from the file's, and is a Python name."""
    assert variable_for(path) == variable
    assert variable.isidentifier()


@pytest.mark.parametrize(
    ("sample", "formats"),
    [
        ("2020-01-31 10:00", ("ISO8601",)),
        ("03/04/2021 25/12/2020", ("%m/%d/%Y", "%d/%m/%Y")),
        ("3.4.2021", ("%d.%m.%Y", "%m.%d.%Y")),
        ("Jan 1 2000", ("%b %d %Y",)),
        ("January 1, 2000", ("%B %d, %Y",)),
        ("1 Feb 2000", ("%d %b %Y",)),
    ],
)
def test_dates_are_recognised_by_their_writing(sample: str, formats: tuple[str, ...]) -> None:
    """The formats that are tried follow from how the dates look."""
    assert date_formats(sample) == formats


@pytest.mark.parametrize(
    ("one", "many"),
    [("country", "countries"), ("penguin", "penguins"), ("box", "boxes"), ("bus", "bus"),
     ("species", "species"), ("movie", "movies")],
)  # fmt: skip
def test_plurals_come_down_to_their_singular(one: str, many: str) -> None:
    """Plurals of columns and values are found under their singular."""
    assert singular(many) == one
    assert singular(one) == one
    assert plural(many) == many


def test_a_failed_cell_is_told_from_its_last_line() -> None:
    """The error's type and message are read; ordinary output holds none."""
    text = "Cell In[1], line 2\nValueError: first\n\npandas.errors.ParserError: Expected 3 fields"
    assert failure(text) == ("ParserError", "Expected 3 fields")
    assert failure("mean 3.5\nerrors: none") is None
