"""A folder of data at each level: cells read it, change nothing of it, and see nothing beside it.

Scored by effects: what the host's files are afterwards, and whether what a key file holds came out.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from support.levels import need

from kernel_agent import ScriptedModel, Session
from kernel_agent.sandbox.chooser import level_of

LEVELS = ("bubblewrap", "namespaces", "landlock", "container", "gvisor")
TABLE = "day,rain\n2024-01-01,3\n"
SECRET = "canary-5c1f7e"

READS = f"""
import glob, os
at = os.path.realpath("data/lake")
found = sorted(glob.glob("data/lake/**/*.csv", recursive=True))
print(open("data/lake/2024/rain.csv").read() == {TABLE!r}, found)
"""

WAYS = r"""
import ctypes, mmap, os, shutil, subprocess

libc = ctypes.CDLL(None, use_errno=True)
at, table = os.path.realpath("data/lake"), "data/lake/2024/rain.csv"
real = os.path.realpath(table)
said = []

def attempt(way):
    try:
        said.append(f"{way.__name__}: {way()!r}"[:300])
    except BaseException as error:
        said.append(f"{way.__name__}: {type(error).__name__}")

def write_over(): return open(table, "w").write("changed")
def append(): return open(real, "a").write("changed")
def make(): return open("data/lake/new.csv", "w").write("new")
def make_deep(): return open(f"{at}/2024/new.csv", "w").write("new")
def folder(): return os.mkdir("data/lake/new")
def remove(): return os.remove(table)
def rename(): return os.rename(table, "data/lake/2024/gone.csv")
def move_out(): return shutil.move(real, "rain.csv")
def swap_link(): os.rename("data/lake", "data/old"); os.mkdir("data/lake")
def over_link(): os.remove("data/lake"); os.symlink("/", "data/lake")
def truncate(): return os.truncate(table, 0)
def mode(): return os.chmod(real, 0o777)
def owner(): return os.chown(real, os.getuid(), os.getgid())
def times(): return os.utime(real, (0, 0))
def attribute(): return os.setxattr(real, "user.x", b"x")
def second_name():
    os.link(real, "second.csv")
    os.chmod("second.csv", 0o666)
    return open("second.csv", "w").write("changed")
def through_handle():
    handle = os.open(table, os.O_RDONLY)
    return open(f"/proc/self/fd/{handle}", "w").write("changed")
def through_root(): return open(f"/proc/self/root{real}", "w").write("changed")
def through_memory():
    libc.mmap.restype = ctypes.c_void_p
    handle = os.open(table, os.O_RDONLY)
    place = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if libc.mprotect(ctypes.c_void_p(place), 4096, mmap.PROT_READ | mmap.PROT_WRITE):
        return os.strerror(ctypes.get_errno())
    ctypes.memset(place, 88, 1)
def by_program(): return subprocess.run(["sh", "-c", f"echo changed > '{real}'"]).returncode
def remount(): return libc.mount(b"none", at.encode(), None, 32 | 4096, None)
def lock(): import fcntl; return fcntl.flock(open(table), fcntl.LOCK_EX | fcntl.LOCK_NB)

def read_key(): return open("data/lake/.env").read()
def read_key_by_path(): return open(f"{at}/.env").read()
def read_key_through_root(): return open(f"/proc/self/root{at}/.env").read()
def read_key_up(): return open("data/lake/2024/../.env").read()
def read_key_below(): return open("data/lake/deploy/id_rsa").read()
def read_git(): return open("data/lake/.git/config").read()
def read_outside_by_link(): return open("data/lake/out/secret.txt").read()
def read_outside_up(): return open("data/lake/../beside/secret.txt").read()
def read_outside_by_path(): return open(f"{os.path.dirname(at)}/beside/secret.txt").read()
def copy_all():
    found = f"cat $(find '{at}' -type f) 2>/dev/null"
    return subprocess.run(found, shell=True, capture_output=True).stdout
def handle_of_key():
    return libc.open_by_handle_at(os.open(at, os.O_RDONLY), ctypes.create_string_buffer(64), 0)

for name in NAMES:
    attempt(globals()[name])
print("\n".join(said))
"""


NAMES = [name for name in re.findall(r"^def (\w+)", WAYS, re.MULTILINE) if name != "attempt"]


def state(folder: Path, *, content_only: bool = False) -> dict[str, tuple[object, ...]]:
    """Return what a tree is: names, kinds, owners, modes, times, content."""

    def about(path: Path) -> tuple[object, ...]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if content_only:
            return stat.S_IFMT(status.st_mode), status.st_nlink, content
        names = tuple(os.listxattr(path, follow_symlinks=False))
        return status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink, names, content

    return {str(path): about(path) for path in (folder, *sorted(folder.rglob("*")))}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for name, content in {
        "lake/2024/rain.csv": TABLE, "lake/.env": SECRET, "lake/deploy/id_rsa": SECRET,
        "lake/deploy/log.csv": TABLE, "lake/.git/config": SECRET, "beside/secret.txt": SECRET,
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "lake/out").symlink_to(tmp_path / "beside")
    return tmp_path / "lake"


@pytest.mark.parametrize("level", LEVELS)
async def test_no_way_changes_a_folder_of_data_or_leads_to_what_is_left_out(level, tmp_path, lake):
    """Two dozen ways to write in it, a dozen to what is hidden or beside it."""
    need(level)
    # Modes, times and attributes of one's own files are none of what this level protects.
    gap = level == "landlock" and os.geteuid() != 0
    before, beside = state(lake, content_only=gap), state(tmp_path / "beside", content_only=gap)
    async with Session(
        model=ScriptedModel([]), sandbox=level, data=lake, out=tmp_path / "out"
    ) as session:
        read = await session.execute(READS)
        tried = await session.execute(f"NAMES = {NAMES}\n{WAYS}")
    said = "".join(output.get("text", "") for output in tried.outputs)
    names = ["data/lake/2024/rain.csv", "data/lake/deploy/log.csv"]
    assert read.outputs[0]["text"] == f"True {names}\n"
    assert [name for name in NAMES if f"{name}: " not in said] == [], said
    assert state(lake, content_only=gap) == before, said
    assert state(tmp_path / "beside", content_only=gap) == beside, said
    assert SECRET not in said
    if level_of(level).hides_paths:  # else a cell may change what lies in the run's folder
        assert (tmp_path / "out/data/lake").readlink() == lake
