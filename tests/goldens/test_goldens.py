"""All that is seen from outside is as it was recorded, byte for byte."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from goldens.record import PARTS, RECORDED, record


def files(folder: Path) -> dict[str, str]:
    """Return the texts below a folder by their names."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="surrogatepass")
        for path in sorted(folder.rglob("*.txt"))
    }


def difference(name: str, before: str, after: str) -> str:
    """Return the first lines of a difference; a long line is cut around what differs."""
    shown = []
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), "recorded", "now", n=1, lineterm=""
    ):
        shown.append(line if len(line) < 400 else f"{line[:200]} … {line[-200:]}")
        if len(shown) == 40:
            break
    return f"{name}\n" + "\n".join(shown)


@pytest.mark.parametrize("part", PARTS)
def test_what_is_seen_from_outside_is_as_it_was_recorded(part: str, tmp_path: Path) -> None:
    """``python tests/goldens/record.py`` writes the recordings anew."""
    record(part, tmp_path)
    before, after = files(RECORDED / part), files(tmp_path / part)
    assert set(before) == set(after)
    differing = [difference(n, before[n], after[n]) for n in before if before[n] != after[n]]
    assert not differing, f"{len(differing)} files differ:\n\n" + "\n\n".join(differing[:8])
