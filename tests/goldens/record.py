"""Write the recordings anew, or into another folder: ``record.py [--to FOLDER] [PART …]``.

``sessions:fenced,tables`` records these sessions alone (``fenced`` is told in whole, and stands
first), and changes nothing else in the folder.

A recording is made in a process with an environment and a working directory of its own, so that it
does not depend on who makes it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
PARTS = ("commands", "sessions", "surface")
SETTINGS = """[prices."scripted:costly.jsonl"]
prompt = 1.0
completion = 2.0
"""
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "USER", "PYTHONDONTWRITEBYTECODE")


def record(part: str, to: Path, first: Path | None = None, left: Path | None = None) -> None:
    """Write the recordings of a part below a folder.

    Modules are looked for in ``first`` first; what the sessions leave is moved to ``left``.
    """
    folder = Path(tempfile.mkdtemp(prefix="goldens-", dir="/tmp"))
    (folder / "config.toml").write_text(SETTINGS)
    work, home = folder / "work", folder / "home"  # beneath a home, paths would begin with ~
    work.mkdir()
    home.mkdir()
    modules = os.pathsep.join(str(path) for path in (first, HERE.parent) if path)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC",
        "LC_ALL": "C.UTF-8", "PYTHONPATH": modules, "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "default", "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"), "KERNEL_AGENT_CONFIG": str(folder / "config.toml"),
        "HOME": str(home), "JUPYTER_PLATFORM_DIRS": "1", "OTEL_SDK_DISABLED": "true",
    }  # fmt: skip
    try:
        command = [sys.executable, str(HERE / "record.py"), "--here", part, "--to", str(to)]
        subprocess.run(command, cwd=work, env=environment, check=True, timeout=600,
                       stdin=subprocess.DEVNULL)  # fmt: skip
        if left:
            shutil.move(work, left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record_here(part: str, to: Path) -> None:
    """Write a part's recordings; called in the process that makes them."""
    sys.path[0] = str(HERE.parent)
    part, _, names = part.partition(":")
    if names:
        from goldens.play import chosen

        make = chosen(names.split(","))
    elif part == "sessions":
        from goldens.play import sessions as make
    elif part == "commands":
        from goldens.commands import commands as make
    else:
        from goldens.surface import surface as make
    for name, text in make(Path.cwd()).items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n", errors="surrogatepass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART")
    parser.add_argument("--to", type=Path, default=RECORDED)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        record_here(*asked.parts, asked.to)
        return
    for part in asked.parts:
        shutil.rmtree(asked.to / part, ignore_errors=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda part: record(part, asked.to.absolute()), asked.parts))


if __name__ == "__main__":
    main()
