"""Words that a shell completes: models, levels, formats, data files, folders of runs.

Each function is given what is typed so far and returns what it may become. Nothing is started and
no endpoint is asked; a folder that cannot be read has nothing in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Complete = Callable[[str], list[str]]


def models(incomplete: str) -> list[str]:
    """Return the models that are known without asking: ours, and the configured ones."""
    from kernel_agent.config import load_config
    from kernel_agent.errors import KernelAgentError

    if incomplete.startswith("scripted:"):
        scripts = _files(incomplete.removeprefix("scripted:"), _is_script)
        return [f"scripted:{path}" for path in scripts]
    try:
        config = load_config()
    except KernelAgentError:
        return _beginning(["offline", "scripted:"], incomplete)
    named = [config.model] if config.model else []
    return _beginning([*named, *config.prices, "offline", "scripted:"], incomplete)


def levels(incomplete: str) -> list[str]:
    """Return the sandbox levels."""
    from kernel_agent.sandbox import MODULES

    return _beginning(["auto", *MODULES], incomplete)


def formats(incomplete: str) -> list[str]:
    """Return the formats of actions."""
    from kernel_agent.config import SETTINGS

    return _beginning(re.findall(r"`(\w+)`", SETTINGS["format"].about), incomplete)


def approvals(incomplete: str) -> list[str]:
    """Return what may be asked about."""
    from kernel_agent.config import SETTINGS

    return _beginning(SETTINGS["approve"].choices, incomplete)


def data_files(incomplete: str) -> list[str]:
    """Return data files, and the folders on the way to them."""
    return list(_files(incomplete, _is_data))


def runs(incomplete: str) -> list[str]:
    """Return the folders of runs, the newest first, and folders on the way to them."""
    return list(_files(incomplete or _usual(), _is_trace))


def notebooks(incomplete: str) -> list[str]:
    """Return notebooks, folders of runs, and the folders on the way to them."""
    return list(_files(incomplete, _is_notebook))


SETTINGS: dict[str, Complete] = {
    "model": models,
    "sandbox": levels,
    "format": formats,
    "approve": approvals,
}
"""By the name of the setting that an option gives."""


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _usual() -> str:
    return "runs/" if Path("runs").is_dir() else ""


def _files(incomplete: str, fits: Callable[[Path], bool]) -> Iterator[str]:
    """Yield the files and folders that a path may become: ``fits`` says which files."""
    above, _, begun = incomplete.rpartition("/")
    folder = Path(above or ("/" if incomplete.startswith("/") else ".")).expanduser()
    try:
        entries = sorted(folder.iterdir(), reverse=fits is _is_trace)
    except OSError:
        return
    for path in entries:
        hidden = path.name.startswith(".") and not begun.startswith(".")
        if hidden or not path.name.startswith(begun):
            continue
        shown = f"{above}{'/' if '/' in incomplete else ''}{path.name}"
        if path.is_dir():
            yield shown if (path / "trace.jsonl").is_file() else f"{shown}/"
        elif fits(path) and os.access(path, os.R_OK):
            yield shown


def _is_data(path: Path) -> bool:
    from kernel_agent.session import KINDS

    return path.suffix.lower() in KINDS


def _is_script(path: Path) -> bool:
    return path.suffix == ".jsonl"


def _is_trace(path: Path) -> bool:
    return path.name == "trace.jsonl"


def _is_notebook(path: Path) -> bool:
    return path.suffix == ".ipynb"
