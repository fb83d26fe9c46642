"""The machine's image: built from this computer's files, without a network.

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
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.safe import one_line, remove
from kernel_agent.sandbox import programs
from kernel_agent.sandbox.microvm import machine
from kernel_agent.sandbox.microvm.filesystem import (
    GUEST,
    REMOVAL_S,
    Interpreter,
    interpreter,
    make_root_image,
)

FORMAT = 1
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng", "overlay")
MEMORY_MB = 1536
SCRATCH_MB = 64 * 1024  # what the saved machine believes that its second disk holds; see docs
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


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of an image, and of its sources.

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
    """Return the image's folder, in the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "kernel-agent" / "microvm"


def load() -> Manifest | None:
    """Return the manifest of the image, or None when it cannot be read."""
    try:
        found = json.loads((folder() / "manifest.json").read_text())
        return Manifest(**found) if found.get("format") == FORMAT else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def changes(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the sources of an image that are different today, in words."""
    return [
        f"{name} was {then.get(name) or 'not there'} and is {now.get(name) or 'not there'}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


# --- what it is made from ------------------------------------------------------------------------


def linux() -> tuple[Path, Path]:
    """Return the newest kernel in /boot that has its modules, and their folder.

    Raises
    ------
    SandboxError
        This user can read no such kernel.
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


def list_sources(python: Interpreter) -> dict[str, str]:
    """Return the sources that decide whether an image still fits."""
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
    """Return the machine's command line: a saved state fits the same machine only."""
    parts = machine.Parts(kernel=0, initrd=0, root=0, scratch=0, wire=0, monitor=0)
    return repr(machine.arguments(parts, memory_mb=0, accelerator="tcg", console="null")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


# --- building ------------------------------------------------------------------------------------


def build(
    on_step: Callable[[str], None],
    *,
    boot: Callable[[Path, str, int], float],
    python: str = sys.executable,
    memory_mb: int = MEMORY_MB,
) -> Manifest:
    """Build the image and put it in the place of the last one.

    Parameters
    ----------
    on_step
        Called with each step, as one line.
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
        on_step(f"from {found.executable} (Python {found.version}, {len(found.packages)} packages)")
        kernel, modules = linux()
        shutil.copyfile(kernel, work / "vmlinuz")
        (work / "initrd").write_bytes(_initrd(modules, found))
        make_root_image(work, found, on_step)
        root_mb = (work / "root.img").stat().st_blocks // 2048
        on_step(f"root file system: {root_mb} MB; {kernel.name}")
        accelerator, kvm, seconds = _first_boot(work, boot, memory_mb, on_step)
        state_mb = (work / "state").stat().st_size >> 20
        on_step(f"booted in {seconds:.0f} s and saved: {state_mb} MB")
        with (work / "root.img").open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        manifest = Manifest(
            format=FORMAT, made_from=list_sources(found), accelerator=accelerator, kvm=kvm,
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
    work: Path,
    boot: Callable[[Path, str, int], float],
    memory_mb: int,
    on_step: Callable[[str], None],
) -> tuple[str, str, float]:
    """Boot with the processor's own virtualisation where that works, else with an emulated one."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        why = "/dev/kvm is not there, or not for this user"
    else:
        try:
            return "kvm", "a guest boots with it", boot(work, "kvm", memory_mb)
        except SandboxError as error:
            why = f"/dev/kvm is there, but no guest boots with it: {one_line(str(error))}"
    on_step(f"the processor is emulated in software: {why}")
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
        entries.append((f"modules/{names[-1]}", 0o100644, _unpack(modules / path)))
    entries.append(("modules/order", 0o100644, "".join(f"{n}\n" for n in names).encode()))
    return gzip.compress(cpio(entries), compresslevel=1)


def module_order(dependencies: str, wanted: Iterable[str]) -> list[str]:
    """Return the files of modules and their dependencies, each after those that it needs.

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


def _unpack(path: Path) -> bytes:
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


def describe(manifest: Manifest) -> dict[str, Any]:
    """Return an image's facts for people and records."""
    return {
        "processor": "hardware virtualisation (KVM)"
        if manifest.accelerator == "kvm"
        else f"emulated in software (TCG): {manifest.kvm}",
        "memory_mb": manifest.memory_mb,
        "linux": manifest.made_from["linux"],
        "qemu": manifest.made_from["qemu"],
        "image_sha256": manifest.root_sha256,
    }
