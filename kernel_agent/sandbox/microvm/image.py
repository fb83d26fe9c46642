"""The machine's image: built from what this computer has, without a network.

It holds the interpreter with its packages and the libraries that they load, busybox for the
commands that cells may call, this computer's Linux kernel, and the state of the machine after its
start, so that later machines need not boot. It lies in the user's cache directory, with a manifest
that says what it was made from; when that has changed since, the image is stale and not used.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.safe import one_line, remove
from kernel_agent.sandbox import programs
from kernel_agent.sandbox.microvm import machine

FORMAT = 1
GUEST = Path(__file__).resolve().parent / "guest"
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng", "overlay")
MEMORY_MB = 1536
SCRATCH_MB = 64 * 1024  # what the saved machine believes that its second disk holds; see docs
REMOVAL_S = 600.0  # for a tree of our own with some 50,000 files, on a slow disk
LEFT_OUT = {"test", "idlelib", "turtledemo", "ensurepip"}  # of the standard library
SITE = {"site-packages", "dist-packages"}
NEEDED = {
    machine.QEMU: "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "busybox": "busybox-static",
    "ldd": "libc-bin",
}

FIRST_SCRIPT = """\
#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev /lower /upper /new
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
while read module; do busybox insmod "/modules/$module"; done < /modules/order
busybox mount -o ro -t ext4 /dev/vda /lower
busybox mount -t tmpfs -o mode=755,size=64m upper /upper
busybox mkdir /upper/up /upper/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/up,workdir=/upper/work root /new
for name in proc sys dev; do busybox mount --move /$name /new/$name; done
exec busybox switch_root /new {python} -I -S -c \
'import sys; sys.path.insert(0, "/ka"); from guest.init import main; main()'
"""
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
class Manifest:
    """What an image is, and what it was made from.

    ``made_from`` is compared with what is here today; ``kvm`` says why the machine's processor is
    emulated, or that it is not.
    """

    format: int
    made_from: dict[str, str]
    accelerator: str
    kvm: str
    memory_mb: int
    root_sha256: str
    root_mb: int
    state_mb: int
    packages: dict[str, str]
    built: str
    build_s: float


def folder() -> Path:
    """Return where the image lies: in the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "kernel-agent" / "microvm"


def load() -> Manifest | None:
    """Return the manifest of the image, or None when there is none that can be read."""
    try:
        found = json.loads((folder() / "manifest.json").read_text())
        return Manifest(**found) if found.get("format") == FORMAT else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def changes(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what an image was made from that is different today, in words."""
    return [
        f"{name} was {then.get(name) or 'not there'} and is {now.get(name) or 'not there'}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


# --- what it is made from ------------------------------------------------------------------------


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
    """Ask an interpreter what it is."""
    try:
        said = subprocess.run(
            [python, "-I", "-c", _DESCRIBE], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"cannot ask {python} what it is: {error}") from None
    found = json.loads(said)
    return Interpreter(**{**found, "path": tuple(found["path"])})


def linux() -> tuple[Path, Path]:
    """Return the newest kernel in /boot that has its modules, and their folder.

    Raises
    ------
    SandboxError
        There is none that this user can read.
    """
    for kernel in sorted(Path("/boot").glob("vmlinuz-*"), key=_age, reverse=True):
        modules = Path("/lib/modules") / kernel.name.removeprefix("vmlinuz-")
        if os.access(kernel, os.R_OK) and (modules / "modules.dep").is_file():
            return kernel, modules
    raise SandboxError(
        "no Linux kernel with modules in /boot that this user can read: install one "
        "(Debian: linux-image-cloud-amd64)"
    )


def _age(path: Path) -> tuple[bool, float]:
    return "cloud" in path.name, path.stat().st_mtime


def made_from(python: Interpreter) -> dict[str, str]:
    """Return what decides whether an image still fits."""
    kernel, _ = linux()
    packages = "\n".join(f"{name} {version}" for name, version in python.packages.items())
    code = b"".join(path.read_bytes() for path in sorted(GUEST.glob("*.py")))
    return {
        "python": f"{python.executable} {python.version}",
        "packages": f"{len(python.packages)} ({_digest(packages.encode())})",
        "linux": kernel.name,
        "qemu": machine.version() or "",
        "guest": _digest(FIRST_SCRIPT.encode() + code + _shape()),
    }


def _shape() -> bytes:
    """Return what a machine is made of: a saved state fits the same machine only."""
    parts = machine.Parts(kernel=0, initrd=0, root=0, scratch=0, wire=0, monitor=0)
    return repr(machine.arguments(parts, memory_mb=0, accelerator="tcg", console="null")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


# --- building ------------------------------------------------------------------------------------


def build(
    say: Callable[[str], None],
    *,
    boot: Callable[[Path, str, int], float],
    python: str = sys.executable,
    memory_mb: int = MEMORY_MB,
) -> Manifest:
    """Build the image and put it in the place of the last one.

    Parameters
    ----------
    say
        Told each step, as one line.
    boot
        Boots the image in a folder with an accelerator and memory, saves the machine's state
        beside it and returns the seconds; raises :class:`SandboxError` when it does not boot.
    python
        The interpreter.
    memory_mb
        The machine's memory.

    Raises
    ------
    SandboxError
        A program is missing, the disk is full, or the machine does not boot.
    """
    began = time.monotonic()
    missing = [package for name, package in NEEDED.items() if programs.find(name) is None]
    if missing:
        raise SandboxError(f"missing here: install {' '.join(missing)}")
    found = interpreter(python)
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="microvm-", dir=place.parent))
    try:
        say(f"from {found.executable} (Python {found.version}, {len(found.packages)} packages)")
        kernel, modules = linux()
        shutil.copyfile(kernel, work / "vmlinuz")
        (work / "initrd").write_bytes(_initrd(modules, found))
        _root_image(work, found, say)
        root_mb = (work / "root.img").stat().st_blocks // 2048
        say(f"root file system: {root_mb} MB; {kernel.name}")
        accelerator, kvm, seconds = _first_boot(work, boot, memory_mb, say)
        state_mb = (work / "state").stat().st_size >> 20
        say(f"booted in {seconds:.0f} s and saved: {state_mb} MB")
        with (work / "root.img").open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        manifest = Manifest(
            format=FORMAT, made_from=made_from(found), accelerator=accelerator, kvm=kvm,
            memory_mb=memory_mb, root_sha256=digest, root_mb=root_mb, state_mb=state_mb,
            packages=found.packages, built=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            build_s=round(time.monotonic() - began, 1),
        )  # fmt: skip
        (work / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1))
        _replace(place, work)
    except OSError as error:
        raise SandboxError(f"the machine image cannot be built: {error}") from error
    finally:
        remove(work, seconds=REMOVAL_S)
    return manifest


def _replace(place: Path, work: Path) -> None:
    """Put the new folder in the old one's place; machines that run keep what they have open."""
    old = Path(f"{work}.old")
    if place.exists():
        place.rename(old)
    work.rename(place)
    remove(old, seconds=REMOVAL_S)


def _first_boot(
    work: Path, boot: Callable[[Path, str, int], float], memory_mb: int, say: Callable[[str], None]
) -> tuple[str, str, float]:
    """Boot with the processor's own virtualisation where that works, else with an emulated one."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        why = "/dev/kvm is not there, or not for this user"
    else:
        try:
            return "kvm", "a guest boots with it", boot(work, "kvm", memory_mb)
        except SandboxError as error:
            why = f"/dev/kvm is there, but no guest boots with it: {one_line(str(error))}"
    say(f"the processor is emulated in software: {why}")
    return "tcg", why, boot(work, "tcg", memory_mb)


# --- the first file system -----------------------------------------------------------------------


def _initrd(modules: Path, python: Interpreter) -> bytes:
    order = module_order((modules / "modules.dep").read_text(), MODULES)
    busybox = programs.find("busybox")
    assert busybox is not None
    entries: list[tuple[str, int, bytes]] = [
        ("bin", 0o40755, b""),
        ("bin/busybox", 0o100755, Path(busybox).read_bytes()),
        ("init", 0o100755, FIRST_SCRIPT.format(python=python.executable).encode()),
        ("modules", 0o40755, b""),
    ]
    names = []
    for path in order:
        names.append(Path(path).name.split(".ko")[0] + ".ko")
        entries.append((f"modules/{names[-1]}", 0o100644, _unpacked(modules / path)))
    entries.append(("modules/order", 0o100644, "".join(f"{n}\n" for n in names).encode()))
    return gzip.compress(cpio(entries), compresslevel=1)


def module_order(dependencies: str, wanted: Iterable[str]) -> list[str]:
    """Return the files of modules and of what they need, each after what it needs.

    Parameters
    ----------
    dependencies
        The text of ``modules.dep``: a module, a colon, and what it needs, nearest first.
    wanted
        Names of modules; one that is not listed is part of the kernel itself.
    """
    needs: dict[str, list[str]] = {}
    for line in dependencies.splitlines():
        name, _, rest = line.partition(":")
        needs[name] = rest.split()
    order: list[str] = []
    for name in wanted:
        path = next((p for p in needs if Path(p).name.split(".ko")[0] == name), None)
        if path is not None:
            order += [p for p in (*reversed(needs[path]), path) if p not in order]
    return order


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix == ".gz":
        return gzip.decompress(content)
    if path.suffix == ".zst":
        raise SandboxError(f"{path.name} is packed with zstd, which is not supported")
    return content


def cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return an archive in the kernel's format, ``newc``.

    Described in Linux's ``Documentation/driver-api/early-userspace/buffer-format.rst``.

    Parameters
    ----------
    entries
        Name, mode and content of each file or directory.
    """
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        archive += bytes(-len(archive) % 4)
        archive += content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


# --- the root file system ------------------------------------------------------------------------


def _root_image(work: Path, python: Interpreter, say: Callable[[str], None]) -> None:
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
    for tree in _trees(python):
        _copy_tree(tree, root)
    _copy_commands(python, root)
    _copy_libraries(root)
    shutil.copytree(GUEST, root / "ka" / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(GUEST / "cell_end.py", root / "ka" / "guest" / "cell_end.py")
    say("compiling what is not compiled yet")
    subprocess.run(
        [python.executable, "-I", "-m", "compileall", "-q", "-s", str(root), "-p", "/",
         str(root / "ka"), *(str(_within(root, t)) for t in _trees(python))],
        check=False, capture_output=True,
    )  # fmt: skip
    _make_file_system(root, work / "root.img")
    remove(root, seconds=REMOVAL_S)


def _trees(python: Interpreter) -> list[Path]:
    """Return the folders that make up the interpreter, none of them within another."""
    found = [Path(python.library), *(Path(entry) for entry in python.path)]
    found = [path for path in dict.fromkeys(found) if path.is_dir()]
    return [
        p for p in found if p.name in SITE or not any(p != o and p.is_relative_to(o) for o in found)
    ]


def _within(root: Path, path: Path) -> Path:
    """Return where a path of this computer is in the image, whose /lib is /usr/lib."""
    parts = path.parts[1:]
    if parts and parts[0] in ("bin", "sbin", "lib", "lib64"):
        parts = ("usr", *parts)
    return root.joinpath(*parts)


def _copy_tree(tree: Path, root: Path) -> None:
    for at, folders, names in os.walk(tree):
        inside = Path(at)
        folders[:] = [
            name
            for name in folders
            if not (inside == tree and (name in LEFT_OUT or name in SITE or name[:7] == "config-"))
        ]
        _within(root, inside).mkdir(parents=True, exist_ok=True)
        for name in [*folders, *names]:
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
    """The interpreter under all its names, and busybox under those of its commands."""
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
        _copy_tree(Path("/usr/share/zoneinfo"), root)


def _copy_libraries(root: Path) -> None:
    """What the programs and extension modules load, as the loader itself finds it."""
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


def describe(manifest: Manifest) -> dict[str, Any]:
    """Return what a person or a record wants to know of an image."""
    return {
        "processor": "hardware virtualisation (KVM)"
        if manifest.accelerator == "kvm"
        else f"emulated in software (TCG): {manifest.kvm}",
        "memory_mb": manifest.memory_mb,
        "linux": manifest.made_from["linux"],
        "qemu": manifest.made_from["qemu"],
        "image_sha256": manifest.root_sha256,
    }
