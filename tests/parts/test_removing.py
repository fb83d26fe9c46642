"""A folder that hostile code has filled goes, or is left and told; it never raises or hangs."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_agent.safe import walk
from kernel_agent.safe.removal import remove
from kernel_agent.safe.runtime_dir import clear

NAMES = ["a", "b\n", "\udcff\udcfe", "é" * 100, "x" * 255, "-rf", "left-1"]


def nested(top: Path, depth: int, name: str = "d") -> None:
    """Make folders in each other, deeper than any path."""
    top.mkdir(parents=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def test_folders_nested_deeper_than_any_path_go(tmp_path: Path) -> None:
    nested(tmp_path / "deep", 3000)
    assert remove(tmp_path / "deep")
    assert not any(tmp_path.iterdir())


def test_what_is_not_there_needs_no_removing_also_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove(tmp_path / "missing")
    assert remove(tmp_path / "file" / "missing")
    assert not remove(tmp_path / "file")


def test_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    nested(kept, 2)
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(kept)
    assert remove(top)
    assert (kept / "d" / "d").is_dir()
    (tmp_path / "instead").symlink_to(kept)
    assert not remove(tmp_path / "instead")
    assert (kept / "d" / "d").is_dir()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_any_tree_goes_also_closed_and_oddly_named(tmp_path: Path, seed: int) -> None:
    chance, top = random.Random(seed), tmp_path / "top"
    top.mkdir()
    folders = [top]
    for number in range(60):
        path = chance.choice(folders) / (chance.choice(NAMES)[:200] + str(number))
        match chance.randrange(4):
            case 0:
                path.write_text("x")
            case 1:
                os.mkfifo(path)
            case _ if len(os.fsencode(path)) < 3000:
                path.mkdir()
                folders.append(path)
    for folder in reversed(folders):
        folder.chmod(chance.choice([0o000, 0o500, 0o300, 0o700]))
    assert remove(top)
    assert not os.path.lexists(top)


def test_it_ends_while_somebody_goes_on_making_folders(tmp_path: Path) -> None:
    top, stop = tmp_path / "top", threading.Event()
    top.mkdir()

    def make() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):  # gone, and back for another round
                top.mkdir(exist_ok=True)
                (top / str(random.random())).mkdir()

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(5):
            remove(top, seconds=0.1)  # it returns, and raises nothing: something may be left
    finally:
        stop.set()
        thread.join()


def test_what_is_left_when_time_is_over_goes_the_next_time(tmp_path: Path) -> None:
    nested(tmp_path / "deep", 50)
    assert not remove(tmp_path / "deep", seconds=0)
    assert remove(tmp_path / "deep")


def test_the_last_file_stays_until_nothing_else_does(tmp_path: Path) -> None:
    nested(tmp_path / "deep", 5)
    (tmp_path / "deep" / "undo.json").write_text("{}")
    assert not remove(tmp_path / "deep", seconds=0, last="undo.json")
    assert (tmp_path / "deep" / "undo.json").exists()
    assert remove(tmp_path / "deep", last="undo.json")


def test_what_cannot_be_removed_is_told_and_nothing_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It lies in a private directory then, which a later reaper removes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "t").mkdir()
    nested(tmp_path / "deep", 3)
    monkeypatch.setattr("kernel_agent.safe.runtime_dir.remove", lambda *_, **__: False)
    clear(tmp_path / "deep")
    (private,) = (tmp_path / "t").glob("ka-*")
    assert (private / "left" / "d" / "d" / "d").is_dir()
    assert str(private) in caplog.text


def test_a_walk_sees_everything_however_deep(tmp_path: Path) -> None:
    nested(tmp_path / "deep", 2000)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "file").write_text("x")
    (tmp_path / "link").symlink_to("/")
    top = os.open(tmp_path, os.O_RDONLY)
    names = [entry.name for _, entry in walk.entries(top)]
    os.close(top)
    assert remove(tmp_path / "deep")  # pytest could not
    assert names.count("d") == 2000
    assert {"deep", "beside", "file", "link"} == set(names) - {"d"}


def test_a_walk_goes_on_where_folders_are_moved_about(tmp_path: Path) -> None:
    for name in ("a", "b"):
        nested(tmp_path / name, 3)
        (tmp_path / name / "d" / "file").write_text("x")
    top = os.open(tmp_path, os.O_RDONLY)
    seen = []
    for _, entry in walk.entries(top):
        seen.append(entry.name)
        if len(seen) == 5:  # within the first of them
            for name in ("a", "b"):
                inner = tmp_path / name / "d" / "d"
                if inner.exists():
                    inner.rename(tmp_path / f"moved-{name}")
    os.close(top)
    assert {"a", "b", "d"} <= set(seen)
