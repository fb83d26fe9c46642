"""What can be configured, where from, and who may: file < folder's file < environment < arguments.

Files are TOML. ``~/.config/kernel-agent/config.toml`` is the user's own and may set everything.
``kernel-agent.toml`` in the working directory goes over it, setting by setting, but may come from
anybody: from a cloned project, or from code that a cell ran there. So :data:`SETTINGS` says of each
setting what such a file may do; what goes beyond that holds only when the user has allowed this
very file (:mod:`kernel_agent.safe.trust`), and is an error while nobody was asked: a run that
ignored it might go to another endpoint than was meant. ``KERNEL_AGENT_CONFIG`` names one file in
the place of both. No file is ever read from a run's folder, which is a cell's to write.

Environment variables are ``KERNEL_AGENT_`` and the field's name in capitals; ``OPENAI_BASE_URL`` is
heeded, too. A key is never configured, only the *name* of the variable that holds it.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_agent.errors import ConfigError, UntrustedSettings
from kernel_agent.safe import answer_on, one_line, open_file

OWN_FILE = "~/.config/kernel-agent/config.toml"
FOLDER_FILE = "kernel-agent.toml"
MAX_BYTES = 1 << 16  # of a settings file
TRACE = "trace.jsonl"  # what marks a run's folder; written by kernel_agent.records.store


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings, with their defaults.

    Parameters
    ----------
    model
        The model's name at the endpoint; ``offline``; or ``scripted:FILE``.
    base_url
        The OpenAI-compatible endpoint.
    api_key_env
        The name of the variable that holds the key.
    secret_env
        Names of further variables whose values never go to a kernel or into a trace (passwords that
        host tools use).
    headers
        Further HTTP headers. A value ``$NAME`` stands for the variable NAME.
    extra_body
        Further fields of each request, as the endpoint knows them (``temperature`` …).
    stream
        Whether replies are asked for piece by piece.
    accepts_images
        Whether the model is sent pictures; None for what its name suggests.
    request_timeout_s, max_retries
        Of one request to the endpoint.
    prices
        US dollars per million tokens, by model name: ``prompt``, ``completion`` and optionally
        ``cached``. Without them cost is unknown, never guessed.
    format
        ``auto``, ``fenced``, ``envelope``, ``tool`` or ``json``.
    sandbox
        ``auto`` or a level.
    remote_kernelspec
        The kernelspec of the level ``remote``.
    allow_hosts
        Hosts that sandboxed code may reach, through a proxy that counts; none by default.
    mcp
        MCP servers by the names that ``--mcp`` connects them by; see ``docs/mcp.md``.
    sql
        Database URLs by the names that ``--tools sql=NAME`` opens them by, or ``$VARIABLE``.
    memory_mb, disk_mb
        What the kernel may use: memory (three quarters of the machine's by default), and disk
        beyond what its folder held at the start (2048 by default).
    guard_imports
        Modules that cells may import, when the guard is asked for
        (:mod:`kernel_agent.agent.guard`, against mistakes); None for no guard.
    max_operations
        Turns of loops and calls of functions that a cell may do; None for no cap.
    approve
        Who is asked before something is done: ``never`` (nobody is asked), ``risky`` (before calls
        of tools with effects) or ``always`` (also before cells); see ``docs/approval.md``.
    approve_tools
        What holds for single tools instead: ``allow``, ``ask`` or ``deny`` by name.
    untrusted_data
        Whether the inputs come from others, and may hold instructions that are not the user's.
    max_steps, max_seconds, max_tokens, max_cost
        The budget of a run.
    cell_seconds
        After so long a cell is interrupted; its variables are kept.
    observation_chars
        Characters of an observation that the model is shown.
    context_tokens
        The allowance for the whole conversation.
    max_depth, max_agents, agents_at_once
        Of delegation: how deep agents may stand beneath a run, how many there may be beneath a
        session in all, and how many one run may have at work at the same time.
    """

    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    secret_env: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    accepts_images: bool | None = None
    request_timeout_s: float = 120.0
    max_retries: int = 4
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    format: str = "auto"
    sandbox: str = "auto"
    remote_kernelspec: str | None = None
    allow_hosts: tuple[str, ...] = ()
    mcp: Mapping[str, Any] = field(default_factory=dict)
    sql: Mapping[str, Any] = field(default_factory=dict)
    memory_mb: int | None = None
    disk_mb: int | None = None
    guard_imports: Sequence[str] | None = None
    max_operations: int | None = None
    approve: str = "risky"
    approve_tools: Mapping[str, str] = field(default_factory=dict)
    untrusted_data: bool = False
    max_steps: int | None = 30
    max_seconds: float | None = 900.0
    max_tokens: int | None = None
    max_cost: float | None = None
    cell_seconds: float = 120.0
    observation_chars: int = 8000
    context_tokens: int = 32_000
    max_depth: int = 2
    max_agents: int = 32
    agents_at_once: int = 4

    def merged(self, **arguments: Any) -> Config:
        """Return the settings with those arguments that are not None put over them."""
        return dataclasses.replace(self, **{k: v for k, v in arguments.items() if v is not None})

    @property
    def public(self) -> dict[str, Any]:
        """The settings as a trace may hold them: of what may hold a key, the names only."""
        values = dataclasses.asdict(self)
        return {
            **values,
            **{name: sorted(values[name]) for name in ("headers", "mcp", "sql")},
            "base_url": None if self.base_url is None else public_address(self.base_url),
            "extra_body": {k: _shown(k, v) for k, v in self.extra_body.items()},
        }


def public_address(url: str) -> str:
    """Return an address without the user, the password and the values of its query.

    Examples
    --------
    >>> public_address("https://me:s3cret@host:1234/v1?version=2&key=s3cret")
    'https://host:1234/v1?version=…&key=…'
    """
    address, mark, query = url.partition("?")
    scheme, slashes, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    names = (part.partition("=")[0] for part in query.split("&"))
    hidden = "&".join(f"{name}=…" for name in names)
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}{mark}{hidden if mark else ''}"


_SECRET_WORDS = frozenset(
    ("key", "apikey", "token", "secret", "password", "authorization", "cookie", "auth")
)


def hides(name: str) -> bool:
    """Return whether what has this name (of a header, a field) is a secret, by the name.

    Examples
    --------
    >>> hides("X-Api-Key"), hides("max_tokens")
    (True, False)
    """
    return not _SECRET_WORDS.isdisjoint(name.lower().replace("-", "_").split("_"))


def _shown(name: str, value: Any) -> Any:
    """Return a further field of the requests as a trace may hold it."""
    if isinstance(value, Mapping):
        return {k: _shown(str(k), v) for k, v in value.items()}
    return "…" if isinstance(value, str) and hides(name) else value


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
        Told in a line what a file in the working directory sets.

    Raises
    ------
    ConfigError
        The user's: a file that is not TOML, an unknown setting, a value of the wrong type.
    UntrustedSettings
        A file in the working directory sets what only the user may, and nobody was asked.
    """
    env = os.environ if environment is None else environment
    given = _from_environment(env)
    named = env.get("KERNEL_AGENT_CONFIG")
    values = _named_file(Path(named)) if named else _own_file()
    if not named:
        values |= _folders(values, given, tell)
    values |= given
    headers = values.get("headers", {})
    for name in ("allow_hosts", "secret_env"):
        values[name] = tuple(map(str, values.get(name, ())))
    values["headers"] = {
        k: env.get(v[1:], "") if v.startswith("$") else v for k, v in headers.items()
    }
    return Config(**values)


# --- the user's own file ---------------------------------------------------------------------


def _named_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"KERNEL_AGENT_CONFIG names {path}, which is not a file")
    _refuse_runs_folder(path)
    return _read(path)


def _own_file() -> dict[str, Any]:
    path = _expanded(Path(OWN_FILE))
    # Without a home, or with one named by a relative path, it would be a file of the folder.
    return _read(path) if path.is_absolute() and path.is_file() else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return _parsed(path, file.read(MAX_BYTES + 1))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: it is larger than {MAX_BYTES:,} bytes, no settings file is")
    try:
        table = tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: _checked(name, value, str(path)) for name, value in table.items()}


# --- the folder's ----------------------------------------------------------------------------


def _folders(
    own: Mapping[str, Any], given: Mapping[str, Any], tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return what the file in the working directory sets, as far as it may.

    Parameters
    ----------
    own
        What the user's own file sets.
    given
        What the environment sets, which goes before both.
    """
    found = _in_working_directory()
    if found is None:
        return {}
    path, content = found
    values = {k: v for k, v in _parsed(path, content).items() if k not in given}
    before = {**_DEFAULTS, **own}
    beyond = {k: v for k, v in values.items() if not SETTINGS[k].folder_may_set(before[k], v)}
    allowed = answer_on(path, content) if beyond else None
    if beyond and allowed is None:
        raise UntrustedSettings(
            _how_to_allow(path, beyond), path=path, content=content, settings=beyond
        )
    used = {k: v for k, v in values.items() if allowed or k not in beyond}
    _tell_what_holds(path, used, {} if allowed else beyond, tell)
    return used


def _in_working_directory() -> tuple[Path, bytes] | None:
    """Return the file there, with what it holds; never waits, and reads no more than is bounded.

    Raises
    ------
    ConfigError
        It is a link, a pipe or a folder, or it lies in a run's folder.
    """
    try:
        path = Path.cwd() / FOLDER_FILE
    except OSError:  # the working directory is gone
        return None
    if not os.path.lexists(path):
        return None
    _refuse_runs_folder(path)
    try:
        with open_file(path) as file:
            return path, file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{_shown_path(path)} cannot be read: {error.strerror}") from None


def _refuse_runs_folder(path: Path) -> None:
    """Refuse a file from a folder that is a run's, or lies in one: cells write there.

    Raises
    ------
    ConfigError
        It lies in such a folder.
    """
    for folder in {*path.absolute().parents, *Path(os.path.realpath(path)).parents}:
        if os.path.lexists(folder / TRACE):
            raise ConfigError(
                f"{_shown_path(path)} is not read: {_shown_path(folder / TRACE)} says that code of "
                "a run may have written it. Remove it, or start the command in another folder"
            )


def _how_to_allow(path: Path, beyond: Mapping[str, Any]) -> str:
    return (
        f"{_shown_path(path)} sets {', '.join(sorted(beyond))}, which a file in the working "
        "directory may do only when you have allowed it: run the command at a terminal to be "
        f"asked, or name the file (KERNEL_AGENT_CONFIG={FOLDER_FILE}), or move it to {OWN_FILE}"
    )


def _tell_what_holds(
    path: Path,
    used: Mapping[str, Any],
    left_out: Mapping[str, Any],
    tell: Callable[[str], None],
) -> None:
    parts = [f"{', '.join(sorted(used))} from {_shown_path(path)}"] if used else []
    if left_out:
        parts.append(f"not {', '.join(sorted(left_out))}, as you have answered")
    if parts:
        tell(f"Settings: {'; '.join(parts)}.")


def _shown_path(path: Path) -> str:
    return one_line(str(path), 300)


# --- values ----------------------------------------------------------------------------------


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # there is no home directory
        return path


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if env.get("OPENAI_BASE_URL"):
        values["base_url"] = env["OPENAI_BASE_URL"]
    for name in SETTINGS:
        variable = f"KERNEL_AGENT_{name.upper()}"
        if variable in env:
            values[name] = _from_text(name, env[variable], variable)
    return values


FolderMay = Callable[[Any, Any], bool]
"""Whether a folder's file may change a setting: from what holds without it, to what it says."""


def _never(_now: Any, _value: Any) -> bool:
    return False


def _freely(_now: Any, _value: Any) -> bool:
    return True


def _lower(now: Any, value: Any) -> bool:
    return bool(value > 0 and (now is None or value <= now))


def _fewer(now: Any, value: Any) -> bool:
    return bool(0 <= value <= now)  # none at all, too; of a limit, 0 might be taken for none


def _on(_now: Any, value: Any) -> bool:
    return value is True


def _off(_now: Any, value: Any) -> bool:
    return value is False


@dataclass(frozen=True)
class Setting:
    """Of one setting: its types, and what a file in the working directory may do with it.

    ``folder`` is ``_never`` where it decides on keys, the network, the sandbox, approval, programs,
    what a run costs, or what the model is told; a limit may be lowered only.
    """

    kinds: tuple[type, ...]
    folder: FolderMay = _never

    def folder_may_set(self, now: Any, value: Any) -> bool:
        """Return whether a folder's file may set a value, where ``now`` holds without it."""
        return bool(value == now or self.folder(now, value))


SETTINGS: Mapping[str, Setting] = {
    # Who is asked: the name chooses what it costs, at a router also who gets the data, and
    # `scripted:FILE` answers from a file.
    "model": Setting((str,)),
    "base_url": Setting((str,)),
    "api_key_env": Setting((str,)),
    "headers": Setting((dict,)),
    "extra_body": Setting((dict,)),
    "stream": Setting((bool,), _freely),
    "accepts_images": Setting((bool,), _off),  # pictures are paid for
    # In both directions it costs: a request that is given up is asked, and paid, again.
    "request_timeout_s": Setting((int, float)),
    "max_retries": Setting((int,), _fewer),
    "prices": Setting((dict,)),  # without the right ones `max_cost` caps nothing
    "format": Setting((str,), _freely),
    "sandbox": Setting((str,)),
    "remote_kernelspec": Setting((str,)),
    "allow_hosts": Setting((list,)),
    "secret_env": Setting((list,)),
    "mcp": Setting((dict,)),
    "sql": Setting((dict,)),
    "memory_mb": Setting((int,), _lower),
    "disk_mb": Setting((int,), _lower),
    "guard_imports": Setting((list,)),  # the names are said to the model as instructions
    "max_operations": Setting((int,), _lower),
    "approve": Setting((str,)),
    "approve_tools": Setting((dict,)),
    "untrusted_data": Setting((bool,), _on),
    "max_steps": Setting((int,), _lower),
    "max_seconds": Setting((int, float), _lower),
    "max_tokens": Setting((int,), _lower),
    "max_cost": Setting((int, float), _lower),
    "cell_seconds": Setting((int, float), _lower),
    "observation_chars": Setting((int,), _lower),
    "context_tokens": Setting((int,), _lower),
    "max_depth": Setting((int,), _lower),
    "max_agents": Setting((int,), _lower),
    "agents_at_once": Setting((int,), _lower),
}
"""Every setting, with who may set it: whoever writes a file in a folder, or the user alone."""

_DEFAULTS: Mapping[str, Any] = dataclasses.asdict(Config())


def _checked(name: str, value: Any, where: str) -> Any:
    if name not in SETTINGS:
        raise ConfigError(f"{where}: there is no setting {name!r}")
    kinds = SETTINGS[name].kinds
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ConfigError(f"{where}: {name} must be {kinds[-1].__name__}, not {value!r}")
    return value


def _from_text(name: str, text: str, variable: str) -> Any:
    kind = SETTINGS[name].kinds[-1]
    try:
        if kind is bool:
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if kind is list:
            return [item.strip() for item in text.split(",") if item.strip()]
        if kind is dict:
            return _checked(name, tomllib.loads(f"value = {text}")["value"], variable)
        return kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{variable} must be {kind.__name__}, not {text!r}") from None
