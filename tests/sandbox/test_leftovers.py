"""What is left when host and reaper were killed goes with the next one, and nothing else does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.levels import need

from kernel_agent.safe import marks
from kernel_agent.safe.runtime_dir import private_directory
from kernel_agent.sandbox.launcher import reaper

HOST = """
import asyncio, pathlib, sys
from kernel_agent.kernel.process import KernelSession
from kernel_agent.sandbox.reaper_client import reaper_client

async def main():
    folder, level = sys.argv[1:]
    async with KernelSession(cwd=pathlib.Path(folder), sandbox=level) as kernel:
        print(reaper_client._process.pid, kernel._directory, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
GONE_S = 60.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = tmp_path / "t"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield made
    monkeypatch.undo()


class Host:
    """A process with a session."""

    def __init__(self, folder: Path, level: str) -> None:
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(folder), level],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        pid, directory = self.process.stdout.readline().split()
        self.reaper, self.directory = int(pid), Path(directory)

    def kill(self) -> None:
        """End its reaper first, then itself: nobody cleans up."""
        os.kill(self.reaper, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate("")


@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "landlock"])
def test_a_killed_sessions_folder_goes_and_a_living_ones_stays(
    tmp_path: Path, temporary: Path, level: str
) -> None:
    need(level)
    living = Host(tmp_path / "living", level)
    killed = Host(tmp_path / "killed", level)
    try:
        assert killed.directory.stat().st_mode & 0o7777 == 0o1700  # as jupyter_client leaves it
        killed.kill()
        assert killed.directory.is_dir()
        later = Host(tmp_path / "later", level)
        deadline = time.monotonic() + GONE_S
        while killed.directory.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        later.end()
        assert not killed.directory.exists()
        assert living.directory.is_dir()
    finally:
        living.end()
    assert not any(temporary.glob("ka-*"))


WORKING = """
import sys
from kernel_agent.safe import temporary_folder

with temporary_folder("verified") as made:
    (made / "sales.csv").write_text("a,b")
    print(made, flush=True)
    sys.stdin.read()
"""


def test_copies_of_a_process_that_was_killed_go_and_those_of_a_living_one_stay(
    temporary: Path,
) -> None:
    """``verify``, ``data`` and ``doctor`` work on such."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WORKING], **pipes) as working:
        assert working.stdout is not None
        copy = Path(working.stdout.readline().strip(), "sales.csv")
        reaper.sweep(str(temporary), time.monotonic() + GONE_S)
        assert copy.exists()
        working.kill()
    assert copy.exists()
    reaper.sweep(str(temporary), time.monotonic() + GONE_S)
    assert list(temporary.iterdir()) == []


def planted(folder: Path, name: str, **told: object) -> Path:
    """Make a folder as a session's, whose host is long gone."""
    made = folder / name
    made.mkdir(mode=0o700)
    record = {"host": [2**22, "1"], "where": marks.here(), "undo": [], **told}
    (made / marks.RECORD).write_text(json.dumps(record))
    return made


def test_only_what_is_ours_is_swept(tmp_path: Path) -> None:
    machine, start, namespace = marks.here()
    gone = planted(tmp_path, "ka-1-abcdefgh")
    sticky = planted(tmp_path, "ka-2-abcdefgh")
    sticky.chmod(0o1700)
    anew = planted(tmp_path, "ka-3-abcdefgh", where=[machine, "another", "pid:[1]"])
    open_to_others = planted(tmp_path, "ka-4-abcdefgh")
    open_to_others.chmod(0o755)
    kept = [
        open_to_others,
        planted(tmp_path, "ka-5-abcdefgh", where=[machine, start, "pid:[1]"]),
        planted(tmp_path, "ka-6-abcdefgh", where=["another", "another", namespace]),
        planted(tmp_path, "ka-7-abcdefgh", host=[os.getpid(), marks.born(os.getpid())]),
        planted(tmp_path, "ka-8-abcdefgh", host="none"),
        planted(tmp_path, "another-abcdefgh"),
    ]
    mine = tmp_path / "ka-4194303-mydata12"
    mine.mkdir(mode=0o700)
    (mine / "work.txt").write_text("a person's")
    os.utime(mine, (0, 0))
    target = planted(tmp_path, "target")
    (tmp_path / "ka-9-abcdefgh").symlink_to(target)
    reaper.sweep(str(tmp_path), time.monotonic() + 60)
    assert not any(path.exists() for path in (gone, sticky, anew))
    assert all(path.is_dir() for path in (*kept, mine, target))
    assert (mine / "work.txt").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder can be made by root only")
def test_another_users_folder_is_never_believed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    theirs = planted(tmp_path, "ka-1-abcdefgh", undo=[["unset-ids", str(victim)]])
    os.chown(theirs, 61184, 61184)
    reaper.sweep(str(tmp_path), time.monotonic() + 60)
    assert theirs.is_dir()


def test_one_whose_host_was_killed_at_once_goes_when_it_is_old_and_empty(tmp_path: Path) -> None:
    empty, young = tmp_path / "ka-4194303-abcdefgh", tmp_path / "ka-4194303-young678"
    for path in (empty, young):
        path.mkdir(mode=0o700)
    os.utime(empty, (0, 0))
    reaper.sweep(str(tmp_path), time.monotonic() + 60)
    assert not empty.exists()
    assert young.exists()


def test_a_record_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    made = tmp_path / "ka-1-abcdefgh"
    made.mkdir(mode=0o700)
    os.mkfifo(made / marks.RECORD)
    reaper.sweep(str(tmp_path), time.monotonic() + 60)
    assert made.is_dir()


def test_a_private_directory_tells_whose_it_is_from_the_start(temporary: Path) -> None:
    made = private_directory()
    told = json.loads((made / marks.RECORD).read_text())
    assert told["host"] == [os.getpid(), marks.born(os.getpid())]
    assert not marks.is_left(str(made))
