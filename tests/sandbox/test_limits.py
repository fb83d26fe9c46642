"""What a kernel may use: each limit is reached for real, and the ending says which it was."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from support.levels import need

from kernel_agent.errors import KernelStartError, SandboxError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.sandbox.disk import Disk

LEVELS = ("bubblewrap", "namespaces", "landlock")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


async def test_a_full_disk_ends_the_kernel_and_says_so(tmp_path: Path, level: str) -> None:
    """Many files, each of them small enough for the limit of one file."""
    code = (
        "import time\nfor n in range(6):\n    open(f'{n}.bin', 'wb').write(bytes(10_000_000))\n"
        "time.sleep(30)"
    )
    limits = {"disk_mb": 40, "file_mb": 20}
    async with KernelSession(cwd=tmp_path, sandbox=level, access=Access(limits=limits)) as kernel:
        result = await kernel.execute(code)
    assert result.status == "dead"
    assert result.error is not None
    assert "disk limit of 40 MB exceeded" in result.error.evalue


HELD = {
    "removed": "f = os.open(f'{n}', os.O_CREAT | os.O_WRONLY); os.unlink(f'{n}'); fill(f)",
    "without a name": "fill(os.open('.', os.O_TMPFILE | os.O_RDWR))",
    "mapped": (
        "f = os.open('.', os.O_TMPFILE | os.O_RDWR); fill(f); "
        "kept.append(mmap.mmap(f, 4096)); os.close(f)"
    ),
    "closed": (
        "os.makedirs('c', exist_ok=True); os.chmod('c', 0o700); "
        "fill(os.open(f'c/{n}', os.O_CREAT | os.O_WRONLY)); os.chmod('c', 0)"
    ),
    "deep": (
        "at = os.open('.', os.O_RDONLY)\n"
        "    for _ in range(30):\n"
        "        os.mkdir('d' * 200 + str(n), dir_fd=at)\n"
        "        at = os.open('d' * 200 + str(n), os.O_RDONLY, dir_fd=at)\n"
        "    fill(os.open('f', os.O_CREAT | os.O_WRONLY, dir_fd=at))"
    ),
    "the log": (
        "[fill(d) for d in range(3, 40) if os.path.exists(f'/proc/self/fd/{d}') "
        "and os.readlink(f'/proc/self/fd/{d}').endswith('/log')][:1]\n"
        "    fill(os.open('beside', os.O_CREAT | os.O_WRONLY))"  # one file may not pass the limit
    ),
    "in a thread of its own": (
        "if n == 0 and os.fork() == 0:\n"
        "        import ctypes, threading\n"
        "        def work():\n"
        "            for _ in range(6): fill(os.open('.', os.O_TMPFILE | os.O_RDWR))\n"
        "            time.sleep(40)\n"
        "        threading.Thread(target=work).start()\n"
        "        ctypes.CDLL(None).syscall(60, 0)"
    ),
}


@pytest.mark.parametrize("how", HELD)
async def test_the_disk_is_counted_by_use_and_not_by_name(
    tmp_path: Path, level: str, how: str
) -> None:
    if how == "in a thread of its own" and platform.machine() != "x86_64":
        pytest.skip("the number of exit(2) is written for x86-64")
    code = (
        "import contextlib, mmap, os, time\nkept = []\ndef fill(f):\n"
        "    with contextlib.suppress(OSError):\n"
        "        for _ in range(10): os.write(f, bytes(1_000_000))\n"
        f"for n in range(6):\n    {HELD[how]}\ntime.sleep(40)"
    )
    limits = {"disk_mb": 40, "open_files": 512}
    async with KernelSession(cwd=tmp_path, sandbox=level, access=Access(limits=limits)) as kernel:
        result = await kernel.execute(code)
    assert result.status == "dead"
    assert result.error is not None
    assert "disk limit of 40 MB exceeded" in result.error.evalue


async def test_a_folder_that_was_closed_before_stays_closed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_bytes(bytes(1000))
    (tmp_path / "theirs").chmod(0)
    disk = Disk([tmp_path])
    disk.look()
    disk.look()
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0


def test_what_is_known_by_two_names_counts_once_and_holes_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3_000_000))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    used = Disk([tmp_path]).look()
    assert used.files == 3
    assert 2.5 < used.megabytes < 4


async def test_a_file_cannot_be_larger_than_its_limit(tmp_path: Path, level: str) -> None:
    async with KernelSession(
        cwd=tmp_path, sandbox=level, access=Access(limits={"file_mb": 5})
    ) as kernel:
        result = await kernel.execute("open('large', 'wb').write(bytes(6_000_000))")
        assert result.error is not None
        assert result.error.ename == "OSError"
        assert (await kernel.execute("1")).ok
    assert (tmp_path / "large").stat().st_size <= 5 * 1024 * 1024


async def test_memory_is_limited(tmp_path: Path, level: str) -> None:
    async with KernelSession(
        cwd=tmp_path, sandbox=level, access=Access(limits={"memory_mb": 1500})
    ) as kernel:
        result = await kernel.execute("x = bytearray(2_000_000_000)")
        assert result.error is not None
        assert result.error.ename in ("MemoryError", "KernelDied")


async def test_processes_are_limited(tmp_path: Path, level: str) -> None:
    code = (
        "import os, time\nmade = 0\ntry:\n    for _ in range(200):\n"
        "        if os.fork() == 0:\n            time.sleep(20); os._exit(0)\n        made += 1\n"
        "except OSError:\n    pass\nmade < 100"
    )
    async with KernelSession(
        cwd=tmp_path, sandbox=level, access=Access(limits={"processes": 60})
    ) as kernel:
        result = await kernel.execute(code)
        assert [o["data"]["text/plain"] for o in result.outputs if "data" in o] == ["True"]


async def test_the_watched_descriptors_of_a_user_are_not_used_up(
    tmp_path: Path, level: str
) -> None:
    """Linux counts them for all programs of the user: without any, no event loop starts."""
    code = (
        "import os, select, time\nfor _ in range(10):\n    if os.fork() == 0:\n"
        "        events = [os.eventfd(0) for _ in range(340)]\n        epolls = []\n"
        "        for _ in range(340):\n            epolls.append(select.epoll())\n"
        "            for event in events:\n                epolls[-1].register(event)\n"
        "        time.sleep(60)\ntime.sleep(60)"
    )
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        result = await kernel.execute(code)
    assert result.error is not None
    assert "watched descriptors exceeded" in result.error.evalue


async def test_what_waits_in_sockets_leaves_the_user_descriptors_to_send(
    tmp_path: Path, level: str
) -> None:
    """Counted for the user, too: with 1,024 of them, programs that may open as many send none."""
    code = (
        "import socket\nends, sent = [], 0\ntry:\n    while True:\n"
        "        ends.append(socket.socketpair())\n        for _ in range(50):\n"
        "            socket.send_fds(ends[-1][0], [b'x'], [0] * 250)\n            sent += 250\n"
        "except OSError:\n    pass\n0 < sent < 1024 + 1"
    )
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        result = await kernel.execute(code)
        assert [o["data"]["text/plain"] for o in result.outputs if "data" in o] == ["True"]


async def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="at least 1"):
        await KernelSession(cwd=tmp_path, access=Access(limits={"disk_mb": -1})).start()


@pytest.mark.parametrize("folder", ["/", "/tmp", "/usr", "/etc/ssl", "~", "/home"])
async def test_no_kernel_gets_a_directory_of_the_system_or_a_home(folder: str) -> None:
    with pytest.raises((SandboxError, KernelStartError), match="folder of its own"):
        await KernelSession(cwd=Path(folder).expanduser()).start()
