"""The offline analyst understands a question to its last word, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_agent.offline.question import Question
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.schema import Column, Table
from kernel_agent.offline.suggestions import suggest
from kernel_agent.offline.understanding import understand


def text(name: str, *values: str, missing: int = 0) -> Column:
    return Column(name=name, kind="text", missing=missing, distinct=len(values), values=values,
                  listed=True)  # fmt: skip


def number(name: str, low: str = "1", high: str = "900", kind: str = "number") -> Column:
    return Column(name=name, kind=kind, missing=0, distinct=200, low=low, high=high)


PENGUINS = Table(
    variable="penguins",
    rows=344,
    path="data/penguins.csv",
    columns=(
        text("species", "Adelie", "Chinstrap", "Gentoo"),
        text("island", "Biscoe", "Dream", "Torgersen"),
        number("bill_length_mm"),
        number("bill_depth_mm"),
        number("flipper_length_mm"),
        number("body_mass_g", "2700", "6300", "whole"),
        text("sex", "female", "male", missing=11),
        Column(name="year", kind="whole", missing=0, distinct=3, low="2007", high="2009",
               values=(2007, 2008, 2009), listed=True),
    ),
)  # fmt: skip

ORDERS = Table(
    variable="orders",
    rows=300,
    path="data/orders.csv",
    columns=(
        Column(name="Order ID", kind="whole", missing=0, distinct=300, low="1", high="300"),
        Column(name="customer_id", kind="whole", missing=0, distinct=60, low="1", high="60"),
        Column(name="Order Date", kind="date", missing=0, distinct=200,
               low="2021-01-04 00:00:00", high="2023-09-30 00:00:00"),
        text("Region", "East", "North", "West"),
        text("Returned", "No", "Yes"),
        number("Units Sold", "1", "20", "whole"),
        number("Total Revenue ($)"),
    ),
)  # fmt: skip


def shape(question: Question) -> tuple[str, str, str, str, str]:
    """Write a question down compactly: kind, statistics, columns, groups, conditions."""
    return (
        question.kind,
        " ".join(question.stats),
        " ".join(c.name for c in question.measures),
        " ".join(f"{g.column.name}{':' if g.part else ''}{g.part}" for g in question.groups),
        "; ".join(f"{f.column.name} {f.test} {','.join(map(str, f.values))}"
                  for f in (*question.filters, *question.target)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("How many penguins are there?", ("count", "", "", "", "")),
        ("how many different species are there", ("distinct", "", "species", "", "")),
        ("How many species per island?", ("distinct_by", "", "species", "island", "")),
        ("average body mass by species and sex", ("by", "mean", "body_mass_g", "species sex", "")),
        ("What is the mean flipper lenght?", ("aggregate", "mean", "flipper_length_mm", "", "")),
        ("median and max weight", ("aggregate", "median max", "body_mass_g", "", "")),
        ("penguins heavier than 5000 g", ("matching", "", "", "", "body_mass_g > 5000")),
        ("how many penguins weigh more than 4,000 g in 2009",
         ("count", "", "", "", "body_mass_g > 4000; year == 2009")),
        ("How many have bills longer than 50 mm?", ("count", "", "", "", "bill_length_mm > 50")),
        ("total body mass of male Gentoos since 2008",
         ("aggregate", "sum", "body_mass_g", "", "sex == male; species == Gentoo; year >= 2008")),
        ("average body mass excluding Adelie and Gentoo",
         ("aggregate", "mean", "body_mass_g", "", "species not in Adelie,Gentoo")),
        ("average bill depth not on Biscoe",
         ("aggregate", "mean", "bill_depth_mm", "", "island != Biscoe")),
        ("how many penguins where sex is female or male",
         ("counts", "", "", "sex", "sex in female,male")),
        ("penguins with a body mass between 3000 and 4000",
         ("matching", "", "", "", "body_mass_g between 3000,4000")),
        ("How many penguins between 2007 and 2008?",
         ("count", "", "", "", "year between 2007,2008")),
        ("which penguin has the longest flippers", ("rows", "", "flipper_length_mm", "", "")),
        ("What are the 5 heaviest penguins?", ("rows", "", "body_mass_g", "", "")),
        ("Which island has the heaviest penguins on average?",
         ("by", "mean", "body_mass_g", "island", "")),
        ("which island has the most penguins", ("counts", "", "", "island", "")),
        ("most common species", ("counts", "", "", "species", "")),
        ("what share of Gentoo penguins are male",
         ("share", "", "", "", "species == Gentoo; sex == male")),
        ("the share of females among Adelie penguins",
         ("share", "", "", "", "species == Adelie; sex == female")),
        ("share of each species", ("shares", "", "", "species", "")),
        ("compare flipper length between sexes", ("by", "mean", "flipper_length_mm", "sex", "")),
        ("are males heavier than females?",
         ("by", "mean", "body_mass_g", "sex", "sex in male,female")),
        ("is there a relation between bill length and body mass?",
         ("correlation", "", "bill_length_mm body_mass_g", "", "")),
        ("what correlates with body mass", ("correlates", "", "body_mass_g", "", "")),
        ("how did body mass change over the years", ("trend", "mean", "body_mass_g", "year", "")),
        ("distribution of bill depth", ("distribution", "", "bill_depth_mm", "", "")),
        ("Are there missing values in sex?", ("missing", "", "sex", "", "")),
        ("describe the data", ("describe", "", "", "", "")),
        ('average "body_mass_g" where "species" is "Gentoo"',
         ("aggregate", "mean", "body_mass_g", "", "species == Gentoo")),
    ],
)  # fmt: skip
def test_questions_about_penguins(asked: str, meant: tuple[str, ...]) -> None:
    """Each kind of question comes out as what it asks."""
    assert shape(understand(asked, PENGUINS)) == meant


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("How many orders in March 2022?", ("count", "", "", "", "Order Date == 2022-03")),
        ("orders before 2022-02-01", ("matching", "", "", "", "Order Date < 2022-02-01")),
        ("total revenue by region", ("by", "sum", "Total Revenue ($)", "Region", "")),
        ("revenue per year", ("trend", "sum", "Total Revenue ($)", "Order Date:year", "")),
        ("which region has the highest revenue", ("by", "sum", "Total Revenue ($)", "Region", "")),
        ("how many customers are there", ("distinct", "", "customer_id", "", "")),
        ("what percentage of orders were returned", ("share", "", "", "", "Returned == Yes")),
        ("return rate by region", ("share", "", "", "Region", "Returned == Yes")),
        ("average revenue of orders that were not returned",
         ("aggregate", "mean", "Total Revenue ($)", "", "Returned == No")),
        ("how many orders with 5 or more units sold", ("count", "", "", "", "Units Sold >= 5")),
    ],
)  # fmt: skip
def test_questions_about_orders(asked: str, meant: tuple[str, ...]) -> None:
    """Dates, identifiers, money and yes-or-no columns are understood for what they are."""
    assert shape(understand(asked, ORDERS)) == meant


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("average mass of penguins that eat krill", "krill"),
        ("write a poem about penguins", "poem"),
        ("predict the body mass in 2030", "predict"),
        ("why are Gentoo penguins so heavy", "Why"),
        ("what is the mean species", "species does not hold numbers"),
        ("average bill of Adelie penguins", "bill_length_mm, bill_depth_mm"),
        ("average wingspan by species", "wingspan"),
        ("average body mass of emperor penguins", "emperor"),
        ("how many penguins are female or on Biscoe", "or"),
        ("average bill length of Adelie on Torgersen and Gentoo on Biscoe", "pairs"),
        ("how many penguins weigh more than 4 kg", "kg"),
        ("penguins with more than 3 flippers", "number of"),
        ("average body mass in 2015", "2015"),
        ("how many rows have no missing values", "no"),
        ("is Gentoo the heaviest species", "one is chosen"),
        ("which species has the second highest body mass", "second"),
        ("top 2 species by body mass", "average, total or highest"),
        ("average body mass by species and sex and island", "two groupings"),
        ("are there more males than females", "more"),
        ("import os; os.system('ls')", "import"),
        ("delete all files", "delete"),
        ("what is 2 + 2", "+"),
        ("average", "column to calculate"),
        ("body mass", "what is asked"),
        ("hello", "what it asks for"),
        ("What is the sum of year?", "sum of years"),
    ],
)
def test_what_is_not_wholly_understood_is_refused(asked: str, part: str) -> None:
    """A leftover word, an ambiguity or nonsense refuses the question and is named."""
    with pytest.raises(NotUnderstood, match="(?i)" + part.replace("+", r"\+")):
        understand(asked, PENGUINS)


@pytest.mark.parametrize(
    "word", ["krill", "imaginary", "quickest", "yesterday", "except", "second"]
)
@pytest.mark.parametrize(
    "asked",
    ["average body mass by species", "how many penguins are there", "share of each species",
     "distribution of bill depth", "top 5 penguins by body mass"],
)  # fmt: skip
def test_one_word_too_many_refuses_any_question(asked: str, word: str) -> None:
    """No kind of question ignores a word that it does not know."""
    with pytest.raises(NotUnderstood):
        understand(f"{asked} {word}", PENGUINS)


def test_misspelt_words_are_read_and_told() -> None:
    """A slip of one letter is corrected, and the question says so."""
    question = understand("average flipper lenght by speceis", PENGUINS)
    assert question.readings == ("“lenght” as “length”", "“speceis” as “species”")


SALES = Table(
    variable="sales",
    rows=1200,
    path="data/sales.csv",
    columns=(
        Column(name="date", kind="date", missing=0, distinct=84, low="2025-01-01 00:00:00",
               high="2025-12-28 00:00:00"),
        text("region", "East", "North", "South", "West"),
        text("product", "a", "b"),
        number("sales"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "direction", "group"),
    [
        ("Which region sold most?", "highest", "region"),
        ("Which month sold most?", "highest", "date"),
        ("Which region sold the least?", "lowest", "region"),
        ("What is the best-selling product?", "highest", "product"),
    ],
)
def test_what_sold_most_is_the_total_of_sales(asked: str, direction: str, group: str) -> None:
    question = understand(asked, SALES)
    assert (question.kind, question.stats, question.direction) == ("by", ("sum",), direction)
    assert [g.column.name for g in question.groups] == [group]
    assert [m.name for m in question.measures] == ["sales"]
    assert not question.why


def test_why_is_answered_of_a_total_and_refused_of_anything_else() -> None:
    assert understand("Which month sold most, and why?", SALES).why
    for asked in ("Which region has the highest average sales, and why?", "Why?", "How many, why?"):
        with pytest.raises(NotUnderstood):
            understand(asked, SALES)


def test_what_sold_most_is_refused_where_several_columns_may_be_meant() -> None:
    with pytest.raises(NotUnderstood, match="several columns"):
        understand("Which region sold most?", ORDERS)


@pytest.mark.parametrize("table", [PENGUINS, ORDERS, SALES], ids=lambda table: table.variable)
def test_the_questions_that_stand_beside_a_refusal_are_understood(table: Table) -> None:
    questions = suggest(table)
    assert len(questions) == 3
    for question in questions:
        understand(question, table)
        assert any(column.name in question for column in table.columns)


def test_a_table_of_names_alone_gets_a_question_that_it_can_answer() -> None:
    columns = (text("x" * 500, "a"),)
    assert suggest(Table(variable="t", rows=3, path="t.csv", columns=columns)) == [
        "How many rows are there?"
    ]


def sensors(columns: int) -> Table:
    """Return a table of one row, whose columns are all numbers and all groups."""
    return Table(variable="wide", rows=1, path="wide.csv", columns=tuple(
        Column(name=f"sensor_{i}", kind="whole", missing=0, distinct=1, low=str(i), high=str(i),
               values=(i,), listed=True) for i in range(columns)))  # fmt: skip


def mixed(columns: int) -> Table:
    """Return a table with all kinds of columns, many of each."""
    return Table(variable="wide", rows=300, path="wide.csv", columns=tuple(
        (number(f"score {i}"), text(f"label {i}", "a", "b"), ORDERS.columns[2])[i % 3]
        for i in range(columns)))  # fmt: skip


def questions_read(table: Table) -> list[str]:
    """Return the questions that are put to a reader who understands none of them."""
    asked: list[str] = []

    def read(question: str, _table: Table) -> None:
        asked.append(question)
        raise NotUnderstood(question)

    assert suggest(table, read) == []
    return asked


@pytest.mark.parametrize("make", [sensors, mixed])
def test_a_refusal_reads_as_few_questions_of_a_wide_table_as_of_a_narrow_one(
    make: Callable[[int], Table],
) -> None:
    """However many columns there are: it does not take longer for that."""
    narrow, wide, wider = (questions_read(make(columns)) for columns in (9, 300, 3000))
    assert 3 <= len(narrow) == len(wide) == len(wider) <= 19


def test_columns_of_plain_words_are_asked_about_before_those_with_odd_names() -> None:
    columns = (number("total 7"), number("Q1"), number("Q2"), number("Q3"), number("harvest"),
               text("Region", "East", "West"))  # fmt: skip
    table = Table(variable="t", rows=300, path="t.csv", columns=columns)
    assert suggest(table)[0] == "Which Region has the highest average harvest?"
