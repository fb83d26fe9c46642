"""What happens to the user's data files before a kernel sees them."""

import hashlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_agent import ScriptedModel, Session
from kernel_agent.errors import InputError, UsageError
from kernel_agent.records.event import Notice
from kernel_agent.records.trace import DataFile
from kernel_agent.session.filetypes import SAMPLE_BYTES
from kernel_agent.session.inputs import look_up, place

TABLE = b"name,weight\nAda,3\nBo,4\nCy,5\n"


def put(folder: Path, *paths: Path, **options) -> tuple[DataFile, ...]:
    return place(paths, folder, notice=options.pop("notice", lambda notice: None), **options)


def refusal(tmp_path: Path, path: str | Path) -> str:
    """Return the line that refuses a file, after checking that nothing is left behind."""
    out = tmp_path / "out"
    with pytest.raises(InputError) as caught:
        place([path], out, notice=lambda notice: None)
    assert not out.exists() or list(out.iterdir()) == []
    line = str(caught.value)
    assert "\n" not in line
    return line


def written(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


# --- what is put there -----------------------------------------------------------------------


def test_a_file_is_copied_read_only_with_its_fingerprint(tmp_path):
    """The record says where the kernel finds it, where it came from and what it is."""
    source = written(tmp_path, "sales.csv", TABLE)
    (file,) = put(tmp_path / "out", source)
    copy = tmp_path / "out" / file.path
    assert copy.read_bytes() == TABLE
    assert stat.S_IMODE(copy.stat().st_mode) == 0o444
    assert file == DataFile(
        path="data/sales.csv",
        source=str(source.resolve()),
        bytes=len(TABLE),
        sha256=hashlib.sha256(TABLE).hexdigest(),
        kind="CSV",
    )


def test_files_of_the_same_name_get_distinct_names(tmp_path):
    """Even where their content is the same, each input has its own path."""
    sources = []
    for folder, content in (("a", TABLE), ("b", TABLE), ("c", TABLE + b"Di,6\n")):
        (tmp_path / folder).mkdir()
        sources.append(written(tmp_path / folder, "sales.csv", content))
    files = put(tmp_path / "out", *sources)
    assert [f.path for f in files] == ["data/sales.csv", "data/sales-2.csv", "data/sales-3.csv"]
    assert [(tmp_path / "out" / f.path).read_bytes() for f in files] == [
        source.read_bytes() for source in sources
    ]


def test_the_same_file_named_twice_is_taken_once(tmp_path):
    """However it is spelt."""
    source = written(tmp_path, "sales.csv", TABLE)
    assert len(put(tmp_path / "out", source, tmp_path / "." / "sales.csv")) == 1


@pytest.mark.parametrize(
    "made", ["second name", "second name, read-only", "writable", "of another"]
)
def test_a_file_of_the_same_content_that_is_not_our_copy_is_not_the_input(tmp_path, made):
    """A cell that ran here before knew the input and kept a way to write it."""
    if made == "of another" and os.geteuid():
        pytest.skip("only root gives a file away")
    own, run = tmp_path / "user.csv", tmp_path / "run"
    own.write_text("a\n1\n")
    (run / "data").mkdir(parents=True)
    planted = run / "data" / "user.csv"
    planted.write_text("a\n1\n")
    shadow = run / "shadow.csv"
    if made.startswith("second"):
        os.link(planted, shadow)
    planted.chmod(0o644 if made in ("second name", "writable") else 0o444)
    if made == "of another":
        os.chown(planted, 65534, 65534)
    (placed,) = place([own], run, notice=lambda _: None)
    assert placed.path == "data/user-2.csv"
    planted.chmod(0o644)
    planted.write_text("EVIL")
    copy = run / placed.path
    assert copy.read_text() == "a\n1\n"
    assert (copy.stat().st_nlink, stat.S_IMODE(copy.stat().st_mode)) == (1, 0o444)
    assert own.read_text() == "a\n1\n"


def test_placing_again_reuses_what_is_there(tmp_path):
    """A second call keeps the path of unchanged data and never touches older data."""
    source = written(tmp_path, "sales.csv", TABLE)
    first = put(tmp_path / "out", source)
    assert put(tmp_path / "out", source) == first
    source.write_bytes(TABLE + b"Di,6\n")
    (changed,) = put(tmp_path / "out", source)
    assert changed.path == "data/sales-2.csv"
    assert (tmp_path / "out" / "data" / "sales.csv").read_bytes() == TABLE


def test_a_file_above_the_limit_is_linked_and_the_user_is_told(tmp_path):
    """It is fingerprinted as well, but not copied."""
    source = written(tmp_path, "big.csv", TABLE)
    notices: list[Notice] = []
    (file,) = put(tmp_path / "out", source, notice=notices.append, link_above=10)
    assert file.linked
    assert file.sha256 == hashlib.sha256(TABLE).hexdigest()
    assert (tmp_path / "out" / file.path).readlink() == source.resolve()
    assert [n.text for n in notices if "linked, not copied" in n.text]


@pytest.fixture
def sharing(tmp_path):
    """A folder of a file system that can share blocks between files."""
    if os.geteuid() != 0 or not shutil.which("mkfs.xfs"):
        pytest.skip("a file system with shared blocks needs root and mkfs.xfs")
    image, there = tmp_path / "image", tmp_path / "there"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    there.mkdir()
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, there], check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    yield there
    subprocess.run(["umount", there], check=True)


@pytest.mark.parametrize("link_above", [1, 1 << 30])
def test_a_copy_shares_its_blocks_where_the_file_system_can(sharing, link_above):
    """Whatever its size: it is a copy, which a change of the file does not reach."""
    source = sharing / "large.csv"
    source.write_text("a,b\n" + "1,2\n" * 5_000_000)
    before = shutil.disk_usage(sharing).used
    (file,) = put(sharing / "out", source, link_above=link_above)
    os.sync()
    assert shutil.disk_usage(sharing).used - before < 2_000_000
    copy = sharing / "out" / file.path
    assert (file.linked, copy.is_symlink(), copy.stat().st_nlink) == (False, False, 1)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o444
    assert file.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    with source.open("r+") as changed:
        changed.write("changed")
    assert file.sha256 == hashlib.sha256(copy.read_bytes()).hexdigest()
    assert [path.name for path in (sharing / "out/data").iterdir()] == ["large.csv"]


def test_a_link_is_followed(tmp_path):
    """It is the user's own: the content is taken under the name that was given."""
    source = written(tmp_path, "2024-final.csv", TABLE)
    link = tmp_path / "sales.csv"
    link.symlink_to(source)
    (file,) = put(tmp_path / "out", link)
    assert (file.path, file.source) == ("data/sales.csv", str(source))
    assert not (tmp_path / "out" / file.path).is_symlink()


def test_a_name_that_a_terminal_would_choke_on_is_cleaned(tmp_path):
    """Line breaks and escape characters stay out of paths that are shown and written in code."""
    (file,) = put(tmp_path / "out", written(tmp_path, "a\n\x1b[31mb.csv", TABLE))
    assert file.path == "data/a__[31mb.csv"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=3000), number=st.integers(0, 10**9))
def test_a_copy_loses_nothing(tmp_path, content, number):
    """Whatever the bytes are, the copy has the same ones; these begin as no document does."""
    content = b"\0" + content
    source = written(tmp_path, f"{number}.bin", content)
    (file,) = put(tmp_path / f"out-{number}", source)
    assert (tmp_path / f"out-{number}" / file.path).read_bytes() == content
    assert file.kind == "other"


# --- what is accepted ------------------------------------------------------------------------

SOUND = {
    "plain.csv": (TABLE, "CSV"),
    "UPPER.CSV": (TABLE, "CSV"),
    "semicolons.csv": (b"a;b\n1,5;2\n3,5;4\n", "CSV"),
    "one-column.csv": (b"a\n1\n2\n3\n", "CSV"),
    "header-only.csv": (b"a,b,c\n", "CSV"),
    "crlf.csv": (TABLE.replace(b"\n", b"\r\n"), "CSV"),
    "old-mac.csv": (TABLE.replace(b"\n", b"\r"), "CSV"),
    "bom.csv": (b"\xef\xbb\xbf" + TABLE, "CSV"),
    "latin.csv": ("name,town\nJosé,Málaga\n".encode("latin-1"), "CSV"),
    "utf16.csv": (TABLE.decode().encode("utf-16"), "CSV"),
    "quoted.csv": (b'a,b\n"one\ntwo, three",4\n"say ""hi""",5\n', "CSV"),
    "inches.csv": (b'size,n\n5" pipe,3\n7" pipe,4\n', "CSV"),
    "preamble.csv": (
        b"Bank of X\nAccount,123\nFrom,2024\nTo,2025\n\n" + b"d,t,a,b,c\n" + b"1,2,3,4,5\n" * 4,
        "CSV",
    ),
    "ragged-end.csv": (b"a,b,c,note\n1,2,3\n1,2,3,x\n1,2,3,x,y\n1,2,3,x,y,z\n", "CSV"),
    "footnote.csv": (TABLE + b"Source: some office, a, b, c, d\n", "CSV"),
    "t.tsv": (b"a\tb\n1\t2\n", "TSV"),
    "l.jsonl": (b'{"a": 1}\n\n{"a": 2}\n', "JSON lines"),
    "array-in.jsonl": (b'[\n {"a": 1}\n]\n', "JSON"),
    "o.json": (b'{"a": [1, 2]}', "JSON"),
    "lines-in.json": (b'{"a": 1}\n{"a": 2}\n', "JSON lines"),
    "nan.json": (b"[NaN, 1]", "JSON"),
    "deep.json": (b"[" * 5000 + b"]" * 5000, "JSON"),
    "broken.json": (b'{"a": 1,\n "b": }', "JSON"),
    "broken.jsonl": (b'{"a": 1}\n{"a": \n', "JSON lines"),
    "numbers.jsonl": (b"1\n2\n", "JSON lines"),
    "open-quote.csv": (b'a,b\n1,"two\n3,4\n', "CSV"),
    "without-a-pattern.csv": (b"a,b\n1,2,3,4,5\n6\n7,8,9\n1,2,3,4,5,6,7\n", "CSV"),
    "t.parquet": (b"PAR1" + bytes(8) + b"PAR1", "Parquet"),
    "note.txt": (b'any "text, really\n', "text"),
    "survey.sav": (b"$FL2\x00\x00", "other"),
    "shop.db": (b"SQLite format 3\x00" + bytes(20), "SQLite"),
    "thumbs.db": (b"\xd0\xcf\x11\xe0" + bytes(20), "other"),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(20), "Excel"),
    "no-ending": (bytes(10), "other"),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_a_reader_can_judge_is_accepted(tmp_path, name):
    """The check refuses clear garbage only, and the kind follows the content.

    What is broken within a text is left to its reader: the agent sees the error and can mend it.
    """
    content, kind = SOUND[name]
    (file,) = put(tmp_path / "out", written(tmp_path, name, content))
    assert file.kind == kind


def test_a_workbook_is_accepted(tmp_path):
    """A ZIP archive with a workbook in it is what .xlsx means."""
    path = tmp_path / "book.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    assert put(tmp_path / "out", path)[0].kind == "Excel"


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        ("long.csv", b'"a ""quoted"" text\nin two lines",2,3\n', "CSV"),
        ("long.jsonl", b'{"a": "text", "b": [1, 2, 3]}\n', "JSON lines"),
    ],
)
def test_a_long_file_is_judged_by_its_beginning(tmp_path, name, line, kind):
    """What the end of the sample cuts off is no fault."""
    content = line * (2 * SAMPLE_BYTES // len(line))
    assert put(tmp_path / "out", written(tmp_path, name, content))[0].kind == kind


def test_a_long_json_value_is_judged_by_its_beginning(tmp_path):
    """Wherever the sample ends in it."""
    content = json.dumps([{"name": "x" * 50, "value": i / 7} for i in range(20_000)]).encode()
    for shift in range(8):
        path = written(tmp_path, f"long-{shift}.json", b" " * shift * 13 + content)
        assert put(tmp_path / "out", path)[0].kind == "JSON"


# --- what is refused -------------------------------------------------------------------------

REFUSED = {
    "empty.csv": (b"", "is empty (0 bytes)"),
    "blank.csv": (b"\n\n  \n", "only blank lines"),
    "bom-only.csv": (b"\xef\xbb\xbf", "only blank lines"),
    "binary.csv": (b"a,b\n1,\x00\x01\x02\n", "binary data"),
    "controls.csv": (bytes(range(1, 32)) * 10, "binary data"),
    "packed.csv": (b"\x1f\x8b\x08 rest", "compressed with gzip"),
    "workbook.csv": (b"PK\x03\x04 rest", "Excel workbook"),
    "page.csv": (b"<!DOCTYPE html>\n<html><body>404</body></html>", "web page"),
    "binary.txt": (b"a\x00b", "binary data"),
    "noise.parquet": (b"PAR1 and then nothing of use", "PAR1 is missing"),
    "tiny.parquet": (b"PAR1", "PAR1 is missing"),
    "noise.xlsx": (b"a,b\n1,2\n", "not an Excel workbook"),
    "locked.xlsx": (b"\xd0\xcf\x11\xe0 rest", "password"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_garbage_is_refused_with_a_line_that_says_what_it_is(tmp_path, name):
    """The line names the file, says what is wrong and what to do, and nothing is left behind."""
    content, fault = REFUSED[name]
    line = refusal(tmp_path, written(tmp_path, name, content))
    assert str(tmp_path / name) in line
    assert fault in line
    assert len(line.split(". ")) >= 2, "the line must also say what to do"


def test_an_archive_that_is_no_workbook_is_refused(tmp_path):
    """A ZIP archive under the ending of a workbook."""
    path = tmp_path / "letter.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<document/>")
    assert "without a workbook" in refusal(tmp_path, path)


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_database_whose_changes_stand_beside_it_is_refused(tmp_path, ending):
    """Its newest rows would be missed, or half of them read; an empty file beside it is nothing."""
    path = written(tmp_path, "shop.db", b"SQLite format 3\x00" + bytes(84))
    beside = written(tmp_path, f"shop.db{ending}", b"")
    (tmp_path / "link.db").symlink_to(path)
    assert put(tmp_path / "taken", path)[0].kind == "SQLite"
    beside.write_bytes(b"x")
    for named in (path, tmp_path / "link.db"):
        line = refusal(tmp_path, named)
        assert f"shop.db{ending} holds changes to it" in line
        assert f'sqlite3 {named} ".backup copy.db"' in line


def test_a_missing_file_suggests_close_names(tmp_path):
    """A slip of the finger is answered with what is there."""
    written(tmp_path, "Penguins.csv", TABLE)
    line = refusal(tmp_path, tmp_path / "pengins.csv")
    assert "does not exist" in line
    assert f"Did you mean {tmp_path / 'Penguins.csv'}?" in line


def test_a_missing_file_without_a_close_name_lists_what_there_is(tmp_path):
    """At most five tables, and how many more."""
    for number in range(7):
        written(tmp_path, f"y{number}.csv", TABLE)
    assert "y0.csv, y1.csv, y2.csv, y3.csv, y4.csv and 2 more" in refusal(
        tmp_path, tmp_path / "quite-different.parquet"
    )


def test_a_missing_folder_is_named(tmp_path):
    """The reader is not left looking for the file in a folder that is not there."""
    line = refusal(tmp_path, tmp_path / "nowhere" / "a.csv")
    assert f"no folder {tmp_path / 'nowhere'}" in line


def test_a_pattern_names_the_files_that_fit_it(tmp_path):
    """At any depth, sorted; hidden ones only where it names them so."""
    for name in ("b.csv", "a.csv", "deep/c.csv", ".hidden.csv", "readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path, name, TABLE)
    found = look_up(f"{tmp_path}/**/*.csv")
    assert [source.path.name for source in found] == ["a.csv", "b.csv", "c.csv"]


def test_a_pattern_follows_no_link_out_of_its_folder(tmp_path):
    """Cells, or who has filled the folder, may have left it there."""
    (tmp_path / "in").mkdir()
    written(tmp_path, "in/a.csv", TABLE)
    written(tmp_path, "secret.csv", TABLE)
    (tmp_path / "in" / "b.csv").symlink_to("a.csv")
    assert len(look_up(f"{tmp_path}/in/*.csv")) == 2
    for name, to, pattern in (("c.csv", "../secret.csv", "*.csv"), ("up", "..", "**/s*.csv")):
        (tmp_path / "in" / name).symlink_to(to)
        with pytest.raises(InputError, match="by a link out of"):
            look_up(f"{tmp_path}/in/{pattern}")
    assert len(look_up(tmp_path / "in" / "c.csv")) == 1


def test_a_pattern_that_fits_hundreds_is_told_of_the_folder(tmp_path):
    """They would be copied; a folder is not."""
    for number in range(201):
        written(tmp_path, f"{number}.csv", TABLE)
    with pytest.raises(InputError, match=re.escape(f"not: --data {tmp_path}")):
        look_up(tmp_path / "*.csv")


def test_a_file_with_the_name_of_a_pattern_is_that_file(tmp_path):
    """A pattern is what is no name."""
    written(tmp_path, "[1].csv", TABLE)
    written(tmp_path, "1.csv", TABLE)
    assert [source.path.name for source in look_up(tmp_path / "[1].csv")] == ["[1].csv"]


def test_a_pipe_is_refused_without_being_opened(tmp_path):
    """Opening it would block until somebody writes to it."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe, socket or device" in refusal(tmp_path, tmp_path / "pipe.csv")


def test_a_socket_and_a_device_are_refused(tmp_path, monkeypatch):
    """They are no data that could be copied."""
    monkeypatch.chdir(tmp_path)  # the name of a socket has a length limit
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.csv")
        assert "pipe, socket or device" in refusal(tmp_path, tmp_path / "socket.csv")
    assert "pipe, socket or device" in refusal(tmp_path, "/dev/zero")


def test_broken_and_circular_links_are_refused(tmp_path):
    """The line says where the link leads."""
    (tmp_path / "broken.csv").symlink_to("gone.csv")
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    assert "is a link to gone.csv, which does not exist" in refusal(
        tmp_path, tmp_path / "broken.csv"
    )
    assert "cannot be read" in refusal(tmp_path, tmp_path / "circle.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not hold for root")
def test_a_file_without_read_permission_is_refused(tmp_path):
    """The line says whose rights to look at."""
    path = written(tmp_path, "secret.csv", TABLE)
    path.chmod(0)
    assert "permission denied" in refusal(tmp_path, path)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "empty path"),
        ("  ", "empty path"),
        ("https://example.org/a.csv", "is an address"),
        ("a\0b.csv", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("~nobody-of-this-name/a.csv", "There is no folder ~nobody-of-this-name either"),
    ],
)
def test_a_path_that_cannot_be_one_is_refused(tmp_path, path, fault):
    """Odd input gets a line, not a traceback."""
    assert fault in refusal(tmp_path, path)


def test_a_bad_file_among_good_ones_leaves_nothing(tmp_path):
    """All are checked before any is copied."""
    good = written(tmp_path, "good.csv", TABLE)
    with pytest.raises(InputError):
        put(tmp_path / "out", good, tmp_path / "missing.csv")
    assert not (tmp_path / "out").exists()


def test_a_copy_that_fails_leaves_nothing_half_done(tmp_path):
    """The files of this call go, those of an earlier call stay."""
    earlier = put(tmp_path / "out", written(tmp_path, "earlier.csv", TABLE))
    good = written(tmp_path, "good.csv", TABLE)
    big = written(tmp_path, "big.csv", TABLE * 100)

    def full(notice: Notice) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"disk .* is full"):
        put(tmp_path / "out", good, big, notice=full, link_above=1000)
    assert [p.name for p in (tmp_path / "out" / "data").iterdir()] == ["earlier.csv"]
    assert earlier[0].path == "data/earlier.csv"


def test_an_output_folder_that_cannot_be_made_is_said(tmp_path):
    """A path below a regular file can never be a folder."""
    source = written(tmp_path, "a.csv", TABLE)
    with pytest.raises(InputError, match=r"cannot be copied to .*--out"):
        put(source / "out", source)


@pytest.mark.parametrize(
    "data", [pd.DataFrame({"a": [1]}), [pd.DataFrame({"a": [1]})], {"a.csv": 1}, 3, [b"a.csv"]]
)
def test_what_is_no_file_is_refused_as_data(data):
    """A table has its own way in; its column names are no files."""
    with pytest.raises(UsageError, match=r"^data are files and folders, not a \w+: give .* put"):
        Session(model=ScriptedModel([]), data=data)
