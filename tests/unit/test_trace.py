"""A trace loses at most the record that was being written."""

from __future__ import annotations

import json
import os
import resource
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.errors import TraceError
from kernel_agent.records import store
from kernel_agent.records.cell import Observation
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.store import TraceWriter, load, read_trace
from kernel_agent.records.trace import Condensation, Record, RunStart, RunStop, Step


def records(texts: list[str]) -> list[Record]:
    start = RunStart(
        run_id="r", task="t", time="", model="m", format="fenced", sandbox={}, budget={}
    )
    steps = [
        Step(run_id="r", number=n, action=None, observation=Observation(text=text))
        for n, text in enumerate(texts, start=1)
    ]
    return [start, *steps, RunStop(run_id="r", status=ExitStatus.ANSWERED)]


def write(path: Path, all_records: list[Record]) -> None:
    writer = TraceWriter(path)
    for record in all_records:
        writer.append(record)
    writer.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(texts=st.lists(st.text(), max_size=3), data=st.data())
def test_a_trace_cut_anywhere_gives_every_record_before_the_cut(
    tmp_path: Path, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path / "trace.jsonl"
    path.unlink(missing_ok=True)
    written = records(texts)
    write(path, written)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    cut = data.draw(st.integers(min_value=ends[0], max_value=len(whole)))
    path.write_bytes(whole[:cut])
    # A line that only lacks its newline is whole; anything shorter is left out and told.
    complete = sum(end - 1 <= cut for end in ends)
    back, damaged = load(path)
    assert list(back) == written[:complete]
    assert damaged == (cut not in ends and cut + 1 not in ends)


def test_text_that_is_not_unicode_is_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write(path, records(["half a pair: \ud83d"]))
    step = read_trace(path)[1]
    assert isinstance(step, Step)
    assert "half a pair" in step.observation.text


def test_each_record_is_on_disk_before_the_next_is_made(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl")
    for count, record in enumerate(records(["a", "b"]), start=1):
        writer.append(record)
        assert len(read_trace(tmp_path)) == count
    writer.close()


def test_damage_before_the_last_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write(path, records(["a"]))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    with pytest.raises(TraceError, match="line 2"):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no record"),
        ('{"a": 1}\n{"b": 2}\n', "line 1"),
        (json.dumps({"v": 99, "$": "RunStop"}) + "\n\n\n", "newer"),
        (json.dumps({"v": "1", "$": "RunStop"}) + "\n\n\n", "no number"),
        (json.dumps({"v": 1, "$": ["RunStop"]}) + "\n\n\n", "no record type"),
        (json.dumps({"v": 1, "$": "Usage", "calls": 1}) + "\n\n\n", "not a record of its own"),
        ('{"v": 1, "$": "RunStop", "a": ' + "[" * 100_000 + "\n\n\n", "it is nested too deeply"),
        (
            '{"v": 1, "$": "RunStop", "run_id": "r", "status": "answered", "answer": '
            '{"$": "Answer", "text": "", "value": ' + "[" * 700 + "]" * 700 + "}}\n\n\n",
            "nested too deeply",
        ),
    ],
)
def test_what_is_not_a_trace_is_refused_in_one_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_a_missing_trace_and_an_unwritable_one_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace"):
        read_trace(tmp_path / "nothing")
    with pytest.raises(TraceError, match="cannot write"):
        TraceWriter(tmp_path / "missing" / "trace.jsonl")


def test_a_full_disk_is_reported_and_what_was_written_stays(tmp_path: Path) -> None:
    path, (record, *_) = tmp_path / "trace.jsonl", records([])
    writer = TraceWriter(path)
    writer.append(record)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        with pytest.raises(TraceError, match="cannot write the trace"):
            writer.append(record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_trace(path) == (record,)
    assert writer.records == [record]
    writer.close()


def test_a_trace_that_was_changed_is_written_again_from_the_records(tmp_path: Path) -> None:
    path, outside = tmp_path / "trace.jsonl", tmp_path / "outside"
    outside.write_text("theirs")
    written = records(["a", "b"])
    writer = TraceWriter(path)
    for record in written[:-1]:
        writer.append(record)
    assert not writer.restore()

    def forge() -> None:
        path.write_text(path.read_text().replace("a", "b"))

    def append() -> None:
        with path.open("a") as file:
            file.write('{"$": "RunStop"}\n')

    def link() -> None:
        path.unlink()
        path.symlink_to(outside)

    def exchange() -> None:
        copy = path.read_bytes()
        path.unlink()
        path.write_bytes(copy)

    for change in (forge, append, link, exchange, path.unlink):
        change()
        assert writer.restore()
        assert not writer.restore()
        assert read_trace(path) == tuple(written[:-1])
    writer.append(written[-1])
    assert read_trace(path) == tuple(written)
    assert outside.read_text() == "theirs"
    writer.close()


def test_a_folder_in_the_place_of_a_trace_is_moved_aside_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    path, (written, *_) = tmp_path / "trace.jsonl", records([])
    (tmp_path / "trace.jsonl.other").symlink_to(tmp_path / "elsewhere")  # that name is taken
    writer = TraceWriter(path)
    writer.append(written)
    path.unlink()
    path.mkdir()
    (path / "theirs").write_text("kept")
    assert writer.restore()
    assert not writer.restore()
    assert read_trace(path) == (written,)
    assert (tmp_path / "trace.jsonl.other-2" / "theirs").read_text() == "kept"
    assert not (tmp_path / "elsewhere").exists()
    writer.close()


def test_a_trace_that_is_continued_keeps_what_stood_in_it_before(tmp_path: Path) -> None:
    """Also when it has to be written again, for which nobody has the earlier records."""
    path, written = tmp_path / "trace.jsonl", records(["a", "b"])
    write(path, written[:2])
    writer = TraceWriter(path)
    assert not writer.restore()
    for record in written[2:]:
        writer.append(record)
    assert not writer.restore()
    path.write_text("forged")
    assert writer.restore()
    assert read_trace(path) == tuple(written)
    assert writer.records == written[2:]
    writer.close()


@pytest.mark.parametrize("thing", ["link", "pipe"])
def test_what_is_no_regular_file_is_neither_written_nor_read(tmp_path: Path, thing: str) -> None:
    path = tmp_path / "trace.jsonl"
    if thing == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/hostname")
    with pytest.raises(TraceError, match="it is"):
        TraceWriter(path)
    with pytest.raises(TraceError, match="it is"):
        read_trace(path)


def test_a_shortened_conversation_is_a_line_of_its_own(tmp_path: Path) -> None:
    """It needs version 2; all other lines can still be read by what knew version 1 only."""
    start, *rest = records(["a"])
    shortened = Condensation(run_id="r", kind="masked", first=1, last=1)
    write(tmp_path / "trace.jsonl", [start, shortened, *rest])
    assert read_trace(tmp_path) == (start, shortened, *rest)
    lines = (tmp_path / "trace.jsonl").read_text().splitlines()
    assert [json.loads(line)["v"] for line in lines] == [1, 2, 1, 1]


def test_a_trace_up_to_the_bounds_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with one byte more it is not."""
    path = tmp_path / "trace.jsonl"
    write(path, records(["a", "b"]))
    lines = path.read_bytes().splitlines(keepends=True)
    longest = max(map(len, lines))
    for name, most in (("MAX_BYTES", path.stat().st_size), ("MAX_LINE", longest)):
        monkeypatch.setattr(store, name, most)
        assert len(read_trace(path)) == len(lines)
        with monkeypatch.context() as patch:
            patch.setattr(store, name, most - 1)
            with pytest.raises(TraceError, match=f"larger than {most - 1:,} bytes"):
                read_trace(path)


@pytest.mark.parametrize("beginning", [b"", b"{", b'{"v": 1, "$": "', b"x" * 40_000_000])
def test_a_long_line_that_is_no_record_costs_some_pieces_of_it(
    tmp_path: Path, beginning: bytes
) -> None:
    """A hole takes nothing on the disk; whatever follows it in the line is not read."""
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="a long line in it is no record"):
            read_trace(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_record_of_several_pieces_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "trace.jsonl", records(["a" * 5000, "b"]))
    monkeypatch.setattr(store, "PIECE", 100)
    assert read_trace(tmp_path) == tuple(records(["a" * 5000, "b"]))


def test_a_trace_of_no_records_is_said_to_hold_none(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_bytes(b"\n \n")
    with pytest.raises(TraceError, match="holds no record"):
        read_trace(tmp_path)
