"""The user's answers about files of others, kept outside of the folders of those.

A file of tasks may come from anybody. What it reaches (:mod:`kernel_agent.evaluation`) takes effect
only after the user has said so, for that path and that very content: a file that changes is asked
about again. The answers lie in the user's own state folder, readable and writable for nobody else;
a record that somebody else could have written counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from pathlib import Path

from kernel_agent.safe.root import Folder
from kernel_agent.safe.runtime_dir import make_private

RECORD = "settings-files.json"
MAX_BYTES = 1 << 20  # some thousands of answers
KEPT = 1000  # answers; the oldest are forgotten


def state_folder() -> Path | None:
    """Return the user's own state folder; None where there is no place that only they control.

    A relative path would be one in the working directory, which is what is not believed.
    """
    import platformdirs

    folder = Path(platformdirs.user_state_dir("kernel-agent"))
    return folder if folder.is_absolute() else None


def record_file() -> Path | None:
    """Return the file of answers; None where there is no place that only the user controls."""
    folder = state_folder()
    return None if folder is None else folder / RECORD


def answer_on(path: Path, content: bytes) -> bool | None:
    """Return whether the user has allowed this file; None when nobody was asked."""
    entry = _read(record_file()).get(os.path.realpath(path))
    if not isinstance(entry, dict) or entry.get("sha256") != _digest(content):
        return None
    allowed = entry.get("allowed")
    return allowed if isinstance(allowed, bool) else None


def keep_answer(path: Path, content: bytes, *, allowed: bool) -> bool:
    """Keep an answer; return whether that was possible."""
    record = record_file()
    if record is None:
        return False
    entry = {"sha256": _digest(content), "allowed": allowed, "time": int(time.time())}
    name = os.path.realpath(path)
    kept = {key: value for key, value in _read(record).items() if key != name}
    latest = dict([*kept.items(), (name, entry)][-KEPT:])
    try:
        make_private(record.parent, exist_ok=True)
        with Folder(record.parent) as folder:
            data = json.dumps(latest, indent=1).encode("utf-8", "backslashreplace")
            folder.replace(record.name, data, mode=0o600)
    except OSError:
        return False
    return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(record: Path | None) -> dict[str, object]:
    """Return the answers by path; none from a record that is not the user's alone."""
    if record is None:
        return {}
    try:
        with Folder(record.parent) as folder, folder.open(record.name) as file:
            about = os.fstat(file.fileno())
            shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            ours = about.st_uid == os.geteuid() and not shared
            answers = json.loads(file.read(MAX_BYTES)) if ours else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return answers if isinstance(answers, dict) else {}
