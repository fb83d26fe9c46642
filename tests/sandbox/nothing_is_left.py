"""Start and kill sessions at random moments, and look for what is left of them.

``python tests/sandbox/nothing_is_left.py LEVEL COUNT [SEED]``: each is a host process of its own
that starts a kernel with children and files, and is killed with SIGKILL after a random time; every
third one ends by itself. Afterwards no process, directory, control group or mount may be left.
Prints one JSON object; exit code 1 when something is left.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernel_agent.safe import marks

HOST = """
import asyncio, pathlib, sys
from kernel_agent.kernel.process import KernelSession

async def main():
    folder, level, marker, stay = sys.argv[1:]
    async with KernelSession(cwd=pathlib.Path(folder), sandbox=level) as kernel:
        await kernel.execute(
            "import subprocess, os\\n"
            "open('made', 'w').write('x')\\n"
            f"subprocess.Popen(['sleep', '{marker}'])\\n"
            f"subprocess.Popen(['setsid', '-f', 'sleep', '{marker}'])\\n"
        )
        if stay == "stay":
            await asyncio.sleep(60)

asyncio.run(main())
"""
GONE_S = 60.0  # how long the last of it may take to go


def one(folder: Path, level: str, marker: str, *, seconds: float | None) -> int:
    """Run one host; kill it after so many seconds, or let it end by itself. Return its pid."""
    folder.mkdir()
    stay = "end" if seconds is None else "stay"
    arguments = [sys.executable, "-c", HOST, str(folder), level, marker, stay]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE) as host:
        if seconds is None:
            host.wait()
        else:
            time.sleep(seconds)
            host.kill()
    return host.pid


def _only_named(directory: Path) -> bool:
    """Whether its host was killed as it made it: it goes when it is old enough (``marks``)."""
    return {each.name for each in directory.iterdir()} <= {f"{marks.RECORD}.part"}


def left(temporary: Path, marker: str, folders: Path, hosts: set[str]) -> list[str]:
    """Return what is left: processes by their arguments, directories, groups, owners, mounts."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if (marker.encode() in words or bytes(temporary) in words) and entry.name != str(
            os.getpid()
        ):
            found.append(f"process {entry.name}: {words[:200]!r}")
    found += [f"directory {path}" for path in temporary.glob("ka-*") if not _only_named(path)]
    groups = Path("/sys/fs/cgroup").glob("*/**/kernel-agent-ka-*")
    found += [f"control group {path}" for path in groups if path.name.split("-")[3] in hosts]
    found += [
        f"owner {path.stat().st_uid} of {path}"
        for path in folders.rglob("*")
        if path.lstat().st_uid != os.geteuid()
    ]
    mounts = Path("/proc/self/mounts").read_text()
    found += [f"mount {line}" for line in mounts.splitlines() if str(temporary) in line]
    return found


def main(level: str, count: int, seed: int) -> int:
    """Run them all, wait, look."""
    chance = random.Random(seed)
    marker = f"77.{secrets.randbelow(10**9):09}"
    with tempfile.TemporaryDirectory(prefix="left-") as base:
        temporary, folders = Path(base, "t"), Path(base, "w")
        temporary.mkdir()
        folders.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        hosts = set()
        for number in range(count):
            # The last one ends by itself: its reaper also finds what nobody was told of.
            by_itself = number % 3 == 2 or number == count - 1
            seconds = None if by_itself else chance.uniform(0.05, 4.0)
            hosts.add(str(one(folders / str(number), level, marker, seconds=seconds)))
        deadline = time.monotonic() + GONE_S
        while (found := left(temporary, marker, folders, hosts)) and time.monotonic() < deadline:
            time.sleep(0.1)
        ran = sum((folder / "made").exists() for folder in folders.iterdir())
    print(json.dumps({"level": level, "count": count, "ran_a_cell": ran, "left": found}, indent=1))
    return 1 if found or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1))
