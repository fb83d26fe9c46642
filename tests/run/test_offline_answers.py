"""The offline analyst's cells, run for real: its figures are those of pandas.

Each question goes the whole way (load, look, compute, answer) in a nutshell kernel; the expected
figures are computed here, in another way, from the same files.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest
from offline_kernel import NutshellKernel

from kernel_agent.errors import ModelError

DATA = Path(__file__).parents[2] / "example_notebooks" / "data"
PENGUINS = pd.read_csv(DATA / "penguins.csv")
WEATHER = pd.read_csv(DATA / "seattle-weather.csv", parse_dates=["date"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the two shipped tables."""
    path = tmp_path_factory.mktemp("offline")
    shutil.copytree(DATA, path / "data")
    return path


def figures(*values: float, decimals: int = 2) -> list[str]:
    return [f"{value:,.{decimals}f}" for value in values]


BY_SPECIES = PENGUINS.groupby("species")["body_mass_g"].mean()
BY_BOTH = PENGUINS.groupby(["species", "sex"])["body_mass_g"].mean()
FEMALE = PENGUINS[PENGUINS["sex"] == "female"]
RAIN = WEATHER[WEATHER["weather"] == "rain"]
YEARLY = WEATHER.groupby(WEATHER["date"].dt.year)["precipitation"].sum()
R = PENGUINS["flipper_length_mm"].corr(PENGUINS["body_mass_g"])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many penguins are there?", ["344 penguins"]),
        ("average body mass by species", figures(*BY_SPECIES, decimals=0)),
        ("average body mass by species and sex", [*figures(*BY_BOTH, decimals=0), "11 rows"]),
        ("What is the median flipper length of females?",
         [*figures(FEMALE["flipper_length_mm"].median(), decimals=1), "mm"]),
        ("How many different species are there?", ["3 different", "Adelie, Chinstrap, Gentoo"]),
        ("Which island has the most penguins?", ["Biscoe 168"]),
        ("Which penguin is the heaviest?", ["6,300 g", "Gentoo", "342 of 344"]),
        ("the 3 lightest penguins", ["2,700 g", "2,850 g"]),
        ("What share of penguins are female?", ["48.0%", "165 of 344", "333", "49.5%"]),
        ("share of each species", ["44.2%", "36.0%", "19.8%"]),
        ("What percentage of Gentoo penguins are male?", ["61 of 124"]),
        ("percentage of females by island", ["24 of 47", "61 of 123", "80 of 163"]),
        ("Compare flipper length between sexes", ["204.5", "197.4", "difference is 7.1 mm"]),
        ("Is there a relation between flipper length and body mass?", [f"{R:.3f}", "342"]),
        ("what correlates with body mass", ["flipper_length_mm +0.871", "bill_depth_mm -0.472"]),
        ("How did body mass change over the years?", ["2007", "4,125", "2009", "4,210 g"]),
        ("distribution of bill depth", ["13.1", "21.5", "17.15", "17.30"]),
        ("distribution of body mass by species", ["2,850 to 4,775", "3,950 to 6,300"]),
        ("Are there missing values?", ["19 values", "sex 11", "11 of 344"]),
        ("describe the table", ["344 rows", "8 columns", "19 missing"]),
        ("How many penguins weigh more than 5000 g in 2009?",
         [str(((PENGUINS["body_mass_g"] > 5000) & (PENGUINS["year"] == 2009)).sum())]),
        ("how many penguins heavier than 9000 g", ["There are 0 penguins"]),
        ("average body mass of penguins heavier than 9000 g", ["no figure"]),
        ("share of females among penguins heavier than 9000 g", ["no figure"]),
        ("Which species has the longest flippers?", ["Gentoo", "217.2", "231"]),
        ("range of bill length", ["32.1", "59.6"]),
        ("total body mass per island", ["787,575", "460,400", "189,025"]),
    ],
)  # fmt: skip
def test_figures_about_penguins(folder: Path, question: str, expected: list[str]) -> None:
    """Every figure that the answer must hold is in it."""
    went = NutshellKernel(folder).ask(question, "data/penguins.csv")
    for figure in expected:
        assert figure in went.text
    assert "final_answer(" in went.cells[-1]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many days did it rain?", [f"{len(RAIN)} days"]),
        ("What share of days were sunny in 2015?", ["180 of 365"]),
        ("What was the hottest day?", ["35.6", "2014-08-11"]),
        ("total precipitation per year", figures(*YEARLY)),
        ("Which year had the most precipitation?", ["2014", *figures(YEARLY.max())]),
        ("average temp_max in July", figures(
            WEATHER.loc[WEATHER["date"].dt.month == 7, "temp_max"].mean())),
        ("How did the maximum temperature develop in 2013?", ["2013-01", "6.11", "26.12"]),
        ("average precipitation by month", ["January 3.76", "July 0.39"]),
        ("top 5 days by wind", ["2012-12-17", "9.5"]),
        ("what was the weather on 2012-01-14", ["snow"]),
        ("average wind from 2013 to 2014", figures(
            WEATHER.loc[WEATHER["date"].dt.year.between(2013, 2014), "wind"].mean())),
    ],
)  # fmt: skip
def test_figures_about_the_weather(folder: Path, question: str, expected: list[str]) -> None:
    """Dates are parsed and cut by year, month and day."""
    went = NutshellKernel(folder).ask(question, "data/seattle-weather.csv")
    for figure in expected:
        assert figure in went.text


@pytest.mark.parametrize(
    "question",
    [
        "average body mass by species",
        "top 5 penguins by body mass",
        "share of each island",
        "correlation between bill length and bill depth",
        "how did flipper length change over the years",
        "distribution of body mass",
        "boxplot of body mass by species",
        "describe",
    ],
)
def test_a_chart_is_drawn_where_it_helps(tmp_path: Path, question: str) -> None:
    """One picture with a speaking name is left in the working directory."""
    shutil.copytree(DATA, tmp_path / "data")
    went = NutshellKernel(tmp_path).ask(question, "data/penguins.csv")
    pictures = list(tmp_path.glob("*.png"))
    assert len(pictures) == 1
    assert pictures[0].stat().st_size > 1000
    assert "plt.show()" in went.cells[-2]


def test_the_cells_import_only_what_every_notebook_has(folder: Path) -> None:
    """The generated code uses pandas, numpy, matplotlib and json, nothing of ours."""
    allowed = ("json", "pandas as pd", "matplotlib.pyplot as plt", "numpy as np")
    for question in ("correlation between bill length and bill depth", "describe"):
        for cell in NutshellKernel(folder).ask(question, "data/penguins.csv").cells:
            lines = [line for line in cell.splitlines() if line.startswith(("import ", "from "))]
            assert all(line.removeprefix("import ") in allowed for line in lines)


def test_a_second_run_uses_what_is_loaded(folder: Path) -> None:
    """Two questions in one session read the file once; both are answered."""
    kernel = NutshellKernel(folder)
    kernel.ask("How many days did it rain?", "data/seattle-weather.csv")
    second = kernel.ask("average wind by weather", "data/seattle-weather.csv")
    assert not any("read_csv" in cell or "to_datetime" in cell for cell in second.cells)
    assert "snow 4.40" in second.text


def test_a_later_question_may_name_a_value_that_was_not_listed(tmp_path: Path) -> None:
    """A value of a long column is looked up when a later question names it."""
    names = [f"maker {i}" for i in range(200)]
    pd.DataFrame({"name": names, "speed": range(200)}).to_csv(tmp_path / "cars.csv", index=False)
    kernel = NutshellKernel(tmp_path)
    kernel.ask("How many cars?", "cars.csv")
    assert "is 77" in kernel.ask("What is the speed of maker 77?", "cars.csv").text


def test_of_several_files_the_fitting_one_is_used(folder: Path) -> None:
    """The table whose columns the question names is used, and said."""
    files = ("data/penguins.csv", "data/seattle-weather.csv")
    went = NutshellKernel(folder).ask("average precipitation by weather", *files)
    assert "rain" in went.text
    assert any("data/seattle-weather.csv, so I use that table" in t for t in went.thoughts)


SALES = pd.DataFrame(
    {
        "Order ID": range(1, 41),
        "Order Date": pd.date_range("2021-01-15", periods=40, freq="20D").strftime("%d/%m/%Y"),
        "Région": ["Nord", "Süd"] * 20,
        "Revenue": [f"${1000 + 37.5 * i:,.2f}" for i in range(40)],
        "returned": ["Yes" if i % 5 == 0 else "No" for i in range(40)],
        "code": [f"{i:05d}" for i in range(40)],
    }
)
REVENUE = pd.Series([1000 + 37.5 * i for i in range(40)])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("total revenue by region", figures(REVENUE[::2].sum(), REVENUE[1::2].sum())),
        ("what percentage of orders were returned", ["20.0%", "8 of 40"]),
        ("how many orders in 2022?", ["There are 18 orders"]),
        ("average revenue of orders that were not returned",
         figures(REVENUE[[i for i in range(40) if i % 5]].mean())),
    ],
)  # fmt: skip
def test_numbers_and_dates_written_as_text(
    tmp_path: Path, question: str, expected: list[str]
) -> None:
    """Currency signs, thousands separators and day-first dates are read for what they are."""
    SALES.rename(columns={"Région": "Region"}).to_csv(tmp_path / "orders.csv", index=False)
    went = NutshellKernel(tmp_path).ask(question, "orders.csv")
    for figure in expected:
        assert figure in went.text


PLAIN = pd.DataFrame({"Stadt": ["Köln", "Bonn", "Köln"], "Preis": [1.5, 2.25, 1234.5]})


@pytest.mark.parametrize(
    "name", ["a.csv", "b.tsv", "c.jsonl", "d.json", "lines.json", "e.parquet", "f.xlsx", "bom.csv",
             "semicolon.csv", "latin.csv", "pipe.csv", "indexed.parquet", "my \"own\" table.csv"]
)  # fmt: skip
def test_every_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    """Separators, encodings, decimal commas and formats lead to the same answer."""
    path = tmp_path / name
    writers = {
        "b.tsv": lambda: PLAIN.to_csv(path, index=False, sep="\t"),
        "c.jsonl": lambda: PLAIN.to_json(path, orient="records", lines=True),
        "d.json": lambda: PLAIN.to_json(path, orient="records"),
        "lines.json": lambda: PLAIN.to_json(path, orient="records", lines=True),
        "e.parquet": lambda: PLAIN.to_parquet(path),
        "indexed.parquet": lambda: PLAIN.set_index("Stadt").to_parquet(path),
        "f.xlsx": lambda: PLAIN.to_excel(path, index=False),
        "bom.csv": lambda: PLAIN.to_csv(path, index=False, encoding="utf-8-sig"),
        "semicolon.csv": lambda: PLAIN.to_csv(
            path, index=False, sep=";", decimal=",", encoding="latin-1"
        ),
        "latin.csv": lambda: PLAIN.to_csv(path, index=False, encoding="latin-1"),
        "pipe.csv": lambda: PLAIN.to_csv(path, index=False, sep="|"),
    }
    writers.get(name, lambda: PLAIN.to_csv(path, index=False))()
    if "parquet" in name:
        pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    went = NutshellKernel(tmp_path).ask("total Preis by Stadt", name)
    assert "Köln 1,236.00" in went.text
    assert "Bonn 2.25" in went.text


DIALECTS = [
    ("point.csv", "city;price;units\nRome;1234.56;63\nOslo;1000.82;1016\n"),
    ("german.csv", "city;price;units\nRome;1.234,56;63\nOslo;1.000,82;1.016\n"),
    ("euro.csv", "city;price;units\nRome;1.234,56 €;63\nOslo;1.000,82 €;1.016\n"),
    ("german.tsv", "city\tprice\tunits\nRome\t1.234,56\t63\nOslo\t1.000,82\t1.016\n"),
    ("quoted.csv", 'city,price,units\nRome,"1.234,56",63\nOslo,"1.000,82",1.016\n'),
    ("dollar.csv", "city;price;units\nRome;$1,234.56;63\nOslo;$1,000.82;1,016\n"),
    ("gap.csv", 'city,price,units\nRome,"$1,234.56",63\nOslo,"$1,000.82",1016\nBonn,,\n'),
    ("mark.json", '\ufeff{"city":["Rome","Oslo"],"price":[1234.56,1000.82],"units":[63,1016]}'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), DIALECTS)
def test_a_point_is_read_as_the_table_means_it(tmp_path: Path, name: str, content: str) -> None:
    """Before decimals, or before thousands where a neighbouring column has decimal commas."""
    (tmp_path / name).write_text(content)
    kernel = NutshellKernel(tmp_path)
    assert "1,079" in kernel.ask("total units", name).text
    assert "2,235.38" in kernel.ask("total price", name).text


def test_a_point_that_may_mean_either_is_not_read_as_a_number(tmp_path: Path) -> None:
    """Nothing else in this table says whether 1.016 is about one or about a thousand."""
    (tmp_path / "shop.csv").write_text("city;units\nRome;1.016\nOslo;9.870\n")
    with pytest.raises(ModelError, match="units does not hold numbers"):
        NutshellKernel(tmp_path).ask("total units", "shop.csv")


def test_times_whose_offset_changes_in_summer_are_read_as_written(tmp_path: Path) -> None:
    """Midnight of the first of the month is in that month, whatever UTC says."""
    days = ["2023-02-01T00:00:00+01:00", "2023-07-01T00:00:00+02:00", "2023-07-31T23:00:00+02:00"]
    pd.DataFrame({"day": days, "sales": [5, 7, 9]}).to_csv(tmp_path / "shop.csv", index=False)
    text = NutshellKernel(tmp_path).ask("total sales by month", "shop.csv").text
    assert "2023-02 5" in text
    assert "2023-07 16" in text


@pytest.mark.parametrize(
    ("question", "told"),
    [("total sales by month", True), ("Which day has the highest sales?", True), ("describe", True),
     ("total sales", False), ("total sales per year", False)],
)  # fmt: skip
def test_days_that_may_be_months_are_told(tmp_path: Path, question: str, told: bool) -> None:
    """Where every date fits both orders and the answer hangs on it, it says which was taken."""
    doubt = "The dates of day were read as month/day/year; day/month/year would fit all of them too"
    days = ["01/02/2023 10:00", "01/03/2023 11:00", "01/04/2023 12:00"]
    pd.DataFrame({"day": days, "sales": [5, 7, 9]}).to_csv(tmp_path / "shop.csv", index=False)
    kernel = NutshellKernel(tmp_path)
    kernel.ask("How many rows?", "shop.csv")
    assert (doubt in kernel.ask(question, "shop.csv").text) is told
    pd.DataFrame({"day": [*days, "31/05/2023 10:00"], "sales": 5}).to_csv(
        tmp_path / "clear.csv", index=False
    )
    assert "would fit" not in NutshellKernel(tmp_path).ask(question, "clear.csv").text


@pytest.mark.parametrize("groups", ["gear and carb", "carb and gear"])
def test_two_columns_of_few_numbers_are_correlated(tmp_path: Path, groups: str) -> None:
    """Whole numbers that would also make groups are what the question says they are."""
    cars = pd.DataFrame({"gear": [3, 4, 5, 4], "carb": [1, 2, 4, 4], "cyl": [4, 6, 8, 4]})
    cars.to_csv(tmp_path / "cars.csv", index=False)
    went = NutshellKernel(tmp_path).ask(f"correlation between {groups}", "cars.csv")
    assert f"r = {cars['gear'].corr(cars['carb']):.3f}" in went.text


def test_a_number_is_not_the_column_that_has_it_in_its_name(tmp_path: Path) -> None:
    """A table that was written with its index has a column “Unnamed: 0”."""
    pd.DataFrame({"price": [0, 1, 2]}).to_csv(tmp_path / "goods.csv")
    text = NutshellKernel(tmp_path).ask("how many rows have a price above 0", "goods.csv").text
    assert text.startswith("There are 2 rows")


def test_a_value_may_be_a_single_letter(tmp_path: Path) -> None:
    """“A” is the value where a column has it, and not an article."""
    (tmp_path / "grades.csv").write_text("name,grade\nx,A\ny,B\nz,A\n")
    for letter, count in (("A", "are 2"), ("B", "is 1")):
        went = NutshellKernel(tmp_path).ask(f"how many {letter} are there", "grades.csv")
        assert f"There {count}" in went.text


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("ragged.csv", "a,b\n1,2\n1,2,3,4\n", "as many fields"),
        ("longer.csv", "a,b\n1,2,3\n4,5,6\n", "more fields than its header"),
        ("empty.csv", "", "no columns"),
        ("header.csv", "a,b\n", "no rows"),
        ("numbers.csv", "1,2\n3,4\n", "not column names"),
        ("first.csv", "Rome,1.5,a\nOslo,2,b\nRome,3,c\n", "not column names"),
        ("dated.csv", "2023-01-05,7\n2023-01-06,8\n", "not column names"),
        ("titled.csv", "Sales of May,,\ncity,price,day\nRome,1,2\n", "names 1 of 3 columns"),
        ("lists.json", "[[1, 2], [3, 4]]", "numbers for names"),
        ("rows.json", '{"0": {"a": 1, "b": 2}, "1": {"a": 3, "b": 4}}', "numbers for names"),
        ("broken.parquet", "not parquet at all", "cannot be read as a table"),
        ("broken.json", '{"a": [1, 2', "cannot be read as a table"),
    ],
)
def test_a_file_that_cannot_be_read_ends_in_one_line(
    tmp_path: Path, name: str, content: str, part: str
) -> None:
    """The refusal names the file and what is wrong with it; nothing is made up."""
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=part) as refused:
        NutshellKernel(tmp_path).ask("average a", name)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nested_and_mixed_cells_do_no_harm(tmp_path: Path) -> None:
    """Lists in cells and placeholders among numbers are survived and told."""
    rows = [{"name": "a", "hp": "120", "tags": [1]}, {"name": "b", "hp": "?", "tags": [2, 3]},
            {"name": "c", "hp": "90", "tags": []}]  # fmt: skip
    (tmp_path / "cars.json").write_text(json.dumps(rows))
    went = NutshellKernel(tmp_path).ask("average hp", "cars.json")
    assert "105.0" in went.text
    assert "2 of 3" in went.text


QUESTIONS = (
    "average and median body mass by species", "top 3 islands by average body mass",
    "share of each species", "what correlates with body mass", "correlations", "describe",
    "how did body mass change over the years by species", "distribution of bill depth by island",
    "What share of Gentoo penguins are male?", "the 5 heaviest penguins", "missing values",
    "average body mass of females not on Biscoe in 2008 and heavier than 3000 g by island",
)  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_cells_are_code_that_one_likes_to_read(folder: Path, question: str) -> None:
    """No line is longer than 99 characters, and the first cell is short."""
    cells = NutshellKernel(folder).ask(question, "data/penguins.csv").cells
    assert all(len(line) <= 99 for cell in cells for line in cell.splitlines())
    assert len(cells[0].splitlines()) <= 15
    assert len(cells[-1].splitlines()) <= 20


def test_over_the_years_is_told_by_year(folder: Path) -> None:
    """Daily data over several years, asked for over the years, come out one figure a year."""
    went = NutshellKernel(folder).ask(
        "How did the average wind change over the years?", "data/seattle-weather.csv"
    )
    wind = WEATHER.groupby(WEATHER["date"].dt.year)["wind"].mean()
    for year, figure in zip(wind.index, figures(*wind), strict=True):
        assert f"{year} {figure}" in went.text


def test_a_very_wide_table_is_answered(tmp_path: Path) -> None:
    """Columns that only the second look shows are found, in a later question too."""
    wide = pd.DataFrame({f"sensor_{i:03d}_reading": [i, i + 1.5, i + 2.5] for i in range(300)})
    wide.to_csv(tmp_path / "wide.csv", index=False)
    kernel = NutshellKernel(tmp_path)
    assert "158.3" in kernel.ask("average of sensor 157 reading", "wide.csv").text
    assert "241.3" in kernel.ask("average of sensor 240 reading", "wide.csv").text


def test_a_refusal_counts_all_columns_of_a_wide_table(tmp_path: Path) -> None:
    """Also those that no look has shown."""
    pd.DataFrame([range(300)]).add_prefix("sensor_").to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(ModelError, match=r"\(300 in all\)"):
        NutshellKernel(tmp_path).ask("Which krill is bluest?", "wide.csv")


def test_a_workbook_with_several_sheets_is_no_silent_choice(tmp_path: Path) -> None:
    """The answer, and a refusal, say which sheet was read; of a single sheet nothing is said."""
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        PLAIN.to_excel(book, sheet_name="Sales {2024}", index=False)
        PLAIN.head(1).to_excel(book, sheet_name="Other", index=False)
    kernel = NutshellKernel(tmp_path)
    said = "This is the sheet Sales {2024}, the first of 2;"
    for question in ("How many rows?", "describe", "total Preis by Stadt", "Which Preis in Bonn?"):
        assert said in kernel.ask(question, "book.xlsx").text
    with pytest.raises(ModelError, match=re.escape(said)):
        kernel.ask("How many rows are in the sheet Other?", "book.xlsx")
    PLAIN.to_excel(tmp_path / "single.xlsx", index=False)
    assert "sheet" not in kernel.ask("How many rows?", "single.xlsx").text


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many rows?", "There is 1 row."),
        ("How many rows with Stadt Bonn?", "There is 1 row (stadt Bonn), of 1 in all."),
        ("describe", "The table has 1 row and 2 columns, with 0 missing values."),
    ],
)
def test_one_row_is_told_in_the_singular(tmp_path: Path, question: str, expected: str) -> None:
    """Not "There are 1 rows"."""
    PLAIN[1:2].to_csv(tmp_path / "one.csv", index=False)
    assert NutshellKernel(tmp_path).ask(question, "one.csv").text.startswith(expected)


def test_a_column_may_have_the_name_of_its_file(tmp_path: Path) -> None:
    """The table is still there for the next figure, and for the next question."""
    sales = pd.DataFrame({"month": ["May", "June"], "sales": [3, 5], "cost": [1, 2]})
    sales.to_csv(tmp_path / "sales.csv", index=False)
    sales.head(1).to_csv(tmp_path / "cost.csv", index=False)
    kernel = NutshellKernel(tmp_path)
    assert "1 row" in kernel.ask("How many rows?", "cost.csv").text
    assert "sales 3 to 5" in kernel.ask("describe", "sales.csv").text
    assert "June" in kernel.ask("Which month has the highest sales?", "sales.csv").text
    assert kernel.ask("How many rows?", "sales.csv").text == "There are 2 rows."
    assert "cost 1 to 1" in kernel.ask("describe", "cost.csv").text


def test_an_overview_of_names_only_is_a_whole_sentence(tmp_path: Path) -> None:
    """Where no column has figures or groups to tell of, nothing follows the counts."""
    names = pd.DataFrame({"name": [f"name number {n} of many" for n in range(40)]})
    names.to_csv(tmp_path / "names.csv", index=False)
    text = NutshellKernel(tmp_path).ask("describe", "names.csv").text
    assert text == "The table has 40 rows and 1 column, with 0 missing values."


def test_columns_named_by_numbers_are_given_names(tmp_path: Path) -> None:
    """A sheet whose header holds years is read as any other."""
    pd.DataFrame({"country": ["A", "B"], 2019: [1.5, 2.5], 2020: [3, 5]}).to_excel(
        tmp_path / "sheet.xlsx", index=False
    )
    assert "4.00" in NutshellKernel(tmp_path).ask('average "2020"', "sheet.xlsx").text


def test_numbers_and_text_in_one_column_of_a_csv(tmp_path: Path) -> None:
    """Such a column stops the first look; the second takes it as text."""
    rows = [f"{i},{i % 7}" for i in range(300_000)]
    rows[-1] = "none of them,3"
    (tmp_path / "long.csv").write_text("code,size\n" + "\n".join(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        went = NutshellKernel(tmp_path).ask("highest size", "long.csv")
    assert "is 6" in went.text


ODD = ['the "size"\nof it', "it's: string, 0 missing", "größe, (mm)", "{x}", "back\\slash"]


@pytest.mark.parametrize("name", ODD)
def test_columns_of_any_name_are_used(tmp_path: Path, name: str) -> None:
    """Quotes, line ends, braces and other scripts in a name go through to the answer."""
    pd.DataFrame({name: [1.5, 2.5], "kind": ["{a}", "b\n'"]}).to_parquet(tmp_path / "odd.parquet")
    went = NutshellKernel(tmp_path).ask("distribution of kind", "odd.parquet")
    assert "2 values of kind" in went.text
    assert "2.00" in NutshellKernel(tmp_path).ask("describe", "odd.parquet").text


@pytest.mark.parametrize(
    ("question", "table"),
    [
        ("How did temp_max change over the years?", "seattle-weather.csv"),
        ("total precipitation by year", "seattle-weather.csv"),
        ("How many days are there in each year?", "seattle-weather.csv"),
        ("how did flipper length change over the years", "penguins.csv"),
    ],
)
def test_a_chart_over_years_has_whole_years_on_its_axis(
    folder: Path, question: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tick at 2012.5, however few years there are."""
    from matplotlib.figure import Figure

    drawn: list[list[float]] = []
    save = Figure.savefig

    def saved(figure: Figure, *args: object, **kwargs: object) -> None:
        drawn.append([float(tick) for tick in figure.axes[0].get_xticks()])
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", saved)
    NutshellKernel(folder).ask(question, f"data/{table}")
    ((*ticks,),) = drawn
    assert len(ticks) >= 3
    assert [tick for tick in ticks if tick != round(tick)] == []


# --- no wrong figure -----------------------------------------------------------------------------


def asked(folder: Path, question: str, table: pd.DataFrame) -> str:
    """Ask about a table as it is written; a refusal is its text."""
    (folder / "data").mkdir(exist_ok=True)
    table.to_csv(folder / "data" / "things.csv", index=False)
    try:
        return NutshellKernel(folder).ask(question, "data/things.csv").text
    except ModelError as error:
        return f"refused: {error}"


NUMBERING = ("Day", "month", "Week", "Hour", "quarter", "weekday", "year", "hour_of_day", "rank",
             "zip_code", "postal code", "phone_number", "house no", "product code", "CustomerID",
             "episode")  # fmt: skip


@pytest.mark.parametrize("name", NUMBERING)
def test_what_numbers_things_is_never_added_up_or_averaged(tmp_path: Path, name: str) -> None:
    """And “how many days” is no sum of them, with or without a condition."""
    numbers = [2001 + n % 7 for n in range(40)] if name == "year" else list(range(3, 43))
    table = pd.DataFrame(
        {name: numbers, "Temp": [60 + n for n in range(40)], "kind": ["a", "b"] * 20}
    )
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()
    questions = [f"total {words}", f"Which kind has the highest average {words}?"]
    for question in questions if name != "episode" else []:
        assert asked(tmp_path, question, table).startswith("refused"), question
    for question in (f"How many {words}s are there?", f"How many {words}s had a temp above 90?"):
        said = asked(tmp_path, question, table)
        above = sum(n for n, t in zip(numbers, table.Temp, strict=True) if t > 90)
        assert not {f"{sum(numbers):,}", f"{above:,}"} & set(re.findall(r"[\d,]+", said)), said


def test_what_is_counted_in_a_column_still_adds_up(tmp_path: Path) -> None:
    table = pd.DataFrame({"passengers": range(20), "zip": range(90001, 90021)})
    assert "190" in asked(tmp_path, "How many passengers were there?", table)
    assert "9.5" in asked(tmp_path, "average passengers", table)


@pytest.mark.parametrize(
    ("words", "shares", "told"),
    [
        (["None", "Driver only", "Both"], ["None 2 (33.3%)", "Both 2 (33.3%)"], ""),
        (["EU", "NA", "AS"], ["NA 2 (33.3%)"], ""),
        (["NA", "red", "blue"], ["red 2 (50.0%)"], "“NA” in kind was taken as missing."),
        (
            ["NULL", "nan", "red"],
            ["red 2 (100.0%)"],
            "“NULL” or “nan” in kind was taken as missing.",
        ),
        (["", "red", "blue"], ["red 2 (50.0%)"], ""),
        (["-", "red", "blue"], ["- 2 (33.3%)"], ""),
    ],
)
def test_a_word_that_looks_like_missing_is_a_category_or_is_named(
    tmp_path: Path, words: list[str], shares: list[str], told: str
) -> None:
    table = pd.DataFrame({"kind": words * 2, "amount": ["1", "NA", "3", "4", "5", "7"]})
    said = asked(tmp_path, "share of each kind", table)
    assert all(share in said for share in shares), said
    assert told in said
    assert ("taken as missing" in said) == bool(told)
    assert "4.00" in asked(tmp_path, "average amount", table)  # NA is missing among numbers


def test_what_none_says_is_kept_in_every_figure(tmp_path: Path) -> None:
    table = pd.DataFrame({"AirBags": ["None"] * 34 + ["Driver only"] * 43 + ["Both"] * 16})
    assert "0 values are missing" in asked(tmp_path, "Are there missing values?", table)
    assert "There are 34 " in asked(tmp_path, "How many rows have AirBags None?", table)
    assert "46.2%" in asked(tmp_path, "share of each AirBags", table)


@pytest.mark.parametrize(
    "question", ["How many deaths per race?", "number of deaths by race",
                 "Which race has the most deaths?", "How many homicides are there?"],
)  # fmt: skip
def test_a_value_that_is_what_is_counted_is_ambiguous(tmp_path: Path, question: str) -> None:
    """The rows may be deaths, too; said otherwise it is answered."""
    table = pd.DataFrame(
        {"type": ["Death", "Homicide", "Suicide"] * 21, "race": list("abcdefg") * 9}
    )
    assert "means all rows or those whose type is" in asked(tmp_path, question, table)
    assert "There are 21 " in asked(tmp_path, "How many rows have type Death?", table)
    sexes = pd.DataFrame({"sex": ["female", "male", "female"], "n": [1, 2, 3]})
    assert "2" in asked(tmp_path, "How many females are there?", sexes)
