"""Play all attacks at all levels, as root and as an ordinary user; keep the results.

``python -m attacks.collect`` (or ``make attacks``) writes ``docs/attacks.json``, the page
``docs/attacks.md``. As root, the ordinary user is played with the
interpreter that ``KERNEL_AGENT_USER_PYTHON`` names, under the uid ``KERNEL_AGENT_USER_ID``
(1001 by default).

An attack's *control* is that it succeeds for an ordinary user without a sandbox. Where it does not,
and no reason for that stands in the catalogue, the attack shows nothing here: it counts as not run.
Attacks on resources have none: the host's watchdog stands behind every level, ``none`` included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attacks.words import BOUNDARY, CATALOGUE, HOST, Attack, load

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "attacks.json"
USERS = ("user", "root")
LEVELS = ("none", "landlock", "namespaces", "bubblewrap", "container", "gvisor", "microvm")
WHOLE = ("none", "bubblewrap")
"""Levels at which also those attacks are played that the session stops, not the sandbox."""
LEVEL_TIMEOUT_S = 2400
ACCOUNT = int(os.environ.get("KERNEL_AGENT_USER_ID", "1001"))


def chosen_for(level: str, user: str, *, brief: bool = False) -> list[str]:
    """Return the names of the attacks that are played at a level, ``browser`` among them.

    What only the session can stop is the same at every level and for every user. Brief is without
    what needs a kernel of its own, since that takes most of the time; a machine under software
    emulation is always too slow for those.
    """
    load()
    whole = level in WHOLE and user == "user" and not brief
    short = brief or level == "microvm"
    names = [
        a.name
        for a in CATALOGUE.values()
        if whole or not (_of_the_session(a) or (short and a.own_kernel))
    ]
    return [*names, "browser"] if whole else names


def _of_the_session(attack: Attack) -> bool:
    own = attack.category in HOST
    return own or (attack.category == "resource" and attack.no_control.startswith("the session"))


def play_as(user: str, level: str, names: Sequence[str], tree: Path) -> dict[str, Any]:
    """Play a level's attacks as ``root`` or as ``user`` in a process of its own."""
    told = {"level": level, "user": user, "date": today(), "started": False, "results": []}
    if user == "root" and level == "none":
        return {**told, "reason": "never played: without a sandbox these attacks are real"}
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(tree / f"home-{user}"),
        "PYTHONPATH": f"{tree}:{tree / 'tests'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable]
    if user == "user" and os.getuid() == 0:
        python = os.environ.get("KERNEL_AGENT_USER_PYTHON", "")
        if not python:
            return {**told, "reason": "KERNEL_AGENT_USER_PYTHON names no interpreter"}
        group = _group_of(ACCOUNT)
        ids = ("--reuid", str(ACCOUNT), "--regid", str(group))
        command = ["setpriv", *ids, "--clear-groups", python]
        os.chown(tree / f"home-{user}", ACCOUNT, group)
    try:
        done = subprocess.run(
            [*command, "-m", "attacks.play", level, *names],
            env=environment, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            timeout=LEVEL_TIMEOUT_S, start_new_session=True, check=True,
        )  # fmt: skip
        return {**told, **json.loads(_without_places(done.stdout.decode(), tree, command))}
    except (subprocess.SubprocessError, ValueError) as error:
        return {**told, "reason": f"the suite failed: {str(error)[-200:]}"}


def _group_of(uid: int) -> int:
    """Return a user's own group: newuidmap, which podman needs, refuses another one."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:  # a user without a name
        return uid


def _without_places(text: str, tree: Path, command: Sequence[str]) -> str:
    """Replace where things lie on this machine: the results are published."""
    environment = Path(command[-1]).parent.parent
    places = {tree: "<program>", ROOT: "<program>", environment: "<environment>",
              Path(sys.base_prefix): "<python>", Path.home(): "<home>"}  # fmt: skip
    for place, name in places.items():
        if len(place.parts) > 1:
            text = text.replace(str(place), name)
    return re.sub(r"/(?:var/)?tmp/[\w.-]+", "<temporary>", text)


@contextlib.contextmanager
def readable_tree() -> Iterator[Path]:
    """Copy the program and the suite to where an ordinary user may read them."""
    tree = Path(tempfile.mkdtemp(prefix="ka-attacks-", dir="/var/tmp"))
    try:
        tree.chmod(0o755)
        for part in ("kernel_agent", "extension", "tests/attacks", "tests/servers"):
            shutil.copytree(ROOT / part, tree / part)  # with what is compiled already
        for user in USERS:
            (tree / f"home-{user}").mkdir()
        told = (
            tree / "kernel_agent-0.dist-info"
        )  # an interpreter that the program is not installed in
        told.mkdir()
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: kernel-agent\nVersion: 0\n")
        (told / "entry_points.txt").write_text(
            "[jupyter_client.kernel_provisioners]\n"
            "kernel-agent = kernel_agent.sandbox.provisioner:KernelAgentProvisioner\n"
        )
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def today() -> str:
    """Return the day in UTC."""
    return datetime.now(UTC).date().isoformat()


def machine() -> dict[str, Any]:
    """Return what the results depend on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": today(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "memory_gb": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "ipykernel": _package("ipykernel"),
        **{name: _first_line([name, "--version"]) for name in (
            "bwrap", "podman", "runsc", "qemu-system-x86_64", "chromium",
        )},
    }  # fmt: skip


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return "not here"
    return (done.stdout.splitlines() or [""])[0][:100]


def with_controls(played: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count as not run what did not succeed without a sandbox either, for no known reason."""
    control = next((p for p in played if p["level"] == "none" and p["started"]), None)
    if control is None:
        return played
    catalogue = load()
    failed = {
        r["attack"]
        for r in control["results"]
        if r["verdict"] != "not stopped"
        and not catalogue[r["attack"]].no_control
        and catalogue[r["attack"]].category in (*BOUNDARY, "persistence", "browser")
    }
    for part in played:
        for result in part["results"] if part is not control else ():
            if result["attack"] in failed and result["verdict"] != "not stopped":
                result |= {"verdict": "not run", "seen": "its control does not succeed here"}
    return played


def main() -> None:
    """Play, and write the results and the table."""
    from attacks.table import write

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--level", action="append", help="only this level (again for more)")
    parser.add_argument("--user", choices=USERS, help="only as this one")
    parser.add_argument("--brief", action="store_true", help="only what shares one kernel")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    users = [user for user in USERS if user == "user" or os.getuid() == 0]
    levels = arguments.level or LEVELS
    played = []
    with readable_tree() as tree:
        for level in levels:
            for user in [arguments.user] if arguments.user else users:
                print(f"== {level} as {user}", file=sys.stderr, flush=True)
                names = chosen_for(level, user, brief=arguments.brief)
                played.append(play_as(user, level, names, tree))
    attacks = [
        {"name": a.name, "category": a.category, "title": a.title, "no_control": a.no_control}
        for a in load().values()
    ]
    played = _with_earlier(played, arguments.output)
    told = {"machine": machine(), "attacks": attacks, "played": with_controls(played)}
    arguments.output.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    if arguments.output == RESULTS:
        write()


def _with_earlier(played: list[dict[str, Any]], output: Path) -> list[dict[str, Any]]:
    """Return what was played now, and of the rest what was played before, in the usual order."""
    earlier = json.loads(output.read_text())["played"] if output.is_file() else []
    by_place = {(part["level"], part["user"]): part for part in [*earlier, *played]}
    return sorted(
        by_place.values(), key=lambda p: (LEVELS.index(p["level"]), USERS.index(p["user"]))
    )


if __name__ == "__main__":
    main()
