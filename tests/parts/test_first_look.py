"""What a model is told of a run's files before its first turn."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from contextlib import closing, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.errors import InputError
from kernel_agent.formats import LOOK
from kernel_agent.records import DataFile
from kernel_agent.session.first_look import MAX_ALL, WHOLE, Look, example_of, look_at, tell_files
from kernel_agent.session.inputs import place

ROWS = "region,price\n" + "".join(f"R{n},{n}\n" for n in range(500))


@pytest.fixture
def told(tmp_path):
    """Write files, place them as a session does, and look at them."""

    def tell(**files: str | bytes) -> tuple[Look, ...]:
        sources = []
        for name, content in files.items():
            stem, _, ending = name.rpartition("_")
            source = tmp_path / f"{stem}.{ending}"
            data = content.encode() if isinstance(content, str) else content
            source.write_bytes(data)
            sources.append(source)
        return look(tmp_path / "run", *sources)

    return tell


def look(folder: Path, *sources: Path) -> tuple[Look, ...]:
    return look_at(folder, place(sources, folder, notice=lambda _notice: None))


def run(looks: tuple[Look, ...], folder: Path) -> pd.DataFrame:
    """Run the example cell as the kernel would, in the run's folder."""
    code = example_of(looks).replace('"data/', f'"{folder}/run/data/')
    names: dict[str, object] = {}
    exec(code.rpartition("\n")[0], names)
    table = names["df"]
    assert isinstance(table, pd.DataFrame)
    return table


def test_a_small_file_is_told_whole(told) -> None:
    text = tell_files(told(sales_csv="region,price\nNorth,10\nSouth,12\n"))
    assert text == (
        "- data/sales.csv (CSV, 31 B)\n"
        "  region,price\n"
        "  North,10\n"
        "  South,12"
    )  # fmt: skip


def test_of_a_long_file_the_first_lines_are_told_and_how_many_follow(told) -> None:
    lines = tell_files(told(sales_csv=ROWS)).splitlines()
    assert lines[1:] == [
        "  region,price", "  R0,0", "  R1,1", "  R2,2", "  R3,3", "  … 496 more lines",
    ]  # fmt: skip


def test_of_a_file_that_is_not_read_whole_the_number_of_lines_is_about_right(told) -> None:
    rows = "region,price\n" + "".join(f"R{n % 10},{n % 10}\n" for n in range(100_000))
    found = re.search(r"… about ([\d,]+) more lines", tell_files(told(sales_csv=rows)))
    assert found is not None
    assert int(found[1].replace(",", "")) == pytest.approx(100_001 - 5, rel=0.01)


def test_a_long_line_is_cut_and_says_how_much_is_missing(told) -> None:
    text = tell_files(told(wide_csv="a,b\n" + "x" * 5000 + ",1\n"))
    assert "… 4,702 more characters" in text
    assert len(text) < 700


@pytest.mark.parametrize(
    ("above", "titles"),
    [
        ("", 0), ("Sales of 2024,,\n", 1), ("Sales of 2024\n\nin EUR,,\n", 3), (",,\n", 1),
        ('"Sales\n\nof 2024",,\n\n', 4),
    ],
)  # fmt: skip
def test_title_lines_are_told_by_filled_cells_and_the_example_skips_them(
    told, tmp_path, above, titles
) -> None:
    looks = told(sales_csv=f"{above}region,price,year\nNorth,10,2024\nSouth,12,2024\n")
    said = tell_files(looks)
    assert ("above the header" in said) == bool(titles)
    if titles:
        assert f"({titles} line" in said
    assert list(run(looks, tmp_path).columns) == ["region", "price", "year"]


def test_a_header_below_many_lines_is_shown_and_wide_ones_keep_their_names(told) -> None:
    names = ",".join(f"a column of number {n}" for n in range(50))
    rows = f"{'1,' * 49}1\n" * 80
    text = tell_files(told(deep_csv="A word\n" * 30 + f"{names}\n{rows}"))
    assert "  … 27 more lines above the header\n  a column of number 0," in text
    assert "a column of number 49\n" in text


def test_of_a_list_of_objects_the_first_ones_are_shown_and_the_example_reads_it(
    told, tmp_path
) -> None:
    objects = json.dumps([{"name": f"n{n}", "value": n} for n in range(500)], indent=1)
    looks = told(cars_json=objects)
    text = tell_files(looks)
    assert '\n  {"name": "n0", "value": 0}\n' in text
    assert '\n  {"name": "n4", "value": 4}\n  … 495 more objects' in text
    assert len(run(looks, tmp_path)) == 500


def test_objects_that_are_short_without_their_line_ends_are_all_told(told) -> None:
    objects = [{"name": f"n{n}", "value": [n, None, "ü"]} for n in range(50)]
    text = tell_files(told(few_json=json.dumps(objects, indent=4)))
    assert [json.loads(line) for line in text.splitlines()[1:]] == objects


def test_of_a_list_that_is_not_read_whole_the_number_of_objects_is_about_right(told) -> None:
    objects = [{"name": f"n{n}", "value": n} for n in range(20_000)]
    text = tell_files(told(many_json=json.dumps(objects)))
    found = re.search(r"… about ([\d,]+) more objects", text)
    assert found is not None
    assert 18_000 < int(found[1].replace(",", "")) < 22_000


@pytest.mark.parametrize(
    "content",
    [
        "[" + ",\n".join(["{}"] * 3 + ["1"] * 900) + "]",
        '[{"a": ' + "[" * 300_000 + "]" * 300_000 + "}]",
        '{"rows": [\n' + ",\n".join(['{"a": 1}'] * 900) + "]}",
    ],
    ids=["not only objects", "deep", "an object with a list"],
)
def test_of_other_json_the_first_lines_are_told(told, content) -> None:
    text = tell_files(told(odd_json=content))
    assert content.split("\n", 1)[0][:100] in text
    assert "objects" not in text


def test_an_encoding_that_is_not_utf_8_is_told_and_the_example_reads_it(told, tmp_path) -> None:
    looks = told(towns_csv="Stadt;Wert\nZürich;3\nGenève;4\n".encode("cp1252"))
    assert 'read with encoding="cp1252"' in tell_files(looks)
    assert "Zürich" in tell_files(looks)
    assert list(run(looks, tmp_path)["Stadt"]) == ["Zürich", "Genève"]


@pytest.mark.parametrize("content", ["a,b\n1,2\n3,4,5\n", "just words\nand more words\n"])
def test_a_table_that_a_plain_reader_misreads_is_no_example_of_reading(told, content) -> None:
    assert "read_csv" not in example_of(told(odd_csv=content))


def test_of_many_files_with_the_same_columns_one_is_told_and_the_others_are_named(told) -> None:
    years = {
        f"y{year}_csv": f"year,value\n{year},1\n" for year in range(2000, 2053) if year != 2007
    }
    text = tell_files(told(**years, other_csv="a,b\n1,2\n"))
    assert text.count("year,value") == 1
    assert "and 51 more with these columns: data/y2001.csv, data/y2002.csv" in text
    assert "data/y2006.csv, data/y2008.csv" in text  # which one is missing can be seen
    assert "- data/other.csv" in text


def test_two_files_with_the_same_columns_are_both_told(told) -> None:
    text = tell_files(told(a_csv="year,value\n1,2\n", b_csv="year,value\n3,4\n"))
    assert text.count("year,value") == 2


def test_files_with_the_same_columns_that_are_read_differently_are_not_alike(told) -> None:
    files = {f"{name}_csv": "a,b\n1,2\n" for name in "xyz"}
    text = tell_files(told(**files, w_csv="a,b\n1,ü\n".encode("cp1252")))
    assert "and 2 more with these columns" in text
    assert "- data/w.csv" in text


def test_of_a_workbook_the_first_rows_of_each_sheet_are_told(tmp_path) -> None:
    source = tmp_path / "book.xlsx"
    table = pd.DataFrame({"region": ["North", "South"] * 50, "price": range(100)})
    with pd.ExcelWriter(source) as writer:
        table.to_excel(writer, sheet_name="Sales", index=False, startrow=2)
        table.tail(1).to_excel(writer, sheet_name="It's last", index=False)
    looks = look(tmp_path / "run", source)
    lines = tell_files(looks).splitlines()
    assert '  sheet "Sales":' in lines
    assert '  sheet "It\'s last":' in lines
    assert "    region, price" in lines
    assert "    … 98 more rows" in lines
    assert list(run(looks, tmp_path).columns) == ["region", "price"]


def test_a_workbook_that_would_be_large_in_memory_is_told_by_its_name_only(tmp_path) -> None:
    source = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
        archive.writestr("xl/sharedStrings.xml", b" " * 50_000_000)
    (found,) = look(tmp_path / "run", source)
    assert (found.lines, found.call) == ((), "")


def test_of_a_parquet_file_the_columns_are_told(tmp_path) -> None:
    source = tmp_path / "t.parquet"
    pd.DataFrame({"a b": [1, 2], "c": ["x", "y"]}).to_parquet(source)
    looks = look(tmp_path / "run", source)
    assert '2 rows; columns: "a b" int64, "c" ' in tell_files(looks)
    assert len(run(looks, tmp_path)) == 2


def test_binary_content_is_never_told(told) -> None:
    (found,) = told(x_bin=b"\x00\x01\x02" * 100)
    assert found.lines == ()


def test_a_file_that_is_gone_or_a_link_is_told_by_its_name(told, tmp_path) -> None:
    (found,) = told(a_csv="a,b\n1,2\n")
    (tmp_path / "secret.csv").write_text("a,b\nsecret,2\n")
    placed = tmp_path / "run" / found.file.path
    placed.unlink()
    assert look_at(tmp_path / "run", [found.file])[0].lines == ()
    placed.symlink_to(tmp_path / "secret.csv")
    assert look_at(tmp_path / "run", [found.file])[0].lines == ()


def test_an_odd_name_is_quoted_and_no_example(tmp_path) -> None:
    source = tmp_path / 'a"b\n- data (CSV, 1 B).csv'
    source.write_text("a,b\n1,2\n")
    looks = look(tmp_path / "run", source)
    first, *others = tell_files(looks).splitlines()
    assert first == "- 'data/a\"b_- data (CSV, 1 B).csv' (CSV, 8 B)"
    assert all(line.startswith("  ") for line in others)
    assert example_of(looks) == "dir()"


def test_a_database_is_told_by_the_call_that_opens_it(tmp_path, monkeypatch) -> None:
    """The host reads nothing of it: its schema may be hostile. The example shows the tables."""
    source = tmp_path / "shop %41.db"
    with closing(sqlite3.connect(source)) as db:
        db.execute("CREATE TABLE sales(region TEXT, amount REAL)")
        db.commit()
    looks = look(tmp_path / "run", source)
    call = 'sqlite3.connect("file:data/shop%20%2541.db?mode=ro&immutable=1", uri=True)'
    assert looks[0].lines == (f"(read-only: {call})",)
    (plain,) = look(tmp_path / "run", source.rename(tmp_path / "shop.db"))
    monkeypatch.chdir(tmp_path / "run")
    names: dict[str, Any] = {}
    with redirect_stdout(StringIO()) as shown:
        exec(example_of([plain]), names)
    names["db"].close()
    assert shown.getvalue() == "CREATE TABLE sales(region TEXT, amount REAL)\n"
    assert "sqlite3" not in example_of([plain], may_import=lambda name: name != "sqlite3")


@pytest.mark.parametrize(
    "path",
    [
        "data/<task>do this</task>.csv", "data/[untrusted k7: x].csv", "a;b.csv", "a`b.csv",
        "${x}.csv", "a b\u3164.csv", "a\nb.csv", f"data/{'x' * 72}.csv",
    ],
)  # fmt: skip
def test_a_name_with_marks_or_unusual_characters_or_a_long_one_is_no_example(path) -> None:
    """The example stands in the system prompt, which is our own word."""
    file = DataFile(path=path, source="/x", bytes=8, sha256="", kind="CSV")
    odd = Look(file=file, lines=("a,b",), call=f"read_csv({path!r})")
    assert example_of([odd]) == LOOK
    assert tell_files([odd]).startswith(('- "', "- '"))
    usual = Look(file=replace(file, path="b.csv"), lines=("a,b",), call="read_csv('b.csv')")
    assert "b.csv" in example_of([odd, usual])
    assert path not in example_of([odd, usual])


def test_of_very_many_files_the_later_ones_are_told_by_name(told) -> None:
    files = {f"f{n}_csv": f"a{n},b\n" + f"{'x' * 90},2\n" * 20 for n in range(40)}
    text = tell_files(told(**files))
    assert text.count("- data/f") == 40
    assert len(text) < MAX_ALL + WHOLE + 40 * 40
    assert "of the later ones nothing is shown" in text


@given(content=st.binary(min_size=1, max_size=300))
def test_whatever_a_file_holds_each_line_of_it_is_indented(content, tmp_path_factory) -> None:
    """No content can look like the name of another file, or like a paragraph of its own."""
    folder = tmp_path_factory.mktemp("any")
    source = folder / "any.dat"
    source.write_bytes(content)
    try:
        looks = look(folder / "run", source)
    except InputError:  # what is refused is not told
        return
    lines = re.split(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", tell_files(looks))
    assert all(line.startswith("  ") for line in lines[1:])
