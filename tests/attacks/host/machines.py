"""What a machine says on its wire to the process beside it, which is this computer's.

A machine of the level ``microvm`` that its cells have taken over may say anything there. No machine
is started: the frames are given to that process's own half. What counts is whether it ended of
them, stood still for ever, or left a trace outside of its folder.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

COMMAND_S, FRAMES = 60.0, 20_000
NUMBERS = (-19, -20, -21, -22, -18, -9, -64, 0)  # that stop a process, go on, end it, and others
PATHS = (b"a", b"plots/a.png", b"data/in.csv", b"trace.jsonl", b"way-out/secret", b"../secret",
         b"file-out", b"x/" * 40, b"", b"a\0b", b"pipe", b"pipe/x")  # fmt: skip


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("the process") else ""


@host_attack("host-confusion", _told, timeout_s=100)
async def frames_of_a_machine_taken_over(folder: Path) -> str:
    """microVM: 20,000 frames about files in any order, and its kernel's end by signals that stop"""
    (folder / "secret").write_text("secret")
    frames = _start(folder, "frames")
    if frames.wait(COMMAND_S):
        return f"the process beside the machine ended of frames with {frames.returncode}"
    if (folder / "secret").read_text() != "secret" or (folder / "outside").exists():
        return "the process beside the machine wrote outside of the folder"
    endings = {number: _start(folder, str(number)) for number in NUMBERS}
    end = time.monotonic() + COMMAND_S
    while time.monotonic() < end and any(each.poll() is None for each in endings.values()):
        await asyncio.sleep(0.1)
        if all(each.poll() is not None or _state(each.pid) == "T" for each in endings.values()):
            break
    stopped = [number for number, each in endings.items() if each.poll() is None]
    for number in stopped:
        endings[number].kill()
        endings[number].wait()
    if stopped:
        return f"the process beside the machine stands still for ever: exit {stopped}"
    raise PermissionError(1, "each frame was taken or refused, each end was one")


def _start(folder: Path, what: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", __name__, str(folder), what]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _state(pid: int) -> str:
    """Return T for a process that was stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _play(folder: Path, what: str) -> None:
    """Take frames as the process beside a machine does, or end as it does when told to."""
    from kernel_agent.sandbox.microvm import host

    kernel = object.__new__(host.Kernel)
    kernel._log_left = 10_000
    if what != "frames":
        kernel._on_note({"note": "exit", "code": int(what)})
        code = kernel._exit_code
        host.Kernel = lambda start: type("Ended", (), {"run": lambda self: code})()  # type: ignore[misc, assignment]
        host.end_with = lambda process: None
        host.Start = lambda **_: type("Start", (), {"host": os.getpid()})()  # type: ignore[misc, assignment]
        host.main("{}")
    _take_frames(kernel, folder / "workspace")


def _take_frames(kernel: object, root: Path) -> None:
    from kernel_agent.sandbox.microvm import files, host

    (root / "data").mkdir(parents=True)
    (root / "data" / "in.csv").write_text("input")
    (root / "way-out").symlink_to(root.parent)
    (root / "file-out").symlink_to(root.parent / "secret")
    os.mkfifo(root / "pipe")
    box = files.Inbox(root, refused=("data", "trace.jsonl"), max_bytes=1_000_000)
    kernel._inbox = box  # type: ignore[attr-defined]
    chosen = random.Random(7)
    kinds = (host.FILE, host.BYTES, host.MAKE, host.GONE)
    for _ in range(FRAMES):
        kind = chosen.choice(kinds)
        is_path = kind != host.BYTES
        payload = chosen.choice(PATHS) if is_path else chosen.choice((b"", b"x" * 500, b"y"))
        kernel._take(kind, payload)  # type: ignore[attr-defined]
    box.close()
    if (root / "data" / "in.csv").read_text() != "input":
        raise SystemExit("an input was changed")


if __name__ == "__main__":
    _play(Path(sys.argv[1]), sys.argv[2])
