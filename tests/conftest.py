"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import kernel_agent.notebook.library  # noqa: F401 - before others import what takes it seconds

# No test judges by the clock: how long an example takes depends on what else the machine does.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# ``--hypothesis-profile quick``: a first look, for `make unit` and `make test`.
settings.register_profile("quick", settings.get_profile("project"), max_examples=10, database=None)
settings.load_profile("project")

# An endpoint that a test scripts request by request is not asked which format it likes; tests of
# that ask for `auto` themselves.
os.environ["KERNEL_AGENT_FORMAT"] = "fenced"

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do without the collection of garbage while tests are collected, and then keep them out of it.

    The first takes a third off the time of a collection, the second an eighth off that of tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, count[int]]:
    return tmp_path_factory.mktemp("homes"), count()


@pytest.fixture(autouse=True)
def _cache_of_its_own(_homes: tuple[Path, count[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is remembered between sessions out of the user's own folders.

    The folders are made by who needs them: two for each of 4,000 tests cost 10 seconds.
    """
    folder, numbers = _homes
    home = folder / str(next(numbers))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
