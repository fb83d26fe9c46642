"""Whole commands end as they should, however deep the folders that their cells made."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks.host import folders

GOOD = "it ended as it should"


@pytest.mark.parametrize(
    "attack",
    [
        folders.folders_beside_the_sockets,
        pytest.param(folders.folders_while_verified, marks=pytest.mark.long),
    ],
)
async def test_a_command_answers_and_leaves_nothing(
    attack: folders.Meeting, tmp_path: Path
) -> None:
    assert await attack(tmp_path) == GOOD
