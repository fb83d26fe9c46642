"""Attacks on the choice of a sandbox: programs that a cell left where the next command looks."""

from __future__ import annotations

import os
from pathlib import Path

from attacks.stage import Stage
from attacks.words import Report, host_attack

PROGRAMS = ("bwrap", "podman", "crun", "runc", "runsc", "qemu-system-x86_64")
LEVELS = ("bubblewrap", "container", "gvisor", "microvm")


def _told(stage: Stage, report: Report) -> str:
    return report.text.removeprefix("SEEN: ") if report.text.startswith("SEEN: ") else ""


@host_attack("next-command", _told, timeout_s=110)
async def programs_in_the_folder(folder: Path) -> str:
    """Programs called bwrap, podman, runsc and QEMU in the run's folder, which PATH names"""
    from kernel_agent.sandbox import chooser

    before = chooser.choose("auto").name
    chooser.probe.cache_clear()
    folder.chmod(0o777)
    for name in PROGRAMS:
        planted = folder / name
        planted.write_text(f'#!/bin/sh\necho x >> "{folder}/ran-$(basename "$0")"\nexit 1\n')
        planted.chmod(0o755)
    os.environ["PATH"] = f".:{folder}:{os.environ['PATH']}"
    now = chooser.choose("auto").name
    for level in LEVELS:
        chooser.probe(level)
    ran = sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))
    if not ran and now == before:
        raise PermissionError(1, f"auto is {now}, and nothing that was planted ran")
    return f"SEEN: auto chose {now} and not {before}; of what was planted ran {', '.join(ran)}"
