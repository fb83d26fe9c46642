"""A sandbox level that must work is not passed over where it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.levels import need

TESTS = Path(__file__).parents[1]
BOUNDARY = [*TESTS.glob("sandbox/test_*.py"), *TESTS.glob("attacks/test_*.py")]


def test_a_level_that_does_not_work_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KERNEL_AGENT_REQUIRE_LEVELS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^remote:missing: there is no"):
        need("remote:missing")


def test_a_level_that_must_work_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_AGENT_REQUIRE_LEVELS", "bubblewrap,remote:missing")
    with pytest.raises(pytest.fail.Exception, match="must work here: there is no kernelspec"):
        need("remote:missing")


def test_no_test_passes_over_a_level_in_its_own_way() -> None:
    assert len(BOUNDARY) > 15
    own = [path.name for path in BOUNDARY if re.search(r"skip\(.*(probe|tried)", path.read_text())]
    assert own == []
