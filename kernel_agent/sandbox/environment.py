"""A kernel's share of the host: a few variables, the interpreter with packages, the system.

Nothing here is a secret and nothing is personal: a variable or a path that is not named here does
not exist for a kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PASSED_ON = (
    "HOME", "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME",
    "MPLCONFIGDIR", "IPYTHONDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SSL_CERT_FILE",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "JPY_PARENT_PID",
)  # fmt: skip
"""The host's variables that a kernel gets. All others, keys among them, stay outside."""

HASH_SEED = {"PYTHONHASHSEED": "0"}
"""The same in every kernel, or a set of texts would be printed in another order in each."""

HOME_BOUND = (
    "HOME", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
    "JPY_PARENT_PID", "VIRTUAL_ENV",
)  # fmt: skip
"""Exceptions, which mean nothing, or too much, inside a sandbox."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")

SETTINGS = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/fonts", "/etc/localtime",
    "/etc/timezone", "/etc/alternatives", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki",
    "/etc/mime.types", "/etc/nsswitch.conf", "/sys/devices/system/cpu",
)  # fmt: skip
"""Files that libraries read, and that tell nothing about a person."""

DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
)  # fmt: skip

MACHINE = (
    "/proc/cmdline", "/proc/config.gz", "/proc/partitions", "/proc/iomem", "/proc/ioports",
    "/proc/kallsyms", "/proc/modules", "/proc/keys", "/proc/key-users", "/proc/locks",
    "/proc/sys/kernel/random/boot_id",
)  # fmt: skip
"""Linux's facts on the machine, in every process namespace, that no library for data reads."""

PROXY_PORT = 3128
"""Of the loopback interface inside, where named hosts are allowed; the usual port of a proxy."""


def proxy_variables() -> dict[str, str]:
    """Return the variables by which programs know the proxy (curl's names, in both cases)."""
    url = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**dict.fromkeys(names, url), "NO_PROXY": "", "no_proxy": ""}


def clean_environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the host's variables that a kernel may see, and those that it needs beside."""
    kept = {name: host[name] for name in PASSED_ON if name in host}
    return {
        **kept,
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONUNBUFFERED": "1",
        **HASH_SEED,
        "TERM": "dumb",
        "GIT_CONFIG_NOSYSTEM": "1",  # not seen by every kernel, and git ends where it is closed
    }


def search_path(python: Path, *further: str) -> str:
    """Return a ``PATH`` on which a cell's ``python`` and ``pip`` are those of its kernel.

    Examples
    --------
    >>> search_path(Path("/opt/venv/bin/python"), "/usr/bin", "/bin", "/usr/bin")
    '/opt/venv/bin:/usr/bin:/bin'
    """
    return ":".join(dict.fromkeys([str(python.absolute().parent), *filter(None, further)]))


def at_home_in(scratch: str, environment: Mapping[str, str], python: Path) -> dict[str, str]:
    """Return the environment for a kernel whose home is a directory of the sandbox."""
    kept = {name: value for name, value in environment.items() if name not in HOME_BOUND}
    path = [part for part in kept.get("PATH", "").split(":") if part.startswith("/usr")]
    return {
        **kept,
        "PATH": search_path(python, *path, "/usr/local/bin", "/usr/bin", "/bin"),
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": "kernel",
        "LOGNAME": "kernel",
        "MPLCONFIGDIR": f"{scratch}/matplotlib",
        "IPYTHONDIR": f"{scratch}/ipython",
        "JUPYTER_RUNTIME_DIR": f"{scratch}/jupyter",
        "PYTHONDONTWRITEBYTECODE": "1",  # packages are read-only
    }


def without_dots(python: Path) -> Path:
    """Return an interpreter's path without ``..``, which is no path inside a sandbox.

    What stands before a ``..`` is followed as the system follows it, links included. Links after
    it stay: an environment's interpreter is known by its own path, not by that of its base.
    """
    if ".." not in python.parts:
        return python
    last = len(python.parts) - python.parts[::-1].index("..")
    return Path(os.path.realpath(Path(*python.parts[:last])), *python.parts[last:])


def host_python() -> Path:
    """Return the interpreter of this process."""
    return without_dots(Path(sys.executable))


@cache
def interpreter_paths(python: Path) -> tuple[Path, ...]:
    """Return the directories that an interpreter needs to see, outermost only.

    Its prefixes and the package directories that it searches by itself. What development
    installations link to elsewhere is not among them: that may be any folder.
    """
    if python.absolute() == host_python():
        import site

        user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
        found = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), user]
    else:
        found = _ask(python)
    real = Path(os.path.realpath(python))
    directories = [Path(name) for name in found if name and Path(name).is_dir()]
    return outermost([*directories, *map(_resolve, directories), python.parent, real.parent])


_ASK = (
    "import site, sys; user = site.getusersitepackages() if site.ENABLE_USER_SITE else ''; "
    "print(sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), user, "
    "sep='\\0', end='')"
)


def _ask(python: Path) -> list[str]:
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that was asked for
            [python, "-c", _ASK],
            cwd="/",  # nothing is imported from the working directory
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []  # it does not run: its start will say why
    return done.stdout.split("\0")


def _resolve(path: Path) -> Path:
    return Path(os.path.realpath(path))


def outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths that lie in no other of them and not in the system's directories."""
    system = [Path(name) for name in SYSTEM]
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(other) for other in (*system, *kept)):
            kept.append(path)
    return tuple(kept)


def font_list(environment: Mapping[str, str]) -> Path | None:
    """Return matplotlib's list of fonts in the host's cache: making it anew takes a second."""
    home = Path(environment.get("HOME", "/nonexistent"))
    cache_home = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    named = environment.get("MPLCONFIGDIR")
    for folder in ([Path(named)] if named else []) + [cache_home / "matplotlib"]:
        found = sorted(folder.glob("fontlist-v*.json"))
        if found:
            return found[-1]
    return None
