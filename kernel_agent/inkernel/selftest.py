"""The sandbox's self-test, run inside before any cell.

The host writes what it planted and what the level claims; the report goes back as a file. A claim
that does not hold ends the kernel before it has run anything.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any


def run(asked: dict[str, Any]) -> None:
    """Measure, write the report, and end the process if a claim does not hold.

    Raises
    ------
    RuntimeError
        Something that the sandbox claims does not hold; the message says what.
    """
    began = time.perf_counter()
    facts = measure(asked)
    holds = judge(facts)
    facts["milliseconds"] = round((time.perf_counter() - began) * 1000, 2)
    path = Path(asked["report"])
    path.write_text(json.dumps({"holds": holds, "facts": facts}))
    broken = [claim for claim in asked["claims"] if not holds.get(claim)]
    if broken:
        facts_of = {claim: facts.get(claim, facts) for claim in broken}
        raise RuntimeError(f"the sandbox does not hold what it claims: {facts_of}")


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the facts, without judging them."""
    status = _status()
    return {
        "files": {
            "canary": _opens(asked["canary"], os.O_RDONLY),
            "foreign": [path for path, *known in asked.get("foreign", ()) if _is(path, known)],
        },
        "namespaces": [
            name for name, link in asked.get("namespaces", {}).items() if _in(link, name)
        ],
        "mounts": _mounts(asked.get("mounts") or {}),
        "network": {"connect": _connects(asked["port"]), "udp": _datagram()},
        "environment": sorted(_foreign(set(asked["environment"]))),
        "capabilities": {
            name: status.get(name, "") for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")
        },
        "no_new_privs": status.get("NoNewPrivs", ""),
        "seccomp": status.get("Seccomp", ""),
        "processes": {"host": _sees(*asked["host"]), "seen": _count_visible()},
        "writes": [path for path in asked["unwritable"] if _creates(path)]
        + [path for path in asked["settings"] if _opens(path, os.O_WRONLY) == "opened"],
        "inputs": [path for path in asked["protected"] if _changes(path)]
        + [path for path in asked["hidden"] if _opens(path, os.O_RDONLY) == "opened"],
        "uid": os.getuid(),
    }


def judge(facts: dict[str, Any]) -> dict[str, bool]:
    """Return for each claim whether the facts bear it out."""
    return {
        "files": facts["files"]["canary"] != "opened" and not facts["files"]["foreign"],
        "namespaces": not facts["namespaces"],
        "mounts": not facts["mounts"],
        "network": facts["network"]["connect"] != "connected" and facts["network"]["udp"] != "sent",
        "environment": not facts["environment"],
        # What is left of CapBnd cannot be got at without executing with new privileges.
        "capabilities": all(
            int(facts["capabilities"][name] or missing, 16) == 0
            # Not every kernel tells of ambient ones; they are never more than the permitted.
            for name, missing in (("CapPrm", "1"), ("CapEff", "1"), ("CapAmb", "0"))
        ),
        "no_new_privs": facts["no_new_privs"] == "1",
        "seccomp": facts["seccomp"] == "2",
        "processes": not facts["processes"]["host"],
        "writes": not facts["writes"],
        "inputs": not facts["inputs"],
    }


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _opens(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error.errno)
    return "opened"


def _is(path: str, known: list[int]) -> bool:
    """Whether the host's own file or folder can be opened there, and not another of that name."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    about = os.fstat(handle)
    os.close(handle)
    # Its number need not be the same where another kernel opens it; its time is.
    return [about.st_dev, about.st_ino] == known[:2] or about.st_mtime_ns == known[2]


def _in(link: str, name: str) -> bool:
    """Whether this process is in the host's namespace of that kind."""
    try:
        return str(Path(f"/proc/self/ns/{name}").readlink()) == link
    except OSError:
        return True  # it cannot be told


def _mounts(granted: dict[str, Any]) -> list[str]:
    """Return the mounts that were not granted, and the grants that are not mounted."""
    if not granted:
        return []
    wrong, seen = [], set()
    writable, readable = granted["writable"], granted["readable"]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        place, options = _plain(fields[4]), fields[5].split(",")
        kind = fields[fields.index("-") + 1]
        seen.add(place)
        if "rw" in options and not _is_granted(place, writable) and kind != "proc":
            wrong.append(f"{place} is writable")
        elif readable is not None and not _is_granted(place, [*writable, *readable]):
            wrong.append(f"{place} was not granted")
    missing = {*writable, *(readable or ())} - seen if readable is not None else set()
    wrong += [f"{place} is not there" for place in sorted(missing)]
    return wrong + [
        f"{place} has more than {size:,} bytes"
        for place, size in granted["sizes"].items()
        if _bytes(place) > size
    ]


def _plain(field: str) -> str:
    """Undo the kernel's escapes of a path (proc_pid_mountinfo(5))."""
    for escape, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        field = field.replace(f"\\{escape}", character)
    return field


def _is_granted(place: str, grants: list[str]) -> bool:
    """Whether a path is a granted one or below one: the host may have mounts there as well."""
    return any(
        place == grant or place.startswith(f"{grant}/") for grant in grants if grant != "/"
    ) or (place == "/" and "/" in grants)


def _bytes(place: str) -> int:
    about = os.statvfs(place)
    return about.f_blocks * about.f_frsize


def _creates(folder: str) -> bool:
    path = f"{folder}/.kernel-agent-{os.getpid()}"
    if _opens(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) != "opened":
        return False
    Path(path).unlink()
    return True


def _changes(path: str) -> bool:
    return _creates(path) if Path(path).is_dir() else _opens(path, os.O_WRONLY) == "opened"


def _connects(port: int) -> str:
    """Try to reach the host's own listener, over the loopback interface."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return "connected"
    except OSError as error:
        return error.strerror or type(error).__name__


def _datagram() -> str:
    """Send a datagram to an address that is set aside for documentation (RFC 5737)."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", ("192.0.2.1", 9))
    except OSError as error:
        return error.strerror or type(error).__name__
    return "sent"


def _foreign(known: set[str]) -> set[str]:
    """Return variables that this kernel was not given, its first process's among them."""
    names = set(os.environ)
    try:
        first = Path("/proc/1/environ").read_bytes().split(b"\0")
        names |= {os.fsdecode(item.partition(b"=")[0]) for item in first if item}
    except OSError:
        pass
    return names - known


def _sees(pid: int, start: str) -> bool:
    """Whether the host's process can be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[19] == start


def _count_visible() -> int:
    try:
        return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
    except OSError:
        return 0
