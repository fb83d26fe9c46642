"""The offline analyst answers five kinds of question with values, and refuses every other one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import subprocess
import sys
import traceback
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.errors import ModelError
from kernel_agent.offline import OfflineAnalyst
from kernel_agent.records import Message, ReplyText, RequestOptions

DAYS = pd.date_range("2025-01-15", "2025-12-20", freq="3D")
RANDOM = np.random.default_rng(7)
SALES = pd.DataFrame(
    {
        "order_date": RANDOM.permutation(DAYS.strftime("%Y-%m-%d")),
        "region": RANDOM.choice(["North", "South", "West"], len(DAYS)),
        "productLine": RANDOM.choice(["tea", "coffee"], len(DAYS)),
        "revenue_eur": RANDOM.random(len(DAYS)).round(3) * 100,
        "shops": RANDOM.integers(1, 90, len(DAYS)),
        "temp_max": RANDOM.random(len(DAYS)) * 30,
        "temp_min": RANDOM.random(len(DAYS)) * 10,
        "member": RANDOM.choice([True, False], len(DAYS)),
    }
)
SALES.loc[3, "temp_max"] = np.nan
PEOPLE = pd.DataFrame(
    {
        "name": list("abcdefgh"),
        "type": ["Death", "Death", "Other", "Other", "Other", "Other", "Other", "Other"],
        "race": ["x", "y"] * 4,
        "age": [10, 20, 30, 40, 50, 60, 70, 80],
        "ncases": [1, 2, 3, 4, 5, 6, 7, 8],
        "stations": [3, 1, 2, 2, 2, 2, 2, 2],
        "count": [5, 5, 5, 5, 5, 5, 5, 6],
        "year": [2001, 2002] * 4,
        "total": [1, 2, 3, 4, 5, 6, 7, 9],
        "gdpPercap": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
    }
)
LONG = pd.DataFrame({"noted": pd.date_range("2020-01-01", "2022-12-31"), "rain": range(1096)})


class Plain:
    """The least that the analyst needs of a format."""

    def compose(self, *, thought: str, code: str) -> str:
        return f"{thought}\n---\n{code}"


def task(question: str, *files: str) -> Message:
    lines = "".join(f"\n- {file} (CSV, 15.2 kB)" for file in files)
    data = f"\n\nData files, relative to the working directory:{lines}" if files else ""
    return Message(role="user", content=f"<task>\n{question}\n</task>{data}")


def observed(step: int, text: str) -> Message:
    return Message(role="user", content=f"Observation (step {step}):\n{text}")


def reply(*messages: Message, events: list[Any] | None = None) -> str:
    analyst = OfflineAnalyst(Plain())  # type: ignore[arg-type]  # only compose is used
    told = [] if events is None else events
    return asyncio.run(analyst.complete(messages, RequestOptions(), told.append)).content


def run(code: str, names: dict[str, Any]) -> str:
    """Run a cell as a kernel would; return what it printed, or its error."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<cell>", "exec"), names)
    except Exception as error:
        printed.write("".join(traceback.format_exception_only(error)))
    return printed.getvalue()


def ask(question: str, table: pd.DataFrame, *, draw: bool = False) -> tuple[Any, str, list[Any]]:
    """Return the answer to a question about a table, its note, and the axes that were drawn."""
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    answers: list[tuple[Any, str]] = []
    names: dict[str, Any] = {"final_answer": lambda value, note="": answers.append((value, note))}
    messages = [task(question, "data/t.feather")]
    for step in (1, 2):
        code = reply(*messages).partition("\n---\n")[2]
        names["read"] = table.copy()
        code = re.sub(r"pd\.read_feather\(.*?\)", "read", code)
        messages.append(observed(step, run(code, names)))
    axes = [axis for number in plt.get_fignums() for axis in plt.figure(number).axes]
    plt.close("all")
    assert answers, messages[-1].content
    return (*answers[0], axes)


def refusal(question: str, table: pd.DataFrame) -> str:
    with pytest.raises(ModelError) as refused:
        ask(question, table)
    return str(refused.value)


def offered(message: str) -> list[str]:
    return re.findall("“([^”]+)”", message.partition("It does answer")[2])


# --- what is in the table ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "What is in the table?", "Describe the data", "What data do we have here?",
        "Which columns are there?", "What columns does this table have?", "Give me an overview",
        "Summarise the dataset, please", "Which columns have missing values, and how many?",
        "Are there gaps in the data, and where?", "missing values per column",
    ],
)  # fmt: skip
def test_what_is_in_the_table(question: str) -> None:
    """A row for each column, with its type and what is missing."""
    value, note, _ = ask(question, SALES)
    assert list(value["column"]) == list(SALES.columns)
    assert dict(zip(value["column"], value["missing"], strict=True))["temp_max"] == 1
    assert note == f"{len(SALES):,} rows, 8 columns"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many rows are there?", len(SALES)), ("How many records do we have", len(SALES)),
        ("How many columns does the table have?", 8), ("number of rows", len(SALES)),
        ("What is the total shops?", SALES["shops"].sum()),
        ("median of revenue", SALES["revenue_eur"].median()),
        ("What is the highest temp_max?", SALES["temp_max"].max()),
    ],
)  # fmt: skip
def test_one_number_is_a_number(question: str, answer: float) -> None:
    """No sentence that would have to be read again."""
    value, _, _ = ask(question, SALES)
    assert value == pytest.approx(answer)
    assert not isinstance(value, str)


def test_the_first_and_last_rows_as_they_stand() -> None:
    assert list(ask("Show me the first 3 rows", SALES)[0].index) == [0, 1, 2]
    assert len(ask("last ten rows", SALES)[0]) == 10


# --- a number by groups --------------------------------------------------------------------------

BOTH = ["region", "productLine"]
MEAN = SALES.groupby("region")["revenue_eur"].mean()


@pytest.mark.parametrize(
    ("question", "groups", "measure", "stat"),
    [
        ("average revenue by region", "region", "revenue_eur", "mean"),
        ("What is the total revenue for each product line?", "productLine", "revenue_eur", "sum"),
        ("Compare the mean revenues across regions", "region", "revenue_eur", "mean"),
        ("For each region, what is the median of shops?", "region", "shops", "median"),
        ("What was the lowest temp max of each region", "region", "temp_max", "min"),
        ("maximum shops per member", "member", "shops", "max"),
        ("average revenue by region and product line", BOTH, "revenue_eur", "mean"),
        ("total shops for each region in each productLine", BOTH, "shops", "sum"),
        ('sum of "shops" grouped by "region"', "region", "shops", "sum"),
        ("revenue by region on average", "region", "revenue_eur", "mean"),
        ("Which region has the highest average revenue?", "region", "revenue_eur", "mean"),
        ("regions with the lowest total shops", "region", "shops", "sum"),
    ],
)  # fmt: skip
def test_a_number_by_a_group_or_several(
    question: str, groups: Any, measure: str, stat: str
) -> None:
    value, _, _ = ask(question, SALES)
    keys = [groups] if isinstance(groups, str) else groups
    expected = SALES.groupby(groups)[measure].agg(stat)
    assert list(value.columns[: len(keys)]) == keys
    got = value.set_index(keys if len(keys) > 1 else groups).iloc[:, 0]
    pd.testing.assert_series_equal(
        got.sort_index(), expected.sort_index(), check_names=False, check_dtype=False
    )


def test_the_highest_of_the_groups_is_named_and_stands_first() -> None:
    value, note, axes = ask("Which region has the highest average revenue?", SALES)
    assert value["region"][0] == MEAN.idxmax()
    assert note == f"highest average revenue_eur: {MEAN.idxmax()}"
    widths = [bar.get_width() for bar in axes[0].patches]
    assert widths == sorted(widths), "the longest bar is on top"


def test_where_no_statistic_is_named_both_are_given() -> None:
    """The total and the average are two readings with different figures: the answer says both."""
    assert list(ask("revenue by region", SALES)[0].columns) == [
        "region", "average revenue_eur", "total revenue_eur",
    ]  # fmt: skip
    value, note, _ = ask("Which region has the highest temp_max?", SALES)
    assert list(value.columns[1:]) == ["average temp_max", "total temp_max", "highest temp_max"]
    assert "highest highest temp_max: " in note
    assert "1 of 114 rows have no temp_max and are left out." in note


# --- a number over time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "unit", "stat"),
    [
        ("total revenue per month", "M", "sum"), ("total revenue by month", "M", "sum"),
        ("How did the average revenue develop over time?", "M", "mean"),
        ("Show the total revenue in each week", "W", "sum"),
        ("median revenue by quarter", "Q", "median"), ("monthly average revenue", "M", "mean"),
        ("trend of total revenue", "M", "sum"), ("daily total revenue", "D", "sum"),
        ("Plot the maximum revenue over the months", "M", "max"),
        ("total revenue per month of order_date", "M", "sum"),
        ("Which month had the lowest total revenue?", "M", "sum"),
        ("Which month sold most?", "M", "sum"), ("Total sales per month, as a table", "M", "sum"),
    ],
)  # fmt: skip
def test_a_number_over_time_stands_in_the_order_of_time(
    question: str, unit: str, stat: str
) -> None:
    """In the table and in the figure, also where the question asks for the highest."""
    value, _, axes = ask(question, SALES)
    when = pd.to_datetime(SALES["order_date"]).dt.to_period(unit).astype(str)
    expected = SALES.groupby(when)["revenue_eur"].agg(stat)
    assert list(value.iloc[:, 0]) == sorted(expected.index)
    assert list(value.iloc[:, 1]) == pytest.approx(list(expected.sort_index()))
    (line,) = axes[0].lines
    assert list(line.get_ydata()) == pytest.approx(list(value.iloc[:, 1]))


def test_years_written_as_numbers_are_time_and_names_of_months_stand_in_their_order() -> None:
    assert list(ask("average age over the years", PEOPLE)[0]["year"]) == [2001, 2002]
    months = pd.DataFrame({"month": ["Mar", "Jan", "Feb", "Dec"], "rain": [4.0, 1, 2, 3]})
    assert list(ask("total rain by month", months)[0]["month"]) == ["Jan", "Feb", "Mar", "Dec"]


def test_by_month_of_several_years_has_two_readings_and_both_are_offered() -> None:
    first, second, *_ = offered(refusal("average rain by month", LONG))
    assert len(ask(first, LONG)[0]) == 36
    assert len(ask(second, LONG)[0]) == 12
    assert len(ask("average rain per month", LONG)[0]) == 36


def test_dates_that_can_be_read_in_two_ways_are_no_dates() -> None:
    either = pd.DataFrame({"when": ["01/02/2025", "03/04/2025"], "n": [1.5, 2.5]})
    assert "no column holds dates" in refusal("total n per month", either)
    sure = pd.DataFrame({"when": ["01/02/2025", "13/04/2025"], "n": [1.5, 2.5]})
    assert list(ask("total n per month", sure)[0]["month"]) == ["2025-02", "2025-04"]


# --- counts, and the first and last few ----------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "How many rows per region?", "number of rows by region", "count by region",
        "How many records do we have for each region?",
        "rows per region", "counts of rows by region",
        "how often does each region occur", "Which region has the most rows?",
        "How many entries are there in each of the region groups?", "most common region",
        "Which regions are there?", "Which different values does region have?",
        "How many rows belong to each region?",
    ],
)  # fmt: skip
def test_counts_by_a_group(question: str) -> None:
    value, _, _ = ask(question, SALES)
    expected = SALES["region"].value_counts()
    assert dict(zip(value["region"], value["rows"], strict=True)) == dict(expected)
    assert list(value["rows"]) == sorted(expected, reverse=True)


def test_rows_without_a_group_are_counted_too() -> None:
    table = pd.DataFrame({"group": ["a", None, "a"], "n": [1, 2, 3]})
    assert ask("number of rows by group", table)[0]["rows"].sum() == 3


@pytest.mark.parametrize(
    ("question", "rows", "rising"),
    [
        ("top 5 rows by revenue", 5, False), ("the 5 highest revenues", 5, False),
        ("Which rows have the highest revenue?", 5, False), ("bottom 3 by revenue", 3, True),
        ("three lowest revenue figures", 3, True),
        ("the 4 largest revenues with their regions", 4, False),
        ("ten rows with the lowest revenue", 10, True), ("top rows by revenue_eur", 5, False),
        ("Which 2 rows have the highest revenue", 2, False), ("largest 6 revenue values", 6, False),
        ("the five highest revenues and which region they belong to", 5, False),
        ("top 3 order_date by revenue", 3, False),
    ],
)  # fmt: skip
def test_the_first_and_last_few_by_a_number(question: str, rows: int, rising: bool) -> None:
    value, _, _ = ask(question, SALES)
    expected = SALES["revenue_eur"].sort_values(ascending=rising).head(rows)
    assert list(value["revenue_eur"]) == list(expected)
    assert list(value.columns) == list(SALES.columns), "whole rows"


def test_days_of_several_rows_are_groups_and_not_rows() -> None:
    """Whether their times differ or not."""
    hourly = pd.DataFrame({"at": pd.date_range("2025-01-01", periods=48, freq="h"), "w": range(48)})
    top = ask("top 1 days by total w", hourly.assign(w=hourly["w"] + 0.5))[0]
    assert list(top["at"]) == ["2025-01-02"]


def test_both_ends_and_the_first_few_groups() -> None:
    both = ask("top and bottom 2 rows by shops", SALES)[0]["shops"]
    ordered = SALES["shops"].sort_values(ascending=False)
    assert list(both) == [*ordered.head(2), *ordered.tail(2)]
    top = ask("top 2 regions by total shops", SALES)[0]
    totals = SALES.groupby("region")["shops"].sum().sort_values(ascending=False)
    assert list(top["region"]) == list(totals.index[:2])


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "average revenue in the North", "total revenue in March", "average revenue in 2025",
        "revenue of rows where shops > 5", "share of revenue by region", "average profit by region",
        "Which region sold more than 100?", "average revenue by region, not counting tea",
        "Which month sold most, and why?", "correlation of shops and revenue", "revenue",
        "What will revenue be next month?", "How many regions have a revenue above 50?",
        "first month in which the average revenue was above 50", "How many months are there?",
        "How many regions are there in each product line?",
        "Is revenue higher in May than in June?",
        "average and total", "region", "", "2", "How many rows have no region?",
        "percent change of revenue over time", "top 5", "revenue per shop by region",
        "average revenue per shops", "total revenue by region without tea",
        "average of the highest revenue by region", "shops region revenue",
        "average member by region",
        "change in revenue by region", "How many categories per region?", "longest revenue",
        "top revenue by shops", "total region", "average revenue by temp_max",
        "average shops by shops",
    ],
)  # fmt: skip
def test_every_other_question_is_refused_with_five_that_are_answered(question: str) -> None:
    if not question:
        with pytest.raises(ModelError, match="was given no question"):
            ask(question, SALES)
        return
    message = refusal(question, SALES)
    assert message.split("\n")[1:-1] == [f"  “{text}”" for text in offered(message)]
    assert "--model NAME" in message
    assert len(offered(message)) == 5


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("average temp by region", {"Average temp_max by region", "Average temp_min by region"}),
        ("top 2 regions by shops", {"Top 2 rows by shops", "Top 2 region by average shops",
                                    "Top 2 region by total shops"}),
    ],
)  # fmt: skip
def test_of_two_readings_both_are_named_in_the_columns_names(
    question: str, named: set[str]
) -> None:
    message = refusal(question, SALES)
    assert "several ways" in message
    assert named <= set(offered(message))


def test_two_columns_of_dates_are_two_readings() -> None:
    table = LONG.assign(sent=LONG["noted"] + pd.Timedelta(days=9))
    message = refusal("total rain per year", table)
    assert {"Total rain per year of noted", "Total rain per year of sent"} <= set(offered(message))


@pytest.mark.parametrize(
    "question",
    [
        "How many cases were there?", "average age of deaths by race", "oldest of the deaths",
        "How many stations are there?", "count by race", "How many years are there?",
        "total gdp by race", "How many deaths were there?", "total counts by race",
        "largest count", "race total", "average age of race",
    ],
)  # fmt: skip
def test_no_noun_wins_over_a_column_and_no_word_is_a_value(question: str) -> None:
    """What could be rows, a column's sum or the rows that have some value is refused."""
    assert len(offered(refusal(question, PEOPLE))) == 5


def test_a_column_that_is_called_like_a_word_of_the_vocabulary_is_meant_where_nothing_else_is() -> (
    None
):
    assert list(ask("smallest total in each race", PEOPLE)[0]["lowest total"]) == [2, 1]
    assert list(ask('average "total" by race', PEOPLE)[0].columns) == ["race", "average total"]


NAMES = st.one_of(
    st.sampled_from([
        "rows", "count", "total", "average", "top", "month", "year", "day", "by", "the", "table",
        "5", "total revenue", "revenue", "Revenue", "revenue_eur", "first", "number of rows",
        "a", "%", "Preis (€)", "x y", "größe", "data", "columns", "average revenue", "sold",
        "units", "missing",
    ]),
    st.text(min_size=1, max_size=12),
)  # fmt: skip
COLUMNS = st.sampled_from([
    [1, 2, 2, 3, 3], [0.5, None, 2.5, 0.5, 9.0], ["a", "b", "a", None, "b"],
    [True, False, True, True, True],
    ["2025-01-01", "2025-02-03", "2024-05-06", "2023-01-01", "2025-01-01"], [None] * 5,
    [2001, 2002, 2003, 2004, 2001], ["01/02/2025"] * 5, ["x", "y", "z", "u", "v"], [7] * 5,
    [1e300, -1e300, 0.0, float("inf"), 2.0], [[1], [2], [1], [], [3]],
    list(pd.date_range("2021-01-01", periods=5, freq="YS")),
])  # fmt: skip


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=5))
@pytest.mark.filterwarnings("ignore")
def test_every_offer_for_any_table_is_answered_with_a_value(columns: dict[str, Any]) -> None:
    """Whatever the columns are called and hold; nothing is tried out before it is offered."""
    table = pd.DataFrame(columns)
    offers = offered(refusal("Why?", table))
    assert len(offers) == 5
    for offer in offers:
        value, _, _ = ask(offer, table)
        assert isinstance(value, (pd.DataFrame, int, float, np.number)), offer


# --- the model -----------------------------------------------------------------------------------

LOOK = (
    "344 rows, 2 columns\n['species', 'string', 0, 3, 'A', 'G']\n['mass', 'Int64', 2, 9, '2', '9']"
)


def test_the_first_line_says_what_it_is() -> None:
    events: list[Any] = []
    said = reply(task("How many rows?", "data/penguins.csv"), events=events)
    assert said.startswith("I am the offline analyst: rules, not a language model.")
    assert 'data = pd.read_csv("data/penguins.csv")' in said
    assert len(events) > 1
    assert all(isinstance(event, ReplyText) for event in events)


def test_a_further_question_of_a_session_is_not_told_again_what_it_is() -> None:
    first = task("How many rows?", "data/p.csv")
    said = Message(role="assistant", content=reply(first))
    later = reply(first, said, observed(1, LOOK), task("mean mass by species", "data/p.csv"))
    assert later.startswith("I load data/p.csv and look at its columns.")


def test_it_is_a_function_of_the_messages_of_the_run() -> None:
    """Nothing is remembered; a second run reads the table again, as it is then."""
    messages = (task("mean mass by species", "data/p.csv"), observed(1, LOOK))
    assert reply(*messages) == reply(*messages)
    assert 'groupby("species")' in reply(*messages)
    again = reply(*messages, observed(2, ""), task("How many rows?", "data/p.csv"))
    assert "pd.read_csv" in again


def test_of_several_files_the_question_names_one() -> None:
    files = ("data/a.csv", "data/b.csv")
    assert '"data/b.csv"' in reply(task("How many rows are in b.csv?", *files))
    assert '"data/b.csv"' in reply(task("How many rows are there in b?", *files))
    with pytest.raises(ModelError, match=r"data/a\.csv and data/b\.csv") as refused:
        reply(task("How many rows are there?", *files), observed(1, LOOK))
    for offer in offered(str(refused.value)):
        said = reply(task(offer, *files), observed(1, LOOK))
        assert "final_answer(" in said


@pytest.mark.parametrize(
    ("lines", "call"),
    [
        ("  a;b\n  1,5;2\n  2,5;3", 'sep=";", decimal=","'),
        ("  a\tb\n  1\t2", r'sep="\t"'),
        ('  (not UTF-8; read with encoding="cp1252"; 2 lines stand above: skiprows=2)\n  x', "=2"),
    ],
)  # fmt: skip
def test_a_file_is_read_by_what_its_first_lines_show(lines: str, call: str) -> None:
    content = task("How many rows?", "data/x.csv").content
    assert call in reply(Message(role="user", content=f"{content}\n{lines}"))


@pytest.mark.parametrize(
    ("messages", "part"),
    [
        ((task("What is 2 + 2?"),), "--data FILE"),
        ((task("describe", "data/photo.png"),), "was given none"),
        ((task("describe", "data/t.csv"), observed(1, "UnicodeDecodeError: 'utf-8' …")),
         "data/t.csv cannot be read as a table (UnicodeDecodeError"),
        ((task("describe", "data/t.csv"), observed(1, "0 rows, 2 columns")),
         "data/t.csv has no rows"),
        ((task("rows by species", "data/t.csv"), observed(1, LOOK), observed(2, "KeyError: 'x'")),
         "could not answer (KeyError: 'x')"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_ends_in_one_clear_line(messages: Any, part: str) -> None:
    with pytest.raises(ModelError) as refused:
        reply(*messages)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_with_more_columns_than_are_looked_at_is_only_described() -> None:
    """A name that fits a column that was seen could fit one that was not."""
    wide = pd.DataFrame({f"c{n}": [1.5, 2.5] for n in range(90)})
    assert len(offered(refusal("average c1", wide))) == 5
    assert ask("How many columns are there?", wide)[0] == 90


def test_importing_it_is_light() -> None:
    code = (
        "import sys, kernel_agent.offline;"
        "print([m for m in ('pandas', 'numpy', 'matplotlib', 'IPython') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
