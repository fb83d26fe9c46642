"""The folder of a hibernated machine: made for its owner alone, believed only when it is unchanged.

QEMU reads a machine's state as its own words, and whoever wrote the disk is root in the machine. So
a folder from somebody else, or one that a cell made where it may write, must not be resumed: the
description (``machine.json``) holds the digests of state and disk, and is sealed (HMAC, RFC 2104)
with a key from the user's state folder, which is made when the first machine is hibernated. Nothing
is parsed before its seal is seen to be right.

The parts are opened without following links, and are regular files of the caller's, with one name
and closed to others. What is started from are private copies, whose digests are looked at: what is
checked is what is used.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.safe import Folder, copy_sparse, digest_sparse, make_private, state_folder
from kernel_agent.sandbox.microvm import image, machine

ABOUT, SEAL = "machine.json", "machine.hmac"
FORMAT = 2
MIN_MEMORY_MB = 512
MAX_ABOUT = 1 << 20  # bytes of the description
DEVICES_MB = 256  # what a state may hold beside the machine's memory; measured: 1
KEY, KEY_BYTES = "hibernation.key", 32
CONTEXT = b"kernel-agent: a hibernated machine\0"


@dataclass(frozen=True, kw_only=True)
class Hibernated:
    """A machine on disk. ``kernel`` is what the caller needs to speak to its kernel again."""

    format: int
    image_sha256: str
    qemu: str
    accelerator: str
    memory_mb: int
    disk_mb: int
    workspace: str
    kernel: dict[str, Any]
    state_bytes: int
    disk_bytes: int
    state_sha256: str
    disk_sha256: str
    quiet_s: float
    save_s: float
    time: float


def new_folder(folder: Path) -> Path:
    """Make the folder that a machine is to be written to.

    Raises
    ------
    SandboxError
        It is there already, or cannot be made; or no key to seal it with.
    """
    try:
        _key(make=True)  # while the machine still runs
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise SandboxError(f"cannot hibernate to {folder}: {error.strerror}") from None
    return folder.resolve()


def write_about(folder: Path, about: Hibernated) -> None:
    """Describe the machine in its folder, and seal the description.

    Raises
    ------
    SandboxError
        There is no place for the key that the user alone controls, or no room.
    """
    data = json.dumps(asdict(about)).encode()
    if len(data) > MAX_ABOUT:
        raise SandboxError(f"the description of the machine is larger than {MAX_ABOUT:,} bytes")
    try:
        seal = _seal(_key(make=True), data)
        with Folder(folder) as opened:
            for name, content in ((ABOUT, data), (SEAL, seal)):
                with opened.create(name, mode=0o600) as file:
                    file.write(content)
    except OSError as error:
        raise SandboxError(f"cannot hibernate to {folder}: {error.strerror}") from None


def read_about(folder: Path, manifest: image.Manifest | None) -> Hibernated:
    """Read a hibernated machine's description, and check that it can be resumed here.

    Raises
    ------
    SandboxError
        It is not a hibernated machine, not the caller's, changed, or not of this image and QEMU.
    """
    with _open(folder) as opened:
        data = _read(opened, ABOUT, missing="is not a hibernated session")
        seal = _read(opened, SEAL, missing="is not a whole hibernated session of this version")
        _check_seal(folder, data, seal)
        about = _parse(folder, data)
        now = manifest and (manifest.root_sha256, manifest.made_from["qemu"], manifest.accelerator)
        if manifest is None or now != (about.image_sha256, about.qemu, about.accelerator):
            raise SandboxError(f"{folder} was hibernated with another machine image or QEMU")
        if not (
            MIN_MEMORY_MB <= about.memory_mb <= manifest.memory_mb
            and 0 < about.disk_mb <= image.SCRATCH_MB
        ):
            raise SandboxError(f"{folder} has more memory or disk than a machine here can have")
        for name in (machine.STATE, machine.DISK):
            os.close(_part(opened, name))
    return about


def copy_parts(folder: Path, about: Hibernated) -> tuple[int, int]:
    """Return descriptors of private copies of disk and state, neither with a name.

    Called in a thread: some hundred megabytes are copied and their digests computed.

    Raises
    ------
    SandboxError
        They are not what the description says, or there is no room for them.
    """
    copies: list[int] = []
    parts = (
        (machine.DISK, about.disk_mb, about.disk_sha256),
        (machine.STATE, about.memory_mb + DEVICES_MB, about.state_sha256),
    )
    try:
        with _open(folder) as opened:
            for name, most_mb, digest in parts:
                copies.append(machine.scratch_file(0, fresh=False))
                _copy(opened, name, copies[-1], most_mb << 20, digest)
    except BaseException:
        for copy in copies:
            os.close(copy)
        raise
    disk, state = copies
    return disk, state


def _copy(opened: Folder, name: str, target: int, max_bytes: int, digest: str) -> None:
    source = _part(opened, name)
    try:
        copy_sparse(source, target, max_bytes=max_bytes)
        found = digest_sparse(target, max_bytes=max_bytes)
    except OSError as error:
        raise SandboxError(f"{opened.path}: {name} cannot be read: {error.strerror}") from None
    finally:
        os.close(source)
    if not hmac.compare_digest(found, digest):
        raise _changed(opened.path)
    os.lseek(target, 0, os.SEEK_SET)


# --- what is private -----------------------------------------------------------------------------


def _open(folder: Path) -> Folder:
    try:
        named = folder.lstat()
        opened = Folder(folder)
    except (OSError, ValueError):
        raise SandboxError(f"{folder} is not a hibernated session") from None
    try:
        _check_same(folder, named, os.fstat(opened.fd))
        _check_private(folder, "it", named)
    except BaseException:
        opened.close()
        raise
    return opened


def _part(opened: Folder, name: str, *, missing: str = "") -> int:
    """Return the descriptor of a part that is the caller's alone."""
    missing = missing or "is not a whole hibernated session of this version"
    try:
        with opened.open(name) as file:
            descriptor = os.dup(file.fileno())
    except FileNotFoundError:
        raise SandboxError(f"{opened.path} {missing}") from None
    except OSError as error:
        raise SandboxError(f"{opened.path}: {name}: {error.strerror}") from None
    try:
        _check_private(opened.path, name, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read(opened: Folder, name: str, *, missing: str) -> bytes:
    with os.fdopen(_part(opened, name, missing=missing), "rb") as file:
        data = file.read(MAX_ABOUT + 1)
    if len(data) > MAX_ABOUT:
        raise SandboxError(f"{opened.path}: {name} is larger than {MAX_ABOUT:,} bytes")
    return data


def _check_same(folder: Path, named: os.stat_result, opened: os.stat_result) -> None:
    if not os.path.samestat(named, opened):
        raise SandboxError(f"{folder} is a link: name the hibernated session's own folder")


def _check_private(folder: Path, name: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise SandboxError(f"{folder}: {name} belongs to another user")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SandboxError(f"{folder}: {name} is open to others; chmod -R go= closes it")
    if stat.S_ISREG(status.st_mode) and status.st_nlink != 1:
        raise SandboxError(f"{folder}: {name} has another name as well")


# --- the seal ------------------------------------------------------------------------------------


def _check_seal(folder: Path, data: bytes, seal: bytes) -> None:
    try:
        key = _key(make=False)
    except FileNotFoundError:  # this user has never hibernated anything
        raise _changed(folder) from None
    except OSError as error:
        raise SandboxError(f"no key to check {folder} with: {error.strerror}") from None
    if not hmac.compare_digest(_seal(key, data), seal):
        raise _changed(folder)


def _changed(folder: Path) -> SandboxError:
    return SandboxError(
        f"{folder} was not hibernated by you on this computer, or has been changed since"
    )


def _seal(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, CONTEXT + data, hashlib.sha256).hexdigest().encode()


def _key(*, make: bool) -> bytes:
    """Return the user's key; with ``make`` it is made where there is none.

    Raises
    ------
    OSError
        There is none, it is not the user's alone, or it cannot be made.
    """
    place = state_folder()
    if place is None:
        raise OSError(None, "there is no state folder that only you control")
    if make:
        make_private(place, exist_ok=True)
    with Folder(place) as folder:
        if make:
            _make_key(folder)
        with folder.open(KEY) as file:
            status = os.fstat(file.fileno())
            key = file.read(KEY_BYTES + 1)
    others = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if status.st_uid != os.geteuid() or others or len(key) != KEY_BYTES:
        raise OSError(None, f"{place / KEY} is not a key of yours alone: remove it")
    return key


def _make_key(folder: Folder) -> None:
    """Make the key unless it is there; of two that are made at once, one is left."""
    beside = f".{KEY}.{secrets.token_hex(4)}"
    try:
        with folder.create(beside, mode=0o600) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(beside, KEY, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    finally:
        folder.remove(beside)


def _parse(folder: Path, data: bytes) -> Hibernated:
    from pydantic import TypeAdapter, ValidationError

    try:
        about = TypeAdapter(Hibernated).validate_json(data, strict=True)
    except ValidationError:
        about = None
    if about is None or about.format != FORMAT or not _is_note(about.kernel):
        raise SandboxError(f"{folder} is not a whole hibernated session of this version")
    return about


def _is_note(kernel: Mapping[str, Any]) -> bool:
    return (
        isinstance(kernel.get("key"), str)
        and isinstance(kernel.get("report", {}), dict)
        and isinstance(kernel.get("steps", 0), int)
    )
