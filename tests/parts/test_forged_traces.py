"""A forged or damaged trace is refused in one line or read: nothing else ever comes of it.

``KERNEL_AGENT_FORGED_TRACES=30000`` reads as many instead of some hundred.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from attacks.forging import GOLDEN, deep, forged, rich
from attacks.host.traces import surprises
from support.examples import examples

from kernel_agent.errors import TraceError
from kernel_agent.records import store
from kernel_agent.records.codec import from_json
from kernel_agent.records.store import read_trace

COUNT = int(os.environ.get("KERNEL_AGENT_FORGED_TRACES", "0")) or examples(200)
BASES = (GOLDEN.read_bytes().splitlines(keepends=True), rich())


def test_a_forged_trace_is_read_or_refused(tmp_path: Path) -> None:
    for seed in range(COUNT):
        content = forged(BASES[seed % 2], random.Random(seed))
        (tmp_path / "trace.jsonl").write_bytes(content)
        assert not surprises(tmp_path), f"seed {seed}"


@pytest.mark.parametrize("seed", [102551, 103605, 202179, 202863, 203043])
def test_what_once_was_a_surprise_is_none(tmp_path: Path, seed: int) -> None:
    """A denied cell that ran, half a character in a folder's name, arguments that are none."""
    (tmp_path / "trace.jsonl").write_bytes(forged(BASES[seed % 2], random.Random(seed)))
    assert not surprises(tmp_path)


def test_every_record_comes_back_whole(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_bytes(b"".join(rich()))
    again = [json.loads(line) for line in rich()]
    assert [type(r).__name__ for r in read_trace(tmp_path)] == [r["$"] for r in again]
    for record in read_trace(tmp_path):
        assert dataclasses.is_dataclass(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("result", {"a": 1}), ("action", "x"), ("action", {"$": "Usage"}), ("retries", {}),
        ("number", True), ("number", 1.5), ("number", 10**30), ("cell_seconds", 10**400),
        ("cell_seconds", float("inf")), ("model_seconds", "1"), ("usage", None), ("reasoning", 1),
        ("observation", None), ("decision", []), ("time", None),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_damage(tmp_path: Path, field: str, value: Any) -> None:
    lines = rich()
    step = {**json.loads(lines[1]), field: value}
    content = b"".join([lines[0], json.dumps(step).encode() + b"\n", *lines[2:]])
    (tmp_path / "trace.jsonl").write_bytes(content)
    with pytest.raises(TraceError, match=rf"damaged trace .*line 2 .*Step\.{field}") as caught:
        read_trace(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_value_that_nobody_could_follow_is_damage() -> None:
    answer = {"$": "Answer", "text": "t", "value": deep(150)}
    assert from_json(answer).value == deep(150)
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json({**answer, "value": deep(300)})


def test_a_line_of_too_many_items_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_ITEMS", 1000)
    monkeypatch.setattr(store, "_record_of", lambda _line: pytest.fail("it was decoded"))
    (tmp_path / "trace.jsonl").write_bytes(b'{"$": "RunStop", "a": [' + b"[]," * 600 + b"1]}\n\n")
    with pytest.raises(TraceError, match="more than 1,000 items"):
        read_trace(tmp_path)


def test_lines_and_traces_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.jsonl").write_bytes(b"".join(rich()))
    for name, most, told in (
        ("MAX_LINE", 100, "has a line larger than 100 bytes"),
        ("MAX_BYTES", 5000, "is larger than 5,000 bytes"),
        ("MAX_ALL_ITEMS", 50, "more than 50 items"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(store, name, most)
            with pytest.raises(TraceError, match=told):
                read_trace(tmp_path)
