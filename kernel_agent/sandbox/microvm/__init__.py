"""Level ``microvm``: the kernel in a virtual machine with a separate Linux, under QEMU.

The kernel's code runs on another Linux that shares nothing with this one but a wire
(:mod:`.guest.wire`), two disks and a processor, which is the computer's own where KVM works and
an emulated one elsewhere. Beside it runs :mod:`.host`, which is the kernel's process to its
parent. The image that machines start from is built once (:mod:`.image`).

A machine can be hibernated: :func:`hibernate` writes it to a folder, and a kernel that is prepared
with ``resume`` goes on from there, with all its variables.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError
from kernel_agent.safe import remove
from kernel_agent.sandbox.environment import host_python, search_path
from kernel_agent.sandbox.levels import Grant, Launch, Level, Limits, Probe
from kernel_agent.sandbox.microvm import files, hibernated, host, image, machine
from kernel_agent.sandbox.microvm.filesystem import interpreter
from kernel_agent.sandbox.microvm.hibernated import MIN_MEMORY_MB, Hibernated

LEVEL = Level(
    name="microvm",
    shares_folder=False,
    hibernates=True,
    summary="a machine of its own under QEMU, with its own Linux kernel",
    covered=(
        "files: the machine has a copy of the workspace and of the interpreter, and nothing else",
        "inputs: changes to them stay in the machine",
        "network: there is no network card",
        "processes: other processes of this computer do not exist in it",
        "this computer's kernel: system calls go to the machine's own kernel",
        "memory: the machine has a fixed amount",
        "disk: the second disk has a fixed size",
        "files that come out: regular ones, into the workspace only, bounded in number and size",
    ),
    not_covered=(
        "a hole in QEMU (as nobody for root, in bubblewrap where that works), or in KVM if used",
        "without KVM the processor is emulated: right, but many times slower",
        "links, devices and permissions of files do not come out of the machine",
        "what a thread writes after its cell's end comes out with the next cell, or is lost",
        "side channels of the processor",
        "named hosts (--allow-host): there is no way out",
    ),
    claims=(
        "files",
        "network",
        "environment",
        "capabilities",
        "no_new_privs",
        "processes",
        "writes",
        "inputs",
    ),
    patience_s=300.0,  # a boot takes half a minute on an emulated processor, and more beside others
)

BUILD = "kernel-agent microvm build"
PROBE_S = 60.0


def probe() -> Probe:
    """Wake a machine from the image and hear it answer; once per process and image."""
    manifest = image.load()
    if machine.version() is None:
        advice = "install QEMU (Debian: qemu-system-x86), then: " + BUILD
        return Probe(works=False, reason="there is no QEMU", advice=advice)
    if manifest is None:
        return Probe(works=False, reason="there is no machine image", advice=f"build it: {BUILD}")
    try:
        python = manifest.made_from.get("python", "").rpartition(" ")[0]
        if python != str(host_python()):
            reason = f"the machine image has another interpreter, {python}"
            return Probe(works=False, reason=reason, advice=f"Build it again: {BUILD}")
        changed = image.changes(manifest.made_from, _made_from(python))
    except SandboxError as error:
        return Probe(works=False, reason=str(error), advice=f"Build it again: {BUILD}")
    if changed:
        reason = f"the machine image is stale: {'; '.join(changed)}"
        return Probe(works=False, reason=reason, advice=f"Build it again: {BUILD}")
    return _wakes(manifest.built)


@functools.cache
def _made_from(python: str) -> dict[str, str]:
    return image.list_sources(interpreter(python))


@functools.cache
def _wakes(_built: str) -> Probe:
    manifest = image.load()
    assert manifest is not None
    try:
        seconds = machine.wake(image.folder(), manifest.accelerator, manifest.memory_mb, PROBE_S)
    except (machine.MachineError, machine.QemuError, OSError) as error:
        reason = f"the machine does not wake up: {error}"
        return Probe(works=False, reason=reason, advice=f"build the image again: {BUILD}")
    processor = image.describe(manifest)["processor"]
    return Probe(works=True, reason=f"a machine woke up in {seconds:.1f} s; {processor}")


def facts() -> dict[str, Any]:
    """Return the image's facts for reports: processor, memory, Linux, digests."""
    manifest = image.load()
    return {} if manifest is None else image.describe(manifest)


def status(found: Probe) -> list[str]:
    """Return lines on the state of the level on this computer."""
    lines = [f"{'works' if found.works else 'does not work'}: {found.reason}"]
    if found.advice:
        lines.append(found.advice)
    manifest = image.load()
    if manifest is not None:
        lines += [f"{name}: {value}" for name, value in image.describe(manifest).items()]
        lines.append(f"packages: {len(manifest.packages)}, as of {manifest.built}")
        cage = "in bubblewrap" if machine.cage_works() else "not in bubblewrap, which does not work"
        lines.append(f"QEMU runs as {'nobody' if os.geteuid() == 0 else 'you'}, {cage}")
        lines.append(f"image: {image.folder()}, {manifest.root_mb + manifest.state_mb} MB")
    return lines


def build(say: Callable[[str], None], *, python: str = sys.executable) -> image.Manifest:
    """Build the machine image; called by the command line.

    Parameters
    ----------
    say
        Called with each step, as one line.
    python
        The interpreter that kernels run in.

    Raises
    ------
    SandboxError
        It cannot be built here; the message says why.
    """

    def boot(work: Path, accelerator: str, memory_mb: int) -> float:
        # A processor that works boots in a few seconds; an emulated one in half a minute.
        seconds = 20.0 if accelerator == "kvm" else host.BOOT_S
        try:
            return machine.boot(
                work, accelerator, memory_mb, seconds=seconds, scratch_mb=image.SCRATCH_MB
            )
        except (machine.MachineError, machine.QemuError) as error:
            raise SandboxError(f"the machine does not boot: {error}") from None

    return image.build(say, boot=boot, python=python)


def prepare(
    grant: Grant,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    resume: Path | None = None,
) -> Launch:
    """Return how to start ``command`` in a machine.

    Parameters
    ----------
    grant, command, environment
        As for every level. ``command`` names its connection file after ``-f``.
    resume
        The folder of a hibernated machine: its kernel goes on, and ``command`` is not started.
        Then this is called in a thread: the machine's parts are copied.

    Raises
    ------
    SandboxError
        There is no image that fits, the inputs do not fit on the machine's disk, or the
        hibernated machine is not one, not the caller's, changed, or of another image.
    """
    manifest = image.load()
    if manifest is None:
        raise SandboxError(f"there is no machine image: {BUILD}")
    if grant.proxy is not None:
        raise SandboxError("named hosts cannot be allowed in a machine: it has no network")
    memory_mb = _memory_mb(grant.limits, manifest)
    disk_mb = min(grant.limits.disk_mb, image.SCRATCH_MB)
    if resume is not None:
        about = hibernated.read_about(resume, manifest)
        memory_mb, disk_mb = about.memory_mb, about.disk_mb
    else:
        _check_fits(grant)
    connection, argv = _connection_file(command), inside(command, manifest)
    parts = () if resume is None else hibernated.copy_parts(resume, about)
    start = host.Start(
        image=str(image.folder()),
        accelerator=manifest.accelerator,
        memory_mb=memory_mb,
        disk_mb=disk_mb,
        host=os.getpid(),
        saved=memory_mb == manifest.memory_mb,
        resume=parts,
        connection=connection,
        workspace=str(grant.workspace),
        sockets=str(grant.sockets),
        command=argv,
        environment=environment_inside(environment, grant.python),
        limits={k: v for k, v in asdict(grant.limits).items() if v is not None},
        code=str(grant.code),
        files=tuple(str(path) for path in grant.files if _is_apart(path, grant)),
        protected=tuple(map(str, grant.protected)),
        hidden=tuple(map(str, grant.hidden)),
        readable=tuple(map(str, grant.readable)),
    )
    beside = [sys.executable, "-I", "-S", str(Path(__file__).parent), start.to_json()]
    return Launch(
        command=beside,
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        pass_fds=parts,
    )


def _memory_mb(limits: Limits, manifest: image.Manifest) -> int:
    """Return the machine's memory; a limit is one of everything, QEMU included."""
    if limits.memory_mb is None:
        return manifest.memory_mb
    memory_mb = min(limits.memory_mb - machine.OVERHEAD_MB, manifest.memory_mb)
    if memory_mb < MIN_MEMORY_MB:
        least = MIN_MEMORY_MB + machine.OVERHEAD_MB
        raise SandboxError(f"a machine needs {least} MB of memory, not {limits.memory_mb}")
    return memory_mb


def inside(command: Sequence[str], manifest: image.Manifest) -> tuple[str, ...]:
    """Return the command without its interpreter, which waits in the machine already.

    Raises
    ------
    SandboxError
        The image was built from another interpreter, or the command is not Python's.
    """
    python = manifest.made_from["python"].rpartition(" ")[0]
    if command[0] != python:
        raise SandboxError(f"the machine image has {python}, not {command[0]}: {BUILD}")
    rest = list(command[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        del rest[: 2 if rest[0] in ("-X", "-W") else 1]
    if not rest:
        raise SandboxError("the kernel's command names no script")
    return tuple(rest)


def environment_inside(environment: Mapping[str, str], python: Path) -> dict[str, str]:
    """Return the kernel's environment as it is in the machine."""
    outside = {"JPY_PARENT_PID", "TMPDIR", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}
    kept = {name: value for name, value in environment.items() if name not in outside}
    return {
        **kept,
        "PATH": search_path(python, "/usr/bin", "/bin"),
        "HOME": "/run/disk/home",
        "MPLCONFIGDIR": "/tmp/.matplotlib",
        "IPYTHONDIR": "/run/disk/home/.ipython",
        "LC_CTYPE": "C.UTF-8",
    }


def _is_apart(path: Path, grant: Grant) -> bool:
    """Whether a file is there, and not in a folder that goes into the machine anyway."""
    return path.is_file() and not path.is_relative_to(grant.code)


def _connection_file(command: Sequence[str]) -> str:
    try:
        return command[list(command).index("-f") + 1]
    except (ValueError, IndexError):
        raise SandboxError("the kernel's command names no connection file (-f)") from None


def _check_fits(grant: Grant) -> None:
    needed = files.size_of((grant.workspace, *grant.readable), grant.hidden)
    if needed > (grant.limits.disk_mb << 20) * 0.9:
        raise SandboxError(
            f"the inputs are {needed >> 20} MB, too large for the machine's disk of "
            f"{grant.limits.disk_mb} MB: allow more with --disk-mb"
        )


# --- hibernation ---------------------------------------------------------------------------------


async def hibernate(sockets: Path, folder: Path, kernel: Mapping[str, Any]) -> Hibernated:
    """Write a running machine to a folder and end it.

    Parameters
    ----------
    sockets
        The kernel's directory of sockets, as in its grant.
    folder
        Where to; it is made, and removed again when this fails.
    kernel
        What is needed to resume (the connection's key); the folder is private for it.

    Raises
    ------
    SandboxError
        The machine did not come to rest, or the disk is full; the kernel may be gone.
    """
    manifest = await asyncio.to_thread(image.load)
    if manifest is None:
        raise SandboxError("the machine image is gone, so the machine could not be resumed")
    folder = await asyncio.to_thread(hibernated.new_folder, folder)
    try:
        answer = await _ask(sockets / host.CONTROL, {"hibernate": str(folder)})
        about = Hibernated(
            format=hibernated.FORMAT,
            image_sha256=manifest.root_sha256,
            qemu=manifest.made_from["qemu"],
            kernel=dict(kernel),
            time=time.time(),
            **answer,
        )
        await asyncio.to_thread(hibernated.write_about, folder, about)
    except BaseException:
        remove(folder)
        raise
    return about


async def _ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
        writer.close()
        answer = dict(json.loads(line))
    except (OSError, ValueError) as error:
        raise SandboxError(f"the machine does not answer: {error}") from None
    if "error" in answer:
        raise SandboxError(f"the machine could not be hibernated: {answer['error']}")
    return answer


def read_hibernated(folder: Path) -> Hibernated:
    """Read a hibernated kernel's folder, and check that it can be resumed here.

    Raises
    ------
    SandboxError
        It is not a hibernated machine, not the caller's, changed, or not of this image and QEMU.
    """
    return hibernated.read_about(folder, image.load())
