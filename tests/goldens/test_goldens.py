"""All that is seen from outside is as it was recorded; what is not recorded holds everywhere."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from goldens.record import RECORDED, record
from goldens.versions import NEEDED
from kernel_agent.records import to_json
from kernel_agent.records.codec import from_json


def files(folder: Path) -> dict[str, str]:
    """Return the texts below a folder by their names."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="surrogatepass")
        for path in sorted(folder.rglob("*.txt"))
    }


def same(before: dict[str, str], after: dict[str, str]) -> None:
    """Fail with the first differences."""
    assert set(before) == set(after)
    differing = [_difference(n, before[n], after[n]) for n in before if before[n] != after[n]]
    told = "\n\n".join(differing[:8])
    assert not differing, f"{len(differing)} files differ (make goldens):\n\n{told}"


def _difference(name: str, before: str, after: str) -> str:
    """Return the first lines of a difference; a long line is cut around what differs."""
    shown = []
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), "recorded", "now", n=1, lineterm=""
    ):
        shown.append(line if len(line) < 400 else f"{line[:200]} … {line[-200:]}")
        if len(shown) == 40:
            break
    return f"{name}\n" + "\n".join(shown)


@pytest.mark.parametrize("part", ["commands", "surface"])
def test_what_is_seen_from_outside_is_as_it_was_recorded(part: str, tmp_path: Path) -> None:
    """``make goldens`` writes the recordings anew."""
    record(part, tmp_path)
    same(files(RECORDED / part), files(tmp_path / part))


def test_sessions_are_as_they_were_recorded_and_hold_what_all_hold(tmp_path: Path) -> None:
    """They are played once: what the recordings leave out is looked at in what they left."""
    left = tmp_path / "left"
    record("sessions", tmp_path / "now", left=left)
    same(files(RECORDED / "sessions"), files(tmp_path / "now" / "sessions"))
    traces, books = sorted(left.rglob("trace.jsonl")), sorted(left.glob("*/run.ipynb"))
    assert len(traces) > len(books) > 20
    for path in traces:
        records_come_back_as_they_were_written(path.read_text(encoding="utf-8").splitlines())
    for path in books:
        cells_are_named_by_what_they_are(json.loads(path.read_text(encoding="utf-8")))


def records_come_back_as_they_were_written(lines: Iterable[str]) -> None:
    for line in lines:
        written = json.loads(line)
        assert line == json.dumps(written, ensure_ascii=False)
        assert {"v": written["v"], **to_json(from_json(written))} == written
        if "versions" in written:
            assert {"python", "kernel-agent", "ipykernel"} <= set(written["versions"])


def cells_are_named_by_what_they_are(book: dict[str, Any]) -> None:
    """Their ids, the texts that are watched for changes, and the versions beside them."""
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in book["cells"]:
        about = cell["metadata"]["kernel_agent"]
        run = f"run-{about['run']}-" if "run" in about else ""
        step = f"step-{about['step']:02}-" if "step" in about else ""
        assert f"{cell['id']}-".startswith(run + step)
    about = book["metadata"]["kernel_agent"]
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digest in about["texts"].values())
    assert set(about["versions"]) >= {"python", "kernel-agent", "ipykernel"} & set(NEEDED)
