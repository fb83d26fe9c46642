"""What a cell has put out is kept in order, within bounds, whatever the kernel sends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.kernel import collect as module
from kernel_agent.kernel.collect import ANSWER_MIME, Collector


def stream(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": text}


def display(text: str, display_id: str | None = None, kind: str = "display_data") -> Any:
    transient = {"display_id": display_id} if display_id else {}
    return kind, {"data": {"text/plain": text}, "metadata": {}, "transient": transient}


def collect(*messages: tuple[str, dict[str, Any]]) -> Collector:
    collector = Collector(step=5)
    for kind, content in messages:
        collector.add_message(kind, content)
    return collector


def texts(collector: Collector) -> list[str]:
    return [o.get("text") or o["data"]["text/plain"] for o in collector.outputs()]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text())))
def test_no_character_of_a_stream_is_lost_or_reordered(pieces: list[tuple[str, str]]) -> None:
    collector = collect(*(stream(text, name) for name, text in pieces))
    for name in ("stdout", "stderr"):
        kept = "".join(o["text"] for o in collector.outputs() if o["name"] == name)
        assert kept == "".join(text for n, text in pieces if n == name)


def test_pieces_of_one_stream_join_until_something_else_comes() -> None:
    collector = collect(stream("a"), stream("b"), display("D"), stream("c"), stream("e", "stderr"))
    assert texts(collector) == ["ab", "D", "c", "e"]


def test_asking_twice_gives_the_same() -> None:
    collector = collect(stream("a"), stream("b"))
    assert collector.outputs() == collector.outputs()
    collector.add_message(*stream("c"))
    assert texts(collector) == ["abc"]


def test_a_result_carries_the_steps_number_not_the_kernels() -> None:
    collector = collect(
        ("execute_result", {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 99})
    )
    assert collector.outputs()[0]["execution_count"] == 5


def test_clearing_at_once_and_clearing_when_something_comes() -> None:
    assert texts(collect(stream("a"), ("clear_output", {"wait": False}))) == []
    assert texts(collect(stream("a"), ("clear_output", {"wait": True}))) == ["a"]
    assert texts(collect(stream("a"), ("clear_output", {"wait": True}), stream("b"))) == ["b"]


def test_a_display_is_updated_where_it_stands() -> None:
    collector = collect(
        display("10 %", "bar"), stream("x"), display("100 %", "bar", "update_display_data")
    )
    assert texts(collector) == ["100 %", "x"]


def test_the_first_answer_counts() -> None:
    def answer(value: int) -> tuple[str, dict[str, Any]]:
        data = {"text/plain": str(value), ANSWER_MIME: {"kind": "int", "value": value}}
        return "display_data", {"data": data, "metadata": {}}

    collector = collect(answer(1), answer(2))
    assert collector.answer is not None
    assert (collector.answer.value, collector.answer.text) == (1, "1")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("stream", {"name": "stdout"}),
        ("stream", {"name": "stdout", "text": 5}),
        ("display_data", {"data": "x", "metadata": {}}),
        ("display_data", {"metadata": {}}),
        ("execute_result", {"data": {}, "metadata": []}),
    ],
)
def test_a_message_that_is_not_what_it_says_is_refused(kind: str, content: Any) -> None:
    collector = Collector()
    with pytest.raises((KeyError, TypeError, ValueError)):
        collector.add_message(kind, content)
    assert collector.outputs() == []


def test_more_than_the_bound_is_counted_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELL", 3000)
    large = "x" * 3000
    collector = collect(stream("12345"), stream(large), display(large), stream("x"))
    assert texts(collector)[:1] == ["12345x"]
    assert "2 more outputs were not kept" in texts(collector)[-1]


def test_metadata_of_a_display_says_a_size_or_is_not_kept() -> None:
    """Two hundred displays of a megabyte each would stay in memory for nothing."""
    small = {"image/png": {"width": 300}}
    kept, dropped = collect(
        ("display_data", {"data": {"text/plain": "a"}, "metadata": small}),
        ("display_data", {"data": {"text/plain": "b"}, "metadata": {"x": "y" * 1_000_000}}),
    ).outputs()
    assert (kept["metadata"], dropped["metadata"]) == (small, {})
    assert dropped["data"] == {"text/plain": "b"}


LARGE = "x" * 2000


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("display_data", {"data": {"application/json": [LARGE]}}),
        ("display_data", {"data": {"application/json": {LARGE: 1}}}),
        ("display_data", {"data": {"application/json": [[]] * 80}}),
        ("display_data", {"data": {}, "metadata": {"a": {"b": LARGE}}}),
        ("error", {"ename": "E", "evalue": LARGE}),
        ("update_display_data", {"data": {"text/plain": LARGE}, "transient": {"display_id": "d"}}),
    ],
)
def test_wherever_an_output_is_large_it_counts(
    kind: str, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CELL", 2000)
    collector = collect(display("before", "d"), (kind, content))
    assert collector.outputs()[0]["data"] == {"text/plain": "before"}
    assert "1 more outputs were not kept" in texts(collector)[1]


def test_a_display_that_is_changed_often_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELL", 4000)
    changes = [("update_display_data", display(LARGE + str(n), "d")[1]) for n in range(9)]
    assert texts(collect(display("before", "d"), *changes)) == [LARGE + "8"]


def test_what_is_nested_too_deeply_to_be_written_down_is_refused() -> None:
    deep: Any = 1
    for _ in range(800):
        deep = [deep]
    collector = collect(display("before", "d"))
    for kind in ("display_data", "update_display_data"):
        content = {"data": {ANSWER_MIME: {"value": deep}}, "transient": {"display_id": "d"}}
        with pytest.raises(ValueError, match="deep"):
            collector.add_message(kind, content)
    assert collector.answer is None
    assert texts(collector) == ["before"]
