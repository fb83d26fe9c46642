"""What processes hold of memory, measured on real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from kernel_agent.sandbox.disk import Disk, Used
from kernel_agent.sandbox.grants import read_grant
from kernel_agent.sandbox.levels import Grant, Limits
from kernel_agent.sandbox.memory import exact_memory_mb, large, memory_mb, processes, stopped
from kernel_agent.sandbox.watchdog import Watchdog

Start = Callable[[str], int]


def limited(folder: Path, **limits: int) -> Grant:
    """Return a grant of one folder for everything."""
    return Grant(
        python=folder, code=folder, workspace=folder, sockets=folder, scratch=folder,
        limits=Limits(**limits),
    )  # fmt: skip


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program and wait until it has said something."""
    started = []

    def begin(code: str) -> int:
        program = f"import mmap, os, sys, time\n{code}\nprint('ready', flush=True)\ntime.sleep(60)"
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield begin
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_memory_of_children_counts(start: Start) -> None:
    alone = memory_mb(start("x = bytearray(b'x' * (30 << 20))"))
    parent = start("x = bytearray(b'x' * (30 << 20))\nif os.fork() == 0:\n    y = bytes(30 << 20)")
    assert alone > 30
    assert memory_mb(parent) > alone + 20


def test_a_file_in_memory_that_is_not_mapped_counts(start: Start) -> None:
    pid = start("f = os.memfd_create('m')\nos.write(f, bytes(40 << 20))")
    assert memory_mb(pid) > 40
    assert exact_memory_mb(pid) > 40


def test_shared_memory_counts_once_when_it_matters(start: Start) -> None:
    pid = start(
        "m = mmap.mmap(-1, 40 << 20)\nm.write(bytes(40 << 20))\nr, w = os.pipe()\n"
        "if os.fork() == 0:\n    bytes(m); os.write(w, b'x'); time.sleep(60)\nos.read(r, 1)"
    )
    assert memory_mb(pid) > 80
    assert 40 < exact_memory_mb(pid) < 75


def test_memory_that_a_fork_shares_counts_once_when_it_matters(start: Start) -> None:
    """A pool of workers that read the same table has it once."""
    pid = start(
        "x = bytearray(b'x' * (60 << 20))\nfor _ in range(3):\n"
        "    if os.fork() == 0:\n        time.sleep(60)"
    )
    assert memory_mb(pid) > 240
    assert 60 < exact_memory_mb(pid) < 120


def test_processes_that_are_stopped_for_a_look_go_on_afterwards(start: Start) -> None:
    pid = start("if os.fork() == 0:\n    while True:\n        pass")
    pids = [each for each, _ in processes(pid)]

    def states() -> set[str]:
        told = (Path(f"/proc/{pid}/stat").read_text() for pid in pids)
        return {text.rpartition(")")[2].split()[0] for text in told}

    with stopped(pids):
        wait_until(lambda: states() == {"T"})
    wait_until(lambda: "T" not in states())


@pytest.mark.parametrize(
    "fill", ["open(f'{sys.argv[0]}/f', 'wb').write(bytes(40 << 20))",
             "[os.mknod(f'{sys.argv[0]}/{n}') for n in range(30_000)]"],
    ids=["content", "empty files"],
)  # fmt: skip
def test_a_file_system_in_memory_counts_with_its_empty_files(
    fill: str, start: Start, tmp_path: Path
) -> None:
    pid = start(
        f"import ctypes\nsys.argv = [{str(tmp_path)!r}]\n"
        "libc, uid, gid = ctypes.CDLL(None), os.getuid(), os.getgid()\n"
        "if libc.unshare(0x10020000) == 0:\n"
        "    open('/proc/self/setgroups', 'w').write('deny')\n"
        "    open('/proc/self/uid_map', 'w').write(f'0 {uid} 1')\n"
        "    open('/proc/self/gid_map', 'w').write(f'0 {gid} 1')\n"
        "    if libc.mount(b'none', os.fsencode(sys.argv[0]), b'tmpfs', 0, None) == 0:\n"
        f"        {fill}"
    )
    if Path(f"/proc/{pid}/root{tmp_path}").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no file system can be mounted here")
    assert memory_mb(pid, [str(tmp_path)]) - memory_mb(pid) > 38


def test_those_that_hold_most_are_named_but_not_the_first(start: Start) -> None:
    pid = start(
        "r, w = os.pipe()\nif os.fork() == 0:\n    x = bytearray(b'x' * (60 << 20))\n"
        "    os.write(w, b'x'); time.sleep(60)\nos.read(r, 1)"
    )
    assert len(large(pid)) == 1
    assert pid not in large(pid)


def test_of_many_processes_with_little_each_those_are_named_that_hold_most(start: Start) -> None:
    pid = start(
        "r, w = os.pipe()\nfor _ in range(20):\n    if os.fork() == 0:\n"
        "        x = bytearray(b'x' * (8 << 20)); os.write(w, b'x'); time.sleep(60)\n"
        "for _ in range(20): os.read(r, 1)"
    )
    assert len(large(pid)) in (18, 19)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_with_files_of_others_is_not_given_to_a_kernel(tmp_path: Path) -> None:
    """Who they belonged to could not be told afterwards."""
    run = tmp_path / "out"
    (run / "deep").mkdir(parents=True)
    (run / "deep" / "mine.csv").touch()
    granted = [read_grant({"workspace": str(run)}, [sys.executable], tmp_path).own]
    os.chown(run / "deep" / "mine.csv", 1234, -1)
    granted += [read_grant({"workspace": str(run)}, [sys.executable], tmp_path).own]
    assert granted == [True, False]


async def test_too_much_memory_ends_those_that_hold_it(tmp_path: Path, start: Start) -> None:
    pid = start(
        "for _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(b'x' * (40 << 20))\n"
        "        time.sleep(60)"
    )
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def exceeded(reason: str) -> None:
        told.set_result(reason)

    watchdog = Watchdog(limited(tmp_path, memory_mb=100))
    watchdog.start(pid, exceeded, kill=lambda: None)
    assert "memory limit of 100 MB" in await asyncio.wait_for(told, 20)
    watchdog.stop()
    deadline = time.monotonic() + 10
    while memory_mb(pid) > 100 and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert memory_mb(pid) < 100


def test_a_full_folder_ends_a_kernel_whose_application_does_not_run_its_loop(
    tmp_path: Path,
) -> None:
    ended = threading.Event()

    async def exceeded(_reason: str) -> None:
        raise AssertionError("the loop does not run")

    async def start() -> None:
        watchdog.start(os.getpid(), exceeded, kill=ended.set)

    watchdog = Watchdog(limited(tmp_path, disk_mb=1))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())
    for n in range(40):  # what lies there at the start does not count
        (tmp_path / f"big{n}").write_bytes(bytes(4 << 20))
        if ended.wait(0.5):
            break
    assert ended.is_set()
    watchdog.stop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


class FillingDisk:
    """A disk that fills by 10 MB a second, of which a look costs three tenths of a second."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.looks: list[tuple[float, float]] = []  # begin and end

    def lost_mb(self) -> float:
        return 10 * (time.monotonic() - self.began)

    def free_mb(self) -> float:
        return 1000 - self.lost_mb()

    def look(self, enough_mb: float = 0) -> Used:
        began, spent = time.monotonic(), time.thread_time()
        while time.thread_time() - spent < 0.3:
            pass
        self.looks.append((began, time.monotonic()))
        return Used(megabytes=self.lost_mb(), files=1)


def test_a_costly_look_is_made_sooner_while_the_disk_fills(tmp_path: Path) -> None:
    """At a fifth of a processor there would be 1.5 seconds from one to the next."""
    disk, told = FillingDisk(), []
    Watchdog(limited(tmp_path, disk_mb=3))._watch_disk(disk, told.append)  # type: ignore[arg-type]
    assert told == ["disk limit of 3 MB exceeded"]
    assert disk.looks[1][0] - disk.looks[0][1] < 1.2


def test_a_look_at_the_disk_ends_when_it_has_seen_enough(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"{n}").write_bytes(bytes(1 << 20))
    used = Disk([tmp_path]).look(enough_mb=5)
    assert used.megabytes > 5
    assert used.files < 10
