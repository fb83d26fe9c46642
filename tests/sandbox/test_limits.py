"""What a kernel may use: each limit is reached for real, and the ending says which it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.errors import KernelStartError, SandboxError
from kernel_agent.kernel.session import KernelSession
from kernel_agent.sandbox.choose import probe

LEVELS = ("bubblewrap", "namespaces", "landlock")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    if not probe(request.param).works:
        pytest.skip(probe(request.param).reason)
    return str(request.param)


async def test_a_full_disk_ends_the_kernel_and_says_so(tmp_path: Path, level: str) -> None:
    """Many files, each of them small enough for the limit of one file."""
    code = (
        "import time\nfor n in range(6):\n    open(f'{n}.bin', 'wb').write(bytes(10_000_000))\n"
        "time.sleep(30)"
    )
    limits = {"disk_mb": 40, "file_mb": 20}
    async with KernelSession(cwd=tmp_path, sandbox=level, limits=limits) as kernel:
        result = await kernel.execute(code)
    assert result.status == "dead"
    assert result.error is not None
    assert "disk limit of 40 MB exceeded" in result.error.evalue


async def test_a_file_cannot_be_larger_than_its_limit(tmp_path: Path, level: str) -> None:
    async with KernelSession(cwd=tmp_path, sandbox=level, limits={"file_mb": 5}) as kernel:
        result = await kernel.execute("open('large', 'wb').write(bytes(6_000_000))")
        assert result.error is not None
        assert result.error.ename == "OSError"
        assert (await kernel.execute("1")).ok
    assert (tmp_path / "large").stat().st_size <= 5 * 1024 * 1024


async def test_memory_is_limited(tmp_path: Path, level: str) -> None:
    async with KernelSession(cwd=tmp_path, sandbox=level, limits={"memory_mb": 1500}) as kernel:
        result = await kernel.execute("x = bytearray(2_000_000_000)")
        assert result.error is not None
        assert result.error.ename in ("MemoryError", "KernelDied")


async def test_processes_are_limited(tmp_path: Path, level: str) -> None:
    code = (
        "import os, time\nmade = 0\ntry:\n    for _ in range(200):\n"
        "        if os.fork() == 0:\n            time.sleep(20); os._exit(0)\n        made += 1\n"
        "except OSError:\n    pass\nmade < 100"
    )
    async with KernelSession(cwd=tmp_path, sandbox=level, limits={"processes": 60}) as kernel:
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
        await KernelSession(cwd=tmp_path, limits={"disk_mb": -1}).start()


@pytest.mark.parametrize("folder", ["/", "/tmp", "/usr", "/etc/ssl", "~", "/home"])
async def test_no_kernel_gets_a_directory_of_the_system_or_a_home(folder: str) -> None:
    with pytest.raises((SandboxError, KernelStartError), match="folder of its own"):
        await KernelSession(cwd=Path(folder).expanduser()).start()
