"""What the cells of a notebook that is verified find beside it, and what is told as left out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import nbformat
import pytest

from kernel_agent.session import verified_copy


def test_a_large_input_that_the_notebook_knows_is_copied_and_not_told_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_copy, "MAX_FILE_BYTES", 10)
    folder, target = tmp_path / "run", tmp_path / "copy"
    (folder / "data").mkdir(parents=True)
    known, other = b"known by its fingerprint", b"as large, and not known"
    (folder / "data" / "known.csv").write_bytes(known)
    (folder / "data" / "other.csv").write_bytes(other)
    notebook = nbformat.v4.new_notebook()
    digest = hashlib.sha256(known).hexdigest()
    notebook.metadata["kernel_agent"] = {
        "inputs": [{"path": "data/known.csv", "sha256": digest, "bytes": len(known)}]
    }
    assert verified_copy.copy_folder(notebook, folder, target) == ["data/other.csv"]
    assert (target / "data" / "known.csv").read_bytes() == known
    assert not (target / "data" / "other.csv").exists()
