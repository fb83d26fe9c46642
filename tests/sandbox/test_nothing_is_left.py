"""Sessions that are killed at random moments leave nothing; the script beside this does more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import examples
from support.levels import need

SCRIPT = Path(__file__).with_name("nothing_is_left.py")


@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "landlock"])
def test_killed_sessions_leave_nothing(level: str) -> None:
    """A few here; ``python tests/sandbox/nothing_is_left.py LEVEL 100`` for the whole promise."""
    need(level)
    many = str(examples(9, least=4))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), level, many], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
