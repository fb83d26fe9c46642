"""What a notebook's cells get from the replay of a host tool: their own arguments' result."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from kernel_agent.inkernel import decode, encode
from kernel_agent.notebook.preamble import delegated, replayed
from kernel_agent.tools.recorded import keep_arguments, keep_result

ARGUMENTS = (
    "text", b"bytes", bytearray(b"more"), True, 3, 0.1 + 0.2, float("inf"), None, range(3),
    ("a", 1), [1, [2.5]], {"a": 1}, {1: "a"}, {"one", "two", "three"}, frozenset([1]),
    {"a": 1}.keys(), {"a": 1}.values(),
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, tzinfo=dt.UTC), dt.time(1, 2),
    dt.timedelta(hours=1), Decimal("1.50"), Fraction(1, 3),
    np.int64(3), np.float64(0.1), np.bool_(True), np.str_("a"), np.arange(4).reshape(2, 2),
    np.array(["2024-01-01"], "M8[ns]"), np.array(["a", None], object),
    pd.Timestamp("2024-01-01"), pd.Timedelta("1h"), pd.Index(["a"]), pd.Series([1.5], name="x"),
    pd.DataFrame({"t": pd.to_datetime(["2024-01-01"]), "c": pd.Categorical(["a"]), "n": [None]}),
    Path("data"), uuid.UUID(int=3), Image.new("RGB", (2, 2)),
)  # fmt: skip


@pytest.mark.parametrize("value", ARGUMENTS, ids=lambda value: type(value).__name__)
def test_a_call_gets_the_result_of_its_arguments_whatever_their_type(value: Any) -> None:
    sent = decode(json.loads(json.dumps(encode(value))))
    kept = [keep_arguments([other], {}, 9_000) for other in ("another", sent)]
    call = replayed("f", [{**each, "result": n} for n, each in enumerate(kept)])
    assert call(value) == 1


def test_a_call_whose_arguments_were_not_kept_whole_gets_the_next_result() -> None:
    kept = [keep_arguments([text], {}, 500) for text in ("a", "b" * 999, "my [secret]", "c" * 999)]
    call = replayed("f", [{**each, "result": n} for n, each in enumerate(kept)])
    assert [call(text) for text in ("b" * 999, "my hunter2", "a", "c" * 999)] == [1, 2, 0, 3]


def test_a_task_that_was_not_delegated_in_the_run_gets_no_answer_of_another() -> None:
    asked = [{"args": [task], "kwargs": {}, "result": n} for n, task in enumerate(("a", "b"))]
    cut = {"args": [keep_result("c" * 999, 500)], "kwargs": {}, "result": 2}
    delegate = delegated(asked)
    with pytest.raises(RuntimeError, match="this task was not delegated in the run"):
        delegate("c")
    assert [delegate(task) for task in ("b", "a")] == [1, 0]
    assert delegated([*asked, cut])("c" * 999) == 2
