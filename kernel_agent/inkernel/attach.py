"""Turn a running stock ipykernel into an agent's kernel: for kernels that others start.

Its process cannot be configured any more, so two things are less than in our own kernel: what C
code and child processes print may come with the next cell, and the cap on output holds for what
Python prints.
"""

from __future__ import annotations

import atexit
import base64
import codecs
import contextlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .app import _install_namespace
from .stream import CappedStream


class AdoptedStream(CappedStream):
    """A stream whose descriptor is watched already, by ipykernel's own thread."""

    def drain(self) -> None:
        """Leave the descriptor to that thread."""


def adopt(settings: dict[str, Any]) -> str:
    """Install what cells of an agent find, and a folder to work in; return the folder's path."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        _cap(stream)
    # IPython wraps `write` while a cell runs and puts the old method back when this one has ended.
    shell._tee = lambda channel: contextlib.nullcontext()  # noqa: ARG005 - called by keyword
    shell.events.register("pre_run_cell", lambda _info: [vars(s).pop("write", 0) for s in streams])
    _install_namespace(shell.kernel, shell, settings)
    folder = tempfile.mkdtemp(prefix="kernel-agent-")
    os.chdir(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def receive(name: str, data: str) -> None:
    """Append a piece, in base64, to an input file below the folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(base64.b64decode(data))


def _cap(stream: Any) -> None:
    stream.__class__ = AdoptedStream
    stream._cuts = {}
    stream._cut_lock = threading.Lock()
    stream._fd_lock = threading.Lock()
    stream._flush_lock = threading.RLock()
    stream._decoder = codecs.getincrementaldecoder("utf-8")("replace")
