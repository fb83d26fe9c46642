"""The page is what the recorded results give, and meets the requirement."""

from __future__ import annotations

import copy
import json

import pytest

from attacks.collect import with_controls
from attacks.table import PAGE, RESULTS, page
from attacks.words import BOUNDARY, load


@pytest.fixture(scope="module")
def told() -> dict[str, object]:
    return json.loads(RESULTS.read_text())


def test_the_page_is_what_the_results_give(told: dict[str, object]) -> None:
    assert page(told) == PAGE.read_text(), "run python -m attacks.table"


def test_the_results_are_of_the_attacks_in_the_catalogue(told: dict[str, object]) -> None:
    assert [a["name"] for a in told["attacks"]] == list(load()), "run make attacks"


@pytest.mark.parametrize("user", ["user", "root"])
def test_no_attack_on_the_boundary_passes_bubblewrap(told: dict[str, object], user: str) -> None:
    part = next(p for p in told["played"] if p["level"] == "bubblewrap" and p["user"] == user)
    assert part["started"]
    category = {a["name"]: a["category"] for a in told["attacks"]}
    passed = [
        r["attack"]
        for r in part["results"]
        if r["verdict"] == "not stopped" and category[r["attack"]] in BOUNDARY
    ]
    assert passed == []


def test_an_attack_whose_control_fails_counts_as_not_run() -> None:
    control = {"level": "none", "started": True, "results": []}
    level = {"level": "bubblewrap", "started": True, "results": []}
    for part in (control, level):
        part["results"] = [{"attack": "key_in_home", "verdict": "stopped", "seen": ""}]
    played = with_controls([copy.deepcopy(control), copy.deepcopy(level)])
    assert played[1]["results"][0]["verdict"] == "not run"
    control["results"][0]["verdict"] = "not stopped"
    played = with_controls([control, level])
    assert played[1]["results"][0]["verdict"] == "stopped"
