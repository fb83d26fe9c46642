"""The kernel's side of folders of data: start their index, and give it to the host.

The index is made by another process (:mod:`.indexing`). Where it ends over a file, or takes too
long over one, that file is passed over and the next process goes on behind it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INDEX_MIME = "application/vnd.kernel-agent.index+json"
FILE_SECONDS = 5.0  # in which something must come
MAX_ENDED = 20  # processes that may end over a file
FAILED = "could not be looked at"  # the kind of a file over which one ended

_PROGRAM = (
    "import sys; sys.path[:0] = [sys.argv[1]]; import launch; launch.load_inside(); "
    "from importlib import import_module; import_module(launch.NAME + '.indexing').main()"
)


class Indexed:
    """The index of folders, in the form in which the host reads it."""

    def __init__(self, folders: Sequence[dict[str, Any]], sample: int, seconds: float) -> None:
        self._asked: dict[str, Any] = {"folders": list(folders), "sample": sample}
        self._until = time.monotonic() + seconds

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        layouts: list[Any] = []
        files: list[Any] = []
        failed: list[int] = []
        done, whole = 0, False
        for _attempt in range(MAX_ENDED):
            whole, opened = self._read(done, layouts, files)
            if whole or not opened or time.monotonic() > self._until:
                break
            number, path, size = opened
            done = number + 1
            layouts.append([FAILED, [], "", 0, "", False, []])
            files.append([number, path, size, len(layouts) - 1, -1, False, ""])
            failed.append(number)
        return {INDEX_MIME: {"layouts": layouts, "files": files, "whole": whole, "failed": failed}}

    def _read(self, done: int, layouts: list[Any], files: list[Any]) -> tuple[bool, list[Any]]:
        """Read what one process writes; return whether it came to its end, and what it opened."""
        here = str(Path(__file__).resolve().parent)
        opened: list[Any] = []
        offset, rest = len(layouts), b""
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-c", _PROGRAM, here],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps({**self._asked, "done": done}).encode())
                process.stdin.close()
                while self._has_more(process.stdout.fileno()):
                    piece = os.read(process.stdout.fileno(), 1 << 20)
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in map(json.loads, lines):
                        if "file" in line:
                            line["file"][3] += offset
                            files.append(line["file"])
                            opened = []
                        elif "layout" in line:
                            layouts.append(line["layout"])
                        elif "opens" in line:
                            opened = line["opens"]
                        else:
                            return True, opened
                    if not piece:
                        break
            finally:
                process.kill()
        return False, opened

    def _has_more(self, handle: int) -> bool:
        left = min(FILE_SECONDS, self._until - time.monotonic())
        return left > 0 and bool(select.select([handle], [], [], left)[0])


def indexed(folders: Sequence[dict[str, Any]], sample: int, seconds: float) -> Indexed:
    """Return the index of folders; called by the host's user expression."""
    return Indexed(folders, sample, seconds)
