"""The command, as a person starts it: in a process of its own, or in this one, which is quicker."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernel_agent.__main__ import main

ROOT = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without settings and keys of its own, and with these."""
    own = ("OPENAI_", "KERNEL_AGENT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **changes}


def run_command(
    folder: Path, *arguments: str, stdin: str = "", **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, in this process, and check that no traceback is ever shown.

    Not for what only a process has: signals, a terminal, streams that are closed, its end.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        _within(folder, ["kernel-agent", *arguments], environment(**changes)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdin = before
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    assert "Traceback" not in said[1], said[1]
    return subprocess.CompletedProcess(arguments, int(code or 0), *said)  # type: ignore[call-overload]


@contextlib.contextmanager
def _within(folder: Path, words: list[str], names: Mapping[str, str]) -> Iterator[None]:
    """Be in a folder, started with these words and this environment."""
    was = Path.cwd(), sys.argv, dict(os.environ)
    os.chdir(folder)
    sys.argv = words
    _set_environment(names)
    try:
        yield
    finally:
        os.chdir(was[0])
        sys.argv = was[1]
        _set_environment(was[2])


def _set_environment(names: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(names)
