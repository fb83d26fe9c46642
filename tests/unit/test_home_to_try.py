"""Which home the self-test tries to write in, and where that would say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.sandbox.selftest import home_to_try


@pytest.mark.parametrize(
    ("home", "own_memory", "is_tried"),
    [
        ("/home/user", True, True),
        ("/home/user", False, True),
        ("/tmp", True, False),
        ("/tmp", False, False),
        ("/tmp/user", True, False),
        ("/dev/shm/a/b", True, False),
        ("/tmp/user", False, True),
        ("/tmpfs/user", True, True),
    ],
)
def test_a_home_in_memory_is_not_tried_where_the_level_has_memory_of_its_own(
    home: str, own_memory: bool, is_tried: bool
) -> None:
    """A folder of the kernel's beneath it makes its name appear there, for cells to write in."""
    assert home_to_try(Path(home), own_memory=own_memory) == ([home] if is_tried else [])
