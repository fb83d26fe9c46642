"""The offline analyst reads back what its first cell prints, whatever the table."""

from __future__ import annotations

import contextlib
import io

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_agent.models.offline.conversation import failure
from kernel_agent.models.offline.loading import date_formats, overview_source, variable_for
from kernel_agent.models.offline.schema import Column, Table, plural, read_tables, singular


def printed(table: pd.DataFrame, question: str = "") -> str:
    namespace: dict[str, object] = {}
    exec(overview_source(), namespace)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        namespace["overview"]("sample", table, question)  # type: ignore[operator]
    return out.getvalue()


def read_back(table: pd.DataFrame, question: str = "") -> Table:
    return read_tables([printed(table, question)])["sample"]


def test_every_kind_of_column_is_read_back() -> None:
    """Kinds, missing values, ranges and listed values survive the way through print."""
    table = read_back(
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
@given(
    st.lists(
        st.text(
            st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20
        ),
        min_size=1,
        max_size=6,
        unique=True,
    )
)
def test_no_column_name_or_value_is_lost(names: list[str]) -> None:
    """Names and values with quotes, bars, colons or any script come back as they are."""
    table = read_back(pd.DataFrame({name: [name, "other " + name] for name in names}))
    assert [c.name for c in table.columns] == names
    for column in table.columns:
        assert column.distinct == 2
        assert not column.listed or column.name in column.values


@pytest.mark.parametrize("columns", [1, 12, 60, 300])
def test_the_overview_stays_short_for_wide_tables(columns: int) -> None:
    """However many columns, the overview fits into an observation and holds what is asked."""
    table = pd.DataFrame({f"measurement_{i:03d}_mm": [i, i + 0.5] for i in range(columns)})
    table["kind"] = ["alpha" * 30, "beta" * 30]
    text = printed(table, "average kind and measurement 000")
    assert len(text) < 6500
    seen = read_tables([text])["sample"]
    assert "measurement_000_mm" in [c.name for c in seen.columns]
    assert len(seen.columns) + len(seen.others) <= columns + 1


def test_values_that_the_question_names_are_found_in_long_columns() -> None:
    """A column with too many values to list still says which of them the question means."""
    names = pd.DataFrame({"name": [f"car number {i:04d}" for i in range(500)] + ["ford torino"]})
    column = read_back(names, "the mass of a ford torino").column("name")
    assert not column.listed
    assert column.values == ("ford torino",)


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
