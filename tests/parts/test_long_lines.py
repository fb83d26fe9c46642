"""A trace that is written can be read again, and a line that is too long costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.inkernel import display, stream
from kernel_agent.kernel import collect
from kernel_agent.kernel.collect import Collector
from kernel_agent.models.draft import MAX_REPLY_CHARS
from kernel_agent.records import store
from kernel_agent.records.action import Code
from kernel_agent.records.cell import CellResult, HostCall, Observation
from kernel_agent.records.store import MAX_LINE, OUTPUTS_BYTES, TraceWriter, read_trace
from kernel_agent.records.trace import Retry, Step

NOTES = 300  # bytes, of what is said of outputs that were not kept

SHOWS = ("display_data", "update_display_data", "execute_result")


def step_with(outputs: list[dict[str, Any]], **more: Any) -> Step:
    result = CellResult(status="ok", outputs=tuple(outputs), calls=more.pop("calls", ()))
    given = {"action": None, "observation": Observation(text=""), **more}
    return Step(run_id="r", number=1, result=result, **given)


def again(step: Step, folder: Path) -> Step:
    """Return a step as it is read again after it was written."""
    path = folder / "trace.jsonl"
    writer = TraceWriter(path)
    writer.append(step)
    writer.close()
    assert path.stat().st_size <= MAX_LINE
    (read,) = read_trace(path)
    assert isinstance(read, Step)
    assert read.result is not None
    return read


def message(kind: str, text: str, place: str) -> tuple[str, dict[str, Any]]:
    if kind == "stream":
        return kind, {"name": "stdout", "text": text}
    if kind == "error":
        return kind, {"ename": "E", "evalue": text, "traceback": [text]}
    return kind, {"data": {"text/plain": text}, "transient": {"display_id": place}}


MESSAGES = st.builds(
    message,
    st.sampled_from((*SHOWS, "stream", "error")),
    st.text(st.characters(exclude_categories=())).map(lambda text: text * 20),
    st.sampled_from(["a", "b", "c"]),
)


@settings(max_examples=examples(200))
@given(messages=st.lists(MESSAGES, max_size=30), most=st.integers(0, 20_000))
def test_outputs_never_take_more_of_a_line_than_they_may(
    messages: list[tuple[str, dict[str, Any]]], most: int
) -> None:
    """Whatever characters are in them, and however often a display is changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "MAX_TRACE", most)
        collector = Collector(step=10**9)
        for kind, content in messages:
            collector.add_message(kind, content)
    outputs = collector.outputs()
    assert len(store._encode(outputs)) <= most + NOTES
    if sum(len(store._encode(content)) + 200 for _, content in messages) < most:
        assert not any("not kept" in str(o.get("text", "")) for o in outputs)


TEXTS = {
    "control characters": "\x01" * 500_000, "halves": "\ud800" * 500_000,
    "characters of four bytes": "😀" * 1_000_000, "escapes": '"\n' * 500_000,
    "plain text": "x" * 3_000_000,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=[pytest.mark.long] if n else [])
        for n, (name, text) in enumerate(TEXTS.items())
    ],
)
@pytest.mark.parametrize("kind", ["stream", "display_data", "error"])
def test_the_longest_line_that_outputs_can_make_is_read_again(
    tmp_path: Path, kind: str, text: str
) -> None:
    collector = Collector(step=1)
    for _ in range(30):
        collector.add_message(*message(kind, text, ""))
    outputs = collector.outputs()
    assert "more outputs were not kept" in outputs[-1]["text"]
    if kind != "stream" and not text.startswith("😀"):
        assert len(store._encode(outputs)) > OUTPUTS_BYTES * 0.8  # so much is kept
    assert again(step_with(outputs), tmp_path).result.outputs == tuple(outputs)


@pytest.mark.long
@pytest.mark.parametrize("item", [None, []], ids=repr)
def test_the_most_items_that_outputs_can_have_are_read_again(tmp_path: Path, item: Any) -> None:
    collector = Collector(step=1)
    for _ in range(45):
        data = {"application/json": [item] * 99_000}
        collector.add_message("display_data", {"data": data})
    assert again(step_with(collector.outputs()), tmp_path).result.outputs


@pytest.mark.long
def test_a_step_with_all_that_it_may_have_is_read_again(tmp_path: Path) -> None:
    """The outputs are whole; of the words of a model that lost its way the beginning is kept."""
    collector = Collector(step=1)
    for text in ("\x01" * 5_000_000, "x" * 2_400_000):
        collector.add_message(*message("display_data", text, ""))
    outputs = collector.outputs()
    assert len(outputs) == 2
    noise = "\x02" * MAX_REPLY_CHARS
    call = HostCall(
        name="f", arguments={"args": [noise], "kwargs": {noise: 1}}, ok=True, result=[noise] * 5
    )
    step = step_with(
        outputs, action=Code(source=noise, thought=""), calls=(call,),
        retries=tuple(Retry(content=noise, feedback="again") for _ in range(3)),
    )  # fmt: skip
    read = again(step, tmp_path)
    assert read.result.outputs == tuple(outputs)
    assert read.code.startswith(noise[:1000])
    assert read.code.endswith("(cut: too long for the trace)")
    assert [retry.feedback for retry in read.retries] == ["again"] * 3


def test_a_record_of_too_many_items_is_written_with_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_ITEMS", 20_000)
    call = HostCall(name="f", arguments={"args": [[0] * 50_000], "kwargs": {}}, ok=True)
    read = again(step_with([], calls=(call,)), tmp_path)
    assert read.result.calls[0].arguments == {"args": [[0] * 10_000], "kwargs": {}}


def test_our_kernel_says_what_it_leaves_out_before_the_host_has_to() -> None:
    """Markup has a quote or a line's end, which take a byte more, every twenty characters."""
    sent = display.MAX_CELL * 1.05 + 2 * (stream.HEAD + stream.TAIL)
    assert 0.9 * OUTPUTS_BYTES < sent < OUTPUTS_BYTES


def dense(megabytes: int) -> Iterator[bytes]:
    yield b'{"v": 1, "$": "RunStop", "message": "'
    for _ in range(megabytes):
        yield b"x" * (1 << 20)


MEASURE = """
import json, resource, sys, time
from kernel_agent.errors import TraceError
from kernel_agent.records import read_trace
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, began = most(), time.process_time()
try:
    read_trace(sys.argv[1])
except TraceError as error:
    print(json.dumps([str(error), most() - before, time.process_time() - began]))
"""


@pytest.mark.parametrize(
    ("megabytes", "told"),
    [(0, "a long line in it is no record"), (30, "a long line in it is no record"),
     (100, "No such line is written any more")],
)  # fmt: skip
def test_a_trace_of_3_gb_is_refused_at_once(tmp_path: Path, megabytes: int, told: str) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.writelines(dense(megabytes))
        file.truncate(3 << 30)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True
    )
    said, grown, seconds = json.loads(done.stdout)
    assert told in said
    assert "\n" not in said
    assert grown < 64
    assert seconds < 1
