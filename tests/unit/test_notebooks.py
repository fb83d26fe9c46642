"""Which kernel a notebook starts is not for a cell to say, and never changes in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.safe import Notebooks, notebooks_in, notebooks_line
from kernel_agent.safe import notebooks as module

OWN = "python-sandboxed"


def write(path: Path, kernel: str | None, **more: Any) -> None:
    metadata = {} if kernel is None else {"kernelspec": {"name": kernel}}
    path.write_text(json.dumps({"cells": [], "metadata": metadata, "nbformat": 4, **more}))


def test_the_notebooks_right_in_a_folder_are_held_and_their_checkpoints(tmp_path: Path) -> None:
    for name in ("a.ipynb", "B.IPYNB", "data.csv", "folder.ipynb/x", ".ipynb_checkpoints/a.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link.ipynb").symlink_to("a.ipynb")
    assert [p.name for p in notebooks_in(tmp_path)] == [".ipynb_checkpoints", "B.IPYNB", "a.ipynb"]
    assert notebooks_in(tmp_path / "not here") == ()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (OWN, "python3", "python3"),
        ("python3", "python3", None),
        (OWN, None, ""),
        (None, OWN, None),
        ("absent", OWN, None),
        ("absent", None, None),
        ("absent", "ir", "ir"),
        ("ir", OWN, None),
    ],
)
def test_a_notebook_that_starts_another_kernel_is_named_once(
    tmp_path: Path, before: str | None, after: str | None, named: str | None
) -> None:
    path = tmp_path / "own.ipynb"
    if before != "absent":
        write(path, before)
    watch = Notebooks(tmp_path, OWN)
    assert watch.news() == {}
    write(path, after, more=1)
    assert watch.news() == ({} if named is None else {"own.ipynb": named})
    assert watch.news() == {}


def test_one_that_cannot_be_read_any_more_is_named(tmp_path: Path) -> None:
    for name in ("broken", "deep", "large", "link", "kept"):
        write(tmp_path / f"{name}.ipynb", OWN)
    watch = Notebooks(tmp_path, OWN)
    (tmp_path / "broken.ipynb").write_bytes(b'{"metadata": \xff')
    (tmp_path / "deep.ipynb").write_text("[" * 100_000)
    (tmp_path / "large.ipynb").write_text("[" + "1," * module.MAX_BYTES)
    (tmp_path / "link.ipynb").unlink()
    (tmp_path / "link.ipynb").symlink_to("/etc/hostname")
    assert watch.news() == dict.fromkeys(
        ("broken.ipynb", "deep.ipynb", "large.ipynb"), module.UNREADABLE
    )


def test_the_line_says_what_to_do_and_shows_no_escapes() -> None:
    assert notebooks_line({}) == ""
    line = notebooks_line({"own.ipynb\x1b[2J": "python3\n", "gone.ipynb": ""})
    assert "own.ipynb (python3), gone.ipynb (none)." in line
    assert "look before you run one" in line
    assert "3 more" in notebooks_line({f"{n}.ipynb": "x" for n in range(13)})
