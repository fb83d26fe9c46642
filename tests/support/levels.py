"""What a test of a sandbox level begins with."""

from __future__ import annotations

import os

import pytest

from kernel_agent.sandbox.chooser import probe


def need(level: str) -> None:
    """Skip where the level does not work; fail where KERNEL_AGENT_REQUIRE_LEVELS names it."""
    tried = probe(level)
    if tried.works:
        return
    if level in os.environ.get("KERNEL_AGENT_REQUIRE_LEVELS", "").split(","):
        pytest.fail(f"{level} must work here: {tried.reason}. {tried.advice}")
    pytest.skip(f"{level}: {tried.reason}")
