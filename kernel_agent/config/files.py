"""Read settings, each source over the one before: file < environment < arguments.

Files are TOML: ``~/.config/kernel-agent/config.toml`` is the user's own, and
``KERNEL_AGENT_CONFIG`` names one in its place. No file is read because it lies in the working
directory, where a cloned project or a cell may have put it: ``kernel-agent.toml`` there is named in
a line, so that nobody wonders. Nor is one read from a run's folder, whoever names it: that is a
cell's to write.

Environment variables are ``KERNEL_AGENT_`` and the field's name in capitals; ``OPENAI_BASE_URL`` is
heeded, too. One whose name is nearly a setting's is named in a line. A key is never configured,
only the *name* of the variable that holds it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kernel_agent.config.table import PREFIX, SETTINGS, VARIABLES, Config, Setting
from kernel_agent.errors import ConfigError
from kernel_agent.safe import one_line

OWN_FILE = "~/.config/kernel-agent/config.toml"
FOLDER_FILE = "kernel-agent.toml"
NOT_READ = (
    f"{FOLDER_FILE} in the working directory is not read: to use it, name it "
    f"(KERNEL_AGENT_CONFIG={FOLDER_FILE})"
)
MAX_BYTES = 1 << 16  # of a settings file
NEARLY = 0.9  # alike: a letter or two of a name
MAX_DOTS = 20  # of a key; ours have three at most
_NO_KEYS = re.compile(  # comments and strings, as TOML reads them from left to right
    r"#[^\n]*"
    r'|"{3}(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"'
    r"|'{3}.*?'{3,5}|'[^'\n]*'",
    re.DOTALL,
)
_BETWEEN = re.compile(r"[=,\[\]{}]")
TRACE = "trace.jsonl"  # what marks a run's folder; written by kernel_agent.records.store


def load_config(
    environment: Mapping[str, str] | None = None,
    *,
    tell: Callable[[str], None] = lambda _line: None,
) -> Config:
    """Read the settings from the files and the environment.

    Parameters
    ----------
    environment
        The variables; those of this process by default.
    tell
        Told in a line of what is not read: a file in the working directory, a misspelt variable.

    Raises
    ------
    ConfigError
        The user's: a file that is not TOML, an unknown setting, a value of the wrong type.
    """
    env = os.environ if environment is None else environment
    named = env.get("KERNEL_AGENT_CONFIG")
    if not named and os.path.lexists(FOLDER_FILE):
        tell(NOT_READ)
    for name in sorted(env):
        if meant := _meant(name):
            tell(f"{name} is not read: did you mean {meant}?")
    values = _named_file(Path(named)) if named else _own_file()
    values |= _from_environment(env)
    for name, row in SETTINGS.items():
        if isinstance(row.default, tuple):
            values[name] = tuple(map(str, values.get(name, ())))
    values["headers"] = {
        k: env.get(v[1:], "") if v.startswith("$") else v
        for k, v in values.get("headers", {}).items()
    }
    return Config(**values)


# --- files -----------------------------------------------------------------------------------


def _named_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"KERNEL_AGENT_CONFIG names {path}, which is not a file")
    _refuse_runs_folder(path)
    return _read(path)


def _own_file() -> dict[str, Any]:
    path = _expand(Path(OWN_FILE))
    # Without a home, or with one named by a relative path, it would be a file of the folder.
    return _read(path) if path.is_absolute() and path.is_file() else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return _parse(path, file.read(MAX_BYTES + 1))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: it is larger than {MAX_BYTES:,} bytes, no settings file is")
    try:
        text = content.decode("utf-8")
        if _dots(text) > MAX_DOTS:
            raise ConfigError(f"{path}: a key with more than {MAX_DOTS} dots names no setting")
        table = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: _check(name, value, str(path)) for name, value in table.items()}


def _dots(text: str) -> int:
    """Return the most dots of a key: the library takes the square of their number, in memory too.

    Counted outside of strings and comments, in each part of a line that can be a key or a number.
    """
    lines = _NO_KEYS.sub("q", text).splitlines()
    parts = (part for line in lines for part in _BETWEEN.split("".join(line.split())))
    return max((part.count(".") for part in parts), default=0)


def _refuse_runs_folder(path: Path) -> None:
    """Refuse a settings file in a run's folder or below one: cells write there.

    Raises
    ------
    ConfigError
        It lies in such a folder.
    """
    for folder in {*path.absolute().parents, *Path(os.path.realpath(path)).parents}:
        if os.path.lexists(folder / TRACE):
            raise ConfigError(
                f"{_shown_path(path)} is not read: {_shown_path(folder / TRACE)} says that code of "
                "a run may have written it. Read it, and copy it elsewhere"
            )


def _shown_path(path: Path) -> str:
    return one_line(str(path), 300)


# --- values ----------------------------------------------------------------------------------


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # there is no home directory
        return path


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if env.get("OPENAI_BASE_URL"):
        values["base_url"] = env["OPENAI_BASE_URL"]
    for name, row in SETTINGS.items():
        if row.variable in env:
            values[name] = _from_text(row, env[row.variable])
    return values


def _meant(name: str) -> str | None:
    """Return the variable that a misspelt one is nearly; None for others and for what is right."""
    known = [*VARIABLES, *(row.variable for row in SETTINGS.values())]
    if not name.startswith(PREFIX) or name in known:
        return None
    return next(iter(get_close_matches(name, known, n=1, cutoff=NEARLY)), None)


def _check(name: str, value: Any, where: str) -> Any:
    if name not in SETTINGS:
        raise ConfigError(f"{where}: there is no setting {name!r}")
    if not SETTINGS[name].accepts(value):
        raise ConfigError(f"{where}: {name} must be {SETTINGS[name].written}, not {value!r}")
    return value


def _from_text(row: Setting, text: str) -> Any:
    try:
        if row.kind is bool:
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if row.kind is list:
            return [item.strip() for item in text.split(",") if item.strip()]
        if row.kind is dict:
            return _check(row.name, tomllib.loads(f"value = {text}")["value"], row.variable)
        return row.kind(text)
    except (ValueError, KeyError):
        kind = row.kind.__name__
        raise ConfigError(f"{row.variable} must be {kind}, not {text!r}") from None
