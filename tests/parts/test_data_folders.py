"""Folders as data: what is looked at, what is left out, the index, the search, and the list."""

from __future__ import annotations

import gzip
import os
import socket
import sqlite3
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bm25s import BM25
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.errors import InputError, KernelError
from kernel_agent.inkernel import folders as reading
from kernel_agent.inkernel.folders import INDEX_MIME, Indexed
from kernel_agent.inkernel.indexing import MAX_WHOLE
from kernel_agent.safe import Opened
from kernel_agent.session.folders import scan as scanning
from kernel_agent.session.folders.index import Entry, Index, Layout, read_index
from kernel_agent.session.folders.listing import MAX_LISTING, example_of_folders, tell_folders
from kernel_agent.session.folders.reads import Reads
from kernel_agent.session.folders.scan import Scan, cover, scan
from kernel_agent.session.folders.search import Search

TABLE = "day,region,rain\n2024-01-01,north,3\n2024-01-02,south,0\n"


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def bundle_of(folder: Path, *, left_out: Sequence[str] = (), seconds: float = 60) -> dict[str, Any]:
    asked = {"path": str(folder), "left_out": [*left_out]}
    return Indexed([asked], 240, seconds)._repr_mimebundle_()


def index_of(folder: Path, **options: Any) -> Index:
    return read_index(bundle_of(folder, **options), [str(folder)], max_files=10_000)


def names(index: Index, folder: Path) -> list[str]:
    return [entry.path.removeprefix(f"{folder}/") for entry in index.entries]


# --- looking at a folder -----------------------------------------------------------------------


def test_hidden_files_keys_and_what_programs_obey_are_left_out_and_said(tmp_path):
    put(tmp_path, {
        "sales.csv": TABLE, "2024/june.csv": TABLE, ".env": "", ".git/config": "", "Makefile": "",
        ".git/objects/aa": "", "deploy/id_rsa": "", "server.PEM": "", "x/.DS_Store": "",
    })  # fmt: skip
    found = scan(tmp_path)
    assert (found.files, found.bytes) == (2, 2 * len(TABLE))
    assert {each.path: each.files for each in found.left_out} == {
        ".env": 1, ".git": 2, "Makefile": 1, "deploy/id_rsa": 1, "server.PEM": 1,
    }  # fmt: skip
    assert sorted(found.folders) == ["", "2024"]
    assert ".git (2 files)" in found.line
    kept = [each.path for each in found.left_out]
    assert names(index_of(tmp_path, left_out=kept), tmp_path) == ["sales.csv", "2024/june.csv"]


def test_folders_of_earlier_runs_are_no_data(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "runs/one/trace.jsonl": "{}", "runs/one/data/a.csv": TABLE})
    found = scan(tmp_path)
    assert found.files == 1
    assert [each.path for each in found.left_out] == ["runs/one"]


def test_whatever_changes_in_a_folder_changes_its_state(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "b/c.csv": TABLE})
    states = [scan(tmp_path).state]
    assert scan(tmp_path).state == states[0]
    changes = (
        lambda: (tmp_path / "a.csv").write_text(TABLE.replace("3", "4")),
        lambda: os.utime(tmp_path / "a.csv", (1, 1)),
        lambda: (tmp_path / "a.csv").chmod(0o600),
        lambda: (tmp_path / "a.csv").rename(tmp_path / "d.csv"),
        (tmp_path / "b/c.csv").unlink,
    )
    for change in changes:
        change()
        states.append(scan(tmp_path).state)
    assert len(set(states)) == len(states)


def test_links_are_not_followed_and_pipes_not_opened(tmp_path):
    put(tmp_path / "data", {"a.csv": TABLE})
    put(tmp_path / "other", {"secret.csv": TABLE})
    (tmp_path / "data/out").symlink_to(tmp_path / "other")
    (tmp_path / "data/round").symlink_to(tmp_path / "data")
    os.mkfifo(tmp_path / "data/pipe.csv")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(tmp_path / "data")  # the name of a socket has a length limit
        listener.bind("s.csv")
    found = scan(tmp_path / "data")
    assert (found.files, found.links, found.others) == (1, 2, 2)
    assert names(index_of(tmp_path / "data"), tmp_path / "data") == ["a.csv"]


@pytest.mark.parametrize("path", ["/", "/etc", "/proc/self", "/tmp", "~", "/dev/shm"])
def test_a_home_or_a_directory_of_the_system_is_no_data(path):
    with pytest.raises(InputError, match="home or a directory of the system"):
        scan(Path(path))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no files"):
        scan(tmp_path)


def test_too_many_files_are_refused_before_all_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "MAX_FILES", 10)
    put(tmp_path, {f"{number}.csv": TABLE for number in range(30)})
    with pytest.raises(InputError, match="more than 10 files"):
        scan(tmp_path)


def test_too_much_to_leave_out_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "MAX_LEFT_OUT", 3)
    put(tmp_path, {f"{number}/.env": "" for number in range(5)} | {"a.csv": TABLE})
    with pytest.raises(InputError, match="more than 3 places that must be left out"):
        scan(tmp_path)


def test_a_folder_that_does_not_answer_is_given_up(tmp_path, monkeypatch):
    put(tmp_path, {"a.csv": TABLE})
    answered = threading.Event()
    real = os.scandir

    def hang(path: Any) -> Any:
        answered.wait(60)
        return real(path)

    monkeypatch.setattr(scanning.os, "scandir", hang)
    with pytest.raises(InputError, match="does not answer"):
        scan(tmp_path, silent_s=0.2)
    answered.set()


def test_what_covers_a_folder_holds_all_of_it_but_what_is_left_out(tmp_path):
    put(tmp_path, {"a.csv": "", "b/c.csv": TABLE, "b/.env": "", "b/d/e.csv": "", "f/g.csv": ""})
    covered = {str(path.relative_to(tmp_path)) for path in cover(scan(tmp_path))}
    assert covered == {"a.csv", "b/c.csv", "b/d", "f"}


def test_a_folder_without_anything_to_leave_out_covers_itself(tmp_path):
    put(tmp_path, {"a.csv": TABLE})
    assert cover(scan(tmp_path)) == [tmp_path.resolve()]


# --- the index ---------------------------------------------------------------------------------


def test_the_index_knows_what_each_kind_of_file_holds(tmp_path):
    table = pd.DataFrame({"city": ["Boston", "Zürich"], "rain": [1.5, 2.5]})
    table.to_parquet(tmp_path / "a.parquet")
    table.to_excel(tmp_path / "b.xlsx", sheet_name="Rain", index=False)
    table.to_csv(tmp_path / "c.csv", sep=";", index=False, encoding="cp1252")
    table.to_json(tmp_path / "d.json", orient="records")
    table.to_json(tmp_path / "e.jsonl", orient="records", lines=True)
    put(tmp_path, {
        "f.csv": "Rain by city\n\ncity,rain\nBoston,1\nParis,2\n",
        "g.csv.gz": gzip.compress(table.to_csv(index=False).encode()),
        "h.csv": "", "i.bin": b"\x00\x01\x02",
    })  # fmt: skip
    database = sqlite3.connect(tmp_path / "j.db")
    database.execute("CREATE TABLE orders(id, amount)")
    database.close()
    index = index_of(tmp_path)
    found = {entry.path.rpartition("/")[2]: entry for entry in index.entries}
    layouts = {name: index.layout_of(entry) for name, entry in found.items()}
    for name in ("a.parquet", "b.xlsx", "c.csv", "d.json", "e.jsonl", "f.csv", "g.csv.gz"):
        assert layouts[name].columns == ("city", "rain"), name
    kinds = ["Parquet", "Excel", "CSV", "JSON", "JSON lines", "CSV", "CSV, gzip", "empty", "other"]
    assert [layout.kind for layout in layouts.values()] == [*kinds, "SQLite"]
    assert (layouts["c.csv"].delimiter, layouts["c.csv"].encoding) == (";", "cp1252")
    assert (layouts["f.csv"].skipped, found["f.csv"].rows) == (2, 2)
    assert found["a.parquet"].rows == 2
    assert "Rain" in found["b.xlsx"].words
    assert "orders" in found["j.db"].words


def test_files_of_one_layout_are_one_layout(tmp_path):
    put(tmp_path, {f"{number}.csv": TABLE for number in range(50)})
    put(tmp_path, {"x.csv": '"day",region,rain\n"a,b",c,d\n', "y.csv": "other\n1\n"})
    index = index_of(tmp_path)
    assert len(index.layouts) == 2
    assert index.layouts[0].columns == ("day", "region", "rain")


def test_what_is_left_out_is_not_read(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "b/c.csv": TABLE, "d.csv": TABLE})
    assert names(index_of(tmp_path, left_out=["b", "d.csv"]), tmp_path) == ["a.csv"]


def test_a_file_that_ends_its_reader_costs_that_file_alone(tmp_path, monkeypatch):
    """Workbooks that unpack to gigabytes, and a name that is no text; the files behind stay."""
    monkeypatch.setattr(reading, "FILE_SECONDS", 1.5)
    put(tmp_path, {"z.csv": TABLE, "deep.json": "[" * 100_000, "quote.csv": '"' + "x" * 1_000_000})
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))).write_text(TABLE)
    pd.DataFrame({"a": [1]}).to_excel(tmp_path / "good.xlsx", index=False)
    _pack(tmp_path, "sheet.xlsx", "xl/worksheets/sheet1.xml", ENDLESS_ROW)
    _pack(tmp_path, "style.xlsx", "xl/styles.xml", b" " * (MAX_WHOLE + 1))
    bundle = bundle_of(tmp_path, seconds=60)[INDEX_MIME]
    index = read_index({INDEX_MIME: bundle}, [str(tmp_path)], max_files=100)
    kinds = {e.path.rpartition("/")[2]: index.layout_of(e).kind for e in index.entries}
    assert index.is_whole
    assert kinds["sheet.xlsx"] == "could not be looked at"
    assert kinds["style.xlsx"] == "Excel"
    assert kinds["z.csv"] == kinds["\udcff.csv"] == "CSV"
    assert len(kinds) == 7


ENDLESS_ROW = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    + b'<row r="1"></row>' * 6_000_000
)


def _pack(folder: Path, name: str, part: str, content: bytes) -> None:
    """Write a workbook of which one part is something else."""
    with zipfile.ZipFile(folder / "good.xlsx") as good, zipfile.ZipFile(
        folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as bad:  # fmt: skip
        for entry in good.namelist():
            bad.writestr(entry, content if entry == part else good.read(entry))


def test_an_index_that_takes_too_long_is_not_whole_and_says_so(tmp_path):
    put(tmp_path, {"a.csv": TABLE})
    index = index_of(tmp_path, seconds=0)
    assert not index.is_whole


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=30,
)
files = st.lists(st.lists(anything | st.sampled_from(["data/x/a", "data/x/../b", "/etc/passwd"])))


@settings(max_examples=examples(60))
@given(
    st.fixed_dictionaries(
        {}, optional={"layouts": st.lists(anything), "files": files, "failed": anything}
    )
)
def test_of_what_a_hostile_kernel_says_only_files_of_the_folder_are_taken(found):
    """Whatever its shape; nothing is raised but that it is no index."""
    found["layouts"] = [["CSV", ["a"]], *found.get("layouts", [])]
    index = read_index({INDEX_MIME: found}, ["data/x"], max_files=100)
    for entry in index.entries:
        assert entry.path.startswith("data/x/")
        assert ".." not in entry.path.split("/")
        assert index.layout_of(entry)


def test_what_is_no_index_is_told(tmp_path):
    for bundle in (None, [], {}, {INDEX_MIME: []}):
        with pytest.raises(KernelError, match="no index"):
            read_index(bundle, ["data/x"], max_files=1)


# --- the search, and the list --------------------------------------------------------------------


def weather(folder: Path) -> Path:
    cities = ("boston", "denver", "miami", "seattle", "zurich")
    put(folder, {f"weather/{city}_daily.csv": "date,rainMm\n2024-01-01,3\n" for city in cities})
    put(folder, {f"crime/{city}.csv": "date,offence\n2024-01-01,theft\n" for city in cities})
    return put(folder, {"population.csv": "State,Inhabitants\nMassachusetts,7\nColorado,6\n"})


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("How much rain fell in Boston?", "weather/boston_daily.csv"),
        ("offences in Miami", "crime/miami.csv"),
        ("inhabitants of Colorado", "population.csv"),
        ("Zürich rain", "weather/zurich_daily.csv"),
        ("state populations", "population.csv"),
    ],
)
def test_the_file_that_a_question_means_comes_first(tmp_path, question, first):
    index = index_of(weather(tmp_path))
    found = Search(index).best(question)
    assert found[0].entry.path.removeprefix(f"{tmp_path}/") == first
    assert found[0].why


@settings(max_examples=examples(100), deadline=None)
@given(
    documents=st.lists(
        st.lists(st.sampled_from(["rain", "prcp", "boston", "a1", "north"]), max_size=6),
        min_size=1,
        max_size=8,
    )
)
def test_scores_are_those_of_an_index_of_all_words(documents):
    """Words that nobody asked for count in the length of a file alone."""
    entries = [
        Entry(path="data/x", bytes=1, layout=0, words=" ".join(words)) for words in documents
    ]
    found = Search(Index(entries=tuple(entries), layouts=(Layout(kind="CSV"),)))
    _, scores = found._scores("rain boston")
    whole, words = BM25(), {}
    numbers = [[words.setdefault(w, len(words)) for w in ["x", "x", *each]] for each in documents]
    whole.index((numbers, words), show_progress=False)
    asked = [words[word] for word in ("rain", "boston") if word in words]
    expected = whole.get_scores(asked) if asked else [0.0] * len(documents)
    assert scores == pytest.approx(expected, rel=1e-5)


def test_rows_behind_the_first_and_other_sheets_are_searched(tmp_path):
    """A register's row, a code of a small table, a column of the second sheet."""
    put(tmp_path, {
        "k/reg.csv": "school,town\n" + "\n".join(f"School{n},Town{n}" for n in range(30)),
        "plain.csv": TABLE,
    })  # fmt: skip
    with pd.ExcelWriter(tmp_path / "eq.xlsx") as book:
        pd.DataFrame({"depot": ["N"]}).to_excel(book, sheet_name="Depots", index=False)
        pd.DataFrame({"Scheibenbremse": [3]}).to_excel(book, sheet_name="Parts", index=False)
    found = Search(index_of(tmp_path))
    for words, name in (("Town17", "reg.csv"), ("Scheibenbremse", "eq.xlsx")):
        assert [each.entry.path.rpartition("/")[2] for each in found.best(words)] == [name]


def test_a_word_of_its_own_is_not_taken_for_a_short_form(tmp_path):
    put(tmp_path, {"hour.csv": TABLE, "s.csv": TABLE, "hbr.csv": TABLE, "harb.csv": TABLE})
    found = Search(index_of(tmp_path)).best("the harbour's depot")
    assert {each.entry.path.rpartition("/")[2] for each in found} == {"hbr.csv", "harb.csv"}


def test_words_that_no_file_has_find_nothing(tmp_path):
    search = Search(index_of(weather(tmp_path)))
    assert search.best("zebra") == search.best("the of and") == search.best("") == []
    first = [f"{tmp_path}/{name}.csv" for name in ("population", "crime/boston", "crime/denver")]
    assert list(search.table("", 3)["path"]) == first


def test_of_many_files_of_one_layout_some_make_room_for_another(tmp_path):
    put(tmp_path, {f"sales/{n}.csv": "sales,day\n1,2\n" for n in range(40)})
    put(tmp_path, {"notes/sales.csv": "remark\nnone\n"})
    found = Search(index_of(tmp_path)).best("sales", 5)
    assert any(each.entry.path.endswith("notes/sales.csv") for each in found)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=300)), max_size=60), st.text())
def test_whatever_the_files_are_called_the_list_has_its_bound_and_its_lines(made, question):
    layouts = [["CSV", [column], ",", 0, "", True, [column]] for _, column in made]
    found = [[n, f"data/x/{name}", 1, n, 1, False, name] for n, (name, _) in enumerate(made)]
    bundle = {INDEX_MIME: {"layouts": layouts, "files": found, "whole": True}}
    index = read_index(bundle, ["data/x"], max_files=100)
    told = tell_folders(Search(index), [("data/x", LOOKED_AT)], question)
    assert len(told) <= MAX_LISTING
    lines = told.split("\n")
    assert lines[0].startswith("- data/x")
    assert all(line.startswith("  ") for line in lines[1:])
    assert not any(c < " " or c == "\x7f" for line in lines for c in line)


LOOKED_AT = Scan(path=Path("x"), real=Path("/x"), files=1, bytes=1, folders=("",))


def test_thousands_of_layouts_are_counted(tmp_path):
    layouts = [["CSV", [f"column{n}", "other"], ",", 0, "", True, []] for n in range(5_000)]
    found = [[n, f"data/x/{n}.csv", 1, n, 1, False, ""] for n in range(5_000)]
    bundle = {INDEX_MIME: {"layouts": layouts, "files": found, "whole": True}}
    search = Search(read_index(bundle, ["data/x"], max_files=10_000))
    told = tell_folders(search, [("data/x", LOOKED_AT)], "column17")
    assert len(told) <= MAX_LISTING
    assert "data/x/17.csv (CSV, 1 rows): column17, other" in told
    assert " more layouts" in told


def test_the_example_reads_a_typical_table_as_it_must_be_read(tmp_path):
    put(tmp_path, {f"{n}.csv": "Title\n\na;b\n1;2\n3;4\n" for n in range(3)} | {"x.csv": TABLE})
    example = example_of_folders(index_of(tmp_path)).replace("df.head()", "print(list(df.columns))")
    assert 'sep=";", skiprows=2' in example
    scope: dict[str, Any] = {}
    exec(example, scope)
    assert list(scope["df"].columns) == ["a", "b"]


# --- what is read --------------------------------------------------------------------------------


def test_files_that_were_opened_are_known_with_their_content(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "b/c.csv": TABLE, "d.csv": TABLE})
    reads = Reads([("data/x", scan(tmp_path))])
    (tmp_path / "d.csv").read_text()
    reads.begin()  # whoever opened that: it was before the cell
    (tmp_path / "b/c.csv").read_text()
    list(tmp_path.iterdir())
    (tmp_path / "a.csv").stat()
    reads.end()
    taken = reads.take()
    assert [(f.path, f.bytes, f.kind) for f in taken] == [("data/x/b/c.csv", len(TABLE), "CSV")]
    assert reads.take() == ()
    assert reads.is_whole
    reads.close()


def test_a_file_that_is_gone_by_the_end_is_no_error(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "b.csv": TABLE})
    reads = Reads([("data/x", scan(tmp_path))])
    (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").read_text()
    reads.end()
    (tmp_path / "a.csv").unlink()
    assert [file.path for file in reads.take()] == ["data/x/b.csv"]
    reads.close()


def test_events_that_came_too_fast_are_admitted(tmp_path):
    put(tmp_path, {"a.csv": TABLE, "b.csv": TABLE})
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    opened = Opened(tmp_path, [""])
    for _ in range(limit // 2 + 2):  # the same event twice in a row is one
        (tmp_path / "a.csv").open().close()
        (tmp_path / "b.csv").open().close()
    assert opened.take() == {"a.csv", "b.csv"}
    assert not opened.is_whole
    opened.close()


def test_a_folder_that_is_gone_is_not_watched_and_that_is_admitted(tmp_path):
    opened = Opened(tmp_path, ["", "gone"])
    assert not opened.is_whole
    opened.close()
