"""What is added to an error of pandas' that names no column."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pandas as pd
import pytest

from kernel_agent.inkernel.hints import LISTED_CHARS, explain

TABLE = pd.DataFrame({"wait ": [1, 2], "Body mass": [3, 4], "island\xa0": [5, 6], 7: [7, 8]})


def noted(fail: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever pandas raises
        fail()
    explain(caught.value)
    explain(caught.value)
    return "\n".join(getattr(caught.value, "__notes__", []))


ALL = r"The columns are: 'wait ', Body mass, 'island\xa0', 7"


@pytest.mark.parametrize(
    "fail",
    [
        lambda: TABLE["wait"],
        lambda: TABLE[["wait", "Body mass"]],
        lambda: TABLE.loc[:, "wait"],
        lambda: TABLE.groupby("wait"),
        lambda: TABLE.sort_values("wait"),
        lambda: TABLE.drop(columns="wait"),
        lambda: TABLE.set_index("wait"),
        lambda: TABLE.merge(TABLE, on="wait"),
        lambda: TABLE.pivot_table(index="wait"),
    ],
)
def test_a_column_that_is_not_there_is_told_the_nearest_and_all(fail: Callable[[], Any]) -> None:
    assert noted(fail) == f"Nearest: 'wait '. {ALL}"


def test_names_are_near_whatever_their_case_and_underscores() -> None:
    assert noted(lambda: TABLE["body_mass"]).startswith("Nearest: Body mass. ")
    assert noted(lambda: TABLE["quite another"]) == ALL


def test_a_row_that_is_not_there_is_told_the_labels() -> None:
    rows = TABLE.set_index("Body mass")
    assert noted(lambda: rows.loc[5]) == "The labels are: 3, 4"
    series = pd.Series([1], index=["north"])
    assert noted(lambda: series["nord"]) == "Nearest: north. The labels are: north"


def test_many_columns_are_counted() -> None:
    wide = pd.DataFrame([range(9000)], columns=[f"column {n}" for n in range(9000)])
    told = noted(lambda: wide["colum 17"])
    assert told.startswith("Nearest: column 17, ")
    listed, _, more = told.partition("are: ")[2].rpartition(", and ")
    assert more == f"{9000 - len(listed.split(', ')):,} more"
    assert len(told) < LISTED_CHARS + 200


@pytest.mark.parametrize(
    "fail", [lambda: {"a": 1}["b"], lambda: TABLE.iloc[9], lambda: TABLE.nothing]
)
def test_other_errors_are_left_alone(fail: Callable[[], Any]) -> None:
    assert noted(fail) == ""


def test_a_package_that_is_missing_names_those_that_are_there() -> None:
    told = noted(lambda: import_module("no_such_package"))
    assert told.startswith("Packages for data that are installed: numpy, pandas")
    assert "no_such_package" not in told
