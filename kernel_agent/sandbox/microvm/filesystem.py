"""The machine's root file system: the interpreter, what it loads, and busybox's commands.

It is put together from what this computer has, as the same files where links are possible, and
written by ``mkfs.ext4``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.errors import SandboxError
from kernel_agent.safe import remove
from kernel_agent.sandbox import programs
from kernel_agent.sandbox.environment import without_dots
from kernel_agent.sandbox.grants import readable_folder

GUEST = Path(__file__).resolve().parent / "guest"
REMOVAL_S = 600.0  # for a tree with some 50,000 files, on a slow disk
LEFT_OUT = {"test", "idlelib", "turtledemo", "ensurepip"}  # of the standard library
SITE = {"site-packages", "dist-packages"}
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n",
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "ipython/ipython_kernel_config.py": (
        'get_config().InteractiveShellApp.extensions = ["cell_end"]  # noqa\n'
    ),
}


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The Python that goes into the image, as it describes itself."""

    executable: str
    prefix: str
    base_prefix: str
    version: str
    path: tuple[str, ...]
    library: str

    @property
    def packages(self) -> dict[str, str]:
        """Installed distributions and their versions, read from the names of their folders."""
        found = {}
        for entry in self.path:
            if Path(entry).is_dir():
                for path in Path(entry).iterdir():
                    if match := re.fullmatch(r"(.+?)-([^-]+)\.(dist|egg)-info", path.name):
                        found[match[1]] = match[2]
        return dict(sorted(found.items()))


_DESCRIBE = """
import json, sys, sysconfig
print(json.dumps(dict(executable=sys.executable, prefix=sys.prefix, base_prefix=sys.base_prefix,
    version=sys.version.split()[0], path=sys.path, library=sysconfig.get_path("stdlib"))))
"""


def interpreter(python: str = sys.executable) -> Interpreter:
    """Ask an interpreter to describe itself."""
    try:
        said = subprocess.run(
            [without_dots(Path(python)), "-I", "-c", _DESCRIBE],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"cannot ask {python} what it is: {error}") from None
    found = json.loads(said)
    return Interpreter(**{**found, "path": tuple(found["path"])})


def make_root_image(work: Path, python: Interpreter, on_step: Callable[[str], None]) -> None:
    """Make ``root.img`` in a folder from what the interpreter needs."""
    root = work / "root"
    root.mkdir(mode=0o755)
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "etc",
                 "root", "ka", "home"):  # fmt: skip
        (root / name).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name, text in ETC.items():
        (root / "etc" / name).parent.mkdir(exist_ok=True)
        (root / "etc" / name).write_text(text)
    for tree in trees(python):
        copy_tree(tree, root)
    _copy_commands(python, root)
    _copy_libraries(root)
    shutil.copytree(GUEST, root / "ka" / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    on_step("compiling what is not compiled yet")
    subprocess.run(
        [python.executable, "-I", "-m", "compileall", "-q", "-s", str(root), "-p", "/",
         str(root / "ka"), *(str(_within(root, t)) for t in trees(python))],
        check=False, capture_output=True,
    )  # fmt: skip
    _make_file_system(root, work / "root.img")
    remove(root, seconds=REMOVAL_S)


def trees(python: Interpreter) -> list[Path]:
    """Return the folders that make up the interpreter, none of them within another."""
    found = [Path(python.library), *(Path(entry) for entry in python.path)]
    found = [path for path in dict.fromkeys(found) if path.is_dir()]
    for path in found:
        try:
            readable_folder(path)
        except SandboxError:
            raise SandboxError(
                f"a .pth file puts {path} on the path of {python.executable}: all of it would go "
                "into the image, and it is or holds a home or a directory of the system"
            ) from None
    return [
        p for p in found if p.name in SITE or not any(p != o and p.is_relative_to(o) for o in found)
    ]


def _within(root: Path, path: Path) -> Path:
    """Return the place in the image of this computer's path; its /lib is /usr/lib."""
    parts = path.parts[1:]
    if parts and parts[0] in ("bin", "sbin", "lib", "lib64"):
        parts = ("usr", *parts)
    return root.joinpath(*parts)


def copy_tree(tree: Path, root: Path) -> None:
    """Put a folder into the tree, without .git and .env beside an editable install's source."""
    hidden = () if tree.name in SITE else (".",)
    for at, folders, names in os.walk(tree):
        inside = Path(at)
        folders[:] = [
            name
            for name in folders
            if not (inside == tree and (name in LEFT_OUT or name in SITE or name[:7] == "config-"))
            and not name.startswith(hidden)
        ]
        _within(root, inside).mkdir(parents=True, exist_ok=True)
        for name in [*folders, *(name for name in names if not name.startswith(hidden))]:
            if (inside / name).is_symlink() or name in names:
                _copy(inside / name, root)
        folders[:] = [name for name in folders if not (inside / name).is_symlink()]


def _copy(path: Path, root: Path, *, to: Path | None = None) -> None:
    """Put a file into the tree: as the same file where that is possible, else as a copy."""
    target = _within(root, to or path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() or target.is_symlink():
        return
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        target.symlink_to(path.readlink())
        return
    if not stat.S_ISREG(about.st_mode) or not os.access(path, os.R_OK):
        return
    if about.st_mode & 0o444 == 0o444:
        try:
            os.link(path, target)
        except OSError:  # another file system, or another user's file
            pass
        else:
            return
    shutil.copy2(path, target)
    target.chmod(about.st_mode & 0o777 | 0o444)


def _copy_commands(python: Interpreter, root: Path) -> None:
    """Copy the interpreter under all its names, and busybox under those of its commands."""
    busybox = programs.find("busybox")
    assert busybox is not None
    _copy(Path(busybox).resolve(), root, to=Path("/usr/bin/busybox"))
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if name != "busybox":
            (root / "usr/bin" / name).symlink_to("busybox")
    link = Path(python.executable)
    while link.is_symlink():
        _copy(link, root)
        link = Path(os.path.normpath(link.parent / link.readlink()))
    _copy(link, root)
    for path in (Path(python.prefix) / "pyvenv.cfg", Path("/etc/localtime")):
        if path.exists():
            _copy(path.resolve(), root, to=path)
    folder = Path(python.executable).parent
    for name in ("python", "python3"):
        if not (_within(root, folder) / name).is_symlink() and (folder / name).is_symlink():
            _copy(folder / name, root)
    if Path("/usr/share/zoneinfo").is_dir():
        copy_tree(Path("/usr/share/zoneinfo"), root)


def _copy_libraries(root: Path) -> None:
    """Copy the libraries that programs and extension modules load, as the loader finds them."""
    files = [
        str(path)
        for at, _, names in os.walk(root)
        for path in (Path(at, name) for name in names)
        if (".so" in path.name or path.parent.name == "bin") and _is_elf(path)
    ]
    said = ""
    for start in range(0, len(files), 200):
        said += subprocess.run(
            ["ldd", *files[start : start + 200]], capture_output=True, text=True, check=False
        ).stdout
    for name in sorted(set(re.findall(r"(?:=>|^)\s*(/\S+) \(0x", said, re.MULTILINE))):
        if not Path(name).is_relative_to(root):
            _copy(Path(name).resolve(), root, to=Path(name))


def _is_elf(path: Path) -> bool:
    if path.is_symlink():
        return False
    with path.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def _make_file_system(root: Path, image: Path) -> None:
    entries = list(_walk(root))
    needed = sum((about.st_size + 4095) // 4096 * 4096 for about in entries)
    inodes = len(entries) + 1000
    size = int(needed * 1.05) + inodes * 300 + (32 << 20)
    mkfs = programs.find("mkfs.ext4")
    assert mkfs is not None
    made = subprocess.run(
        [mkfs, "-q", "-F", "-m", "0", "-O", "^has_journal", "-N", str(inodes), "-d", str(root),
         str(image), f"{size // 1024}k"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise SandboxError(f"mkfs.ext4 failed: {made.stderr.strip()[-300:]}")
    image.chmod(0o644)


def _walk(root: Path) -> Iterator[os.stat_result]:
    for at, folders, names in os.walk(root):
        for name in [*folders, *names]:
            yield Path(at, name).lstat()
