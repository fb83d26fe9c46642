"""A machine asleep in a folder that somebody else could write: is it woken?

QEMU takes a machine's state for its own words. What is counted is whether ``microvm.prepare`` hands
QEMU a disk and a state that are not what the user wrote; no machine is started.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attacks.stage import Stage
    from kernel_agent.sandbox.microvm.hibernated import Hibernated

COMMAND_S = 60.0
FORGED = b"forged"
PYTHON = "/usr/bin/python3"


def _woken(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("woken: ") else ""


@host_attack("host-confusion", _woken, timeout_s=90)
async def forged_machine_asleep(folder: Path) -> str:
    """A hibernated machine with a forged state, disk, description or seal is resumed"""
    person = folder / "person"
    person.mkdir(mode=0o700)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", __name__, str(folder)],
        env={**os.environ, "HOME": str(person), "XDG_STATE_HOME": str(person / "state"),
             "XDG_CACHE_HOME": str(person / "cache")},
        check=True, capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip
    if not done.stdout.strip():
        raise PermissionError(1, "nothing was woken")
    return f"woken: {done.stdout.strip()}"


def _play(folder: Path) -> None:
    """Print the forgeries that a machine would be woken from.

    Called in a process of its own, whose home is the attack's.
    """
    from kernel_agent.sandbox.levels import Grant, Limits
    from kernel_agent.sandbox.microvm import image

    manifest = image.Manifest(
        format=image.FORMAT, made_from={"python": f"{PYTHON} 3.11.2", "qemu": "7.2.22"},
        accelerator="tcg", kvm="", memory_mb=1536, root_sha256="00ff", root_mb=700, state_mb=300,
        packages={}, built="2030-01-01T00:00:00Z", build_s=30.0,
    )  # fmt: skip
    image.folder().mkdir(parents=True)
    (image.folder() / "manifest.json").write_text(json.dumps(asdict(manifest)))
    grant = Grant(
        python=Path(PYTHON), code=folder, workspace=folder, sockets=folder,
        scratch=folder, limits=Limits(),
    )  # fmt: skip
    asleep = folder / "asleep"
    about = _put_to_sleep(asleep)
    if _woken_from(grant, asleep) != b"own":
        raise RuntimeError("what the user wrote does not wake: nothing was tried")
    for name, forge in FORGERIES.items():
        place = folder / name.replace(" ", "-")
        shutil.copytree(asleep, place)
        forge(place, about)
        if _woken_from(grant, place).startswith(FORGED):
            print(name, end="; ")


def _woken_from(grant: Any, place: Path) -> bytes:
    """Return how the state begins that a machine would be given; nothing if it would get none."""
    from kernel_agent.errors import SandboxError
    from kernel_agent.sandbox import microvm

    with suppress(SandboxError):
        command = [PYTHON, "x.py", "-f", "k.json"]
        disk, state = microvm.prepare(grant, command, {}, resume=place).pass_fds
        read = (os.pread(disk, 16, 0), os.pread(state, 16, 0))
        os.close(disk)
        os.close(state)
        return max(read, key=lambda data: data.startswith(FORGED)).rstrip(b"\0")
    return b""


def _put_to_sleep(place: Path) -> Hibernated:
    from kernel_agent.safe import digest_sparse
    from kernel_agent.sandbox.microvm import hibernated

    hibernated.new_folder(place)
    digests = {}
    for name in ("state", "disk"):
        with open(place / name, "w+b", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(b"own")
            file.truncate(1 << 20)
            digests[name] = digest_sparse(file.fileno(), max_bytes=1 << 20)
    about = hibernated.Hibernated(
        format=hibernated.FORMAT, image_sha256="00ff", qemu="7.2.22", accelerator="tcg",
        memory_mb=1536, disk_mb=100, workspace="/w", kernel={"key": "k", "steps": 2, "report": {}},
        state_bytes=1, disk_bytes=1, state_sha256=digests["state"], disk_sha256=digests["disk"],
        quiet_s=0.1, save_s=0.1, time=1.0,
    )  # fmt: skip
    hibernated.write_about(place, about)
    return about


def _write_part(place: Path, name: str) -> str:
    """Change the beginning of a part; return the digest of what it is then."""
    from kernel_agent.safe import digest_sparse

    with open(place / name, "r+b") as file:
        file.write(FORGED)
        file.flush()
        return digest_sparse(file.fileno(), max_bytes=1 << 20)


def _describe(place: Path, about: Hibernated, key: bytes | None) -> None:
    """Describe forged parts, with the old seal or one that is made with another key."""
    import hashlib
    import hmac

    from kernel_agent.sandbox.microvm import hibernated

    digests = {f"{name}_sha256": _write_part(place, name) for name in ("state", "disk")}
    data = json.dumps(asdict(replace(about, **digests))).encode()
    (place / hibernated.ABOUT).write_bytes(data)
    if key is not None:
        seal = hmac.new(key, hibernated.CONTEXT + data, hashlib.sha256).hexdigest()
        (place / hibernated.SEAL).write_text(seal)


def _put_link(place: Path, name: str) -> None:
    forged = place / "elsewhere"
    shutil.copy(place / name, forged)
    _write_part(place, "elsewhere")
    (place / name).unlink()
    (place / name).symlink_to(forged)


FORGERIES: Mapping[str, Callable[[Path, Hibernated], object]] = {
    "another state": lambda place, about: _write_part(place, "state"),
    "another disk": lambda place, about: _write_part(place, "disk"),
    "a description of it": lambda place, about: _describe(place, about, None),
    "a seal without a key": lambda place, about: _describe(place, about, b""),
    "a seal with another key": lambda place, about: _describe(place, about, bytes(32)),
    "a link to a state": lambda place, about: _put_link(place, "state"),
    "a link to a disk": lambda place, about: _put_link(place, "disk"),
}

if __name__ == "__main__":
    _play(Path(sys.argv[1]))
