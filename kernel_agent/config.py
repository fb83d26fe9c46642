"""What can be configured, and where from: file < environment < arguments.

The file is TOML: ``kernel-agent.toml`` in the working directory, else
``~/.config/kernel-agent/config.toml``, or the one that ``KERNEL_AGENT_CONFIG`` names. Environment
variables are ``KERNEL_AGENT_`` and the field's name in capitals; ``OPENAI_BASE_URL`` is heeded,
too. A key is never configured, only the *name* of the variable that holds it.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_agent.errors import ConfigError

FILE_NAMES = ("kernel-agent.toml", "~/.config/kernel-agent/config.toml")


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
        (:mod:`kernel_agent.sandbox.guard`, against mistakes); None for no guard.
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


def load_config(environment: Mapping[str, str] | None = None) -> Config:
    """Read the settings from the file and the environment.

    Raises
    ------
    ConfigError
        The user's: a file that is not TOML, an unknown setting, a value of the wrong type.
    """
    env = os.environ if environment is None else environment
    values = {**_from_file(env), **_from_environment(env)}
    headers = values.get("headers", {})
    for name in ("allow_hosts", "secret_env"):
        values[name] = tuple(map(str, values.get(name, ())))
    values["headers"] = {
        k: env.get(v[1:], "") if v.startswith("$") else v for k, v in headers.items()
    }
    return Config(**values)


def _from_file(env: Mapping[str, str]) -> dict[str, Any]:
    named = env.get("KERNEL_AGENT_CONFIG")
    candidates = [Path(named)] if named else [_expanded(Path(name)) for name in FILE_NAMES]
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        if named:
            raise ConfigError(f"KERNEL_AGENT_CONFIG names {named}, which is not a file")
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: _checked(name, value, str(path)) for name, value in table.items()}


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # there is no home directory
        return path


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if env.get("OPENAI_BASE_URL"):
        values["base_url"] = env["OPENAI_BASE_URL"]
    for name in _TYPES:
        variable = f"KERNEL_AGENT_{name.upper()}"
        if variable in env:
            values[name] = _from_text(name, env[variable], variable)
    return values


_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,), "base_url": (str,), "api_key_env": (str,), "headers": (dict,),
    "extra_body": (dict,), "stream": (bool,), "accepts_images": (bool,),
    "request_timeout_s": (int, float), "max_retries": (int,), "prices": (dict,),
    "format": (str,), "sandbox": (str,), "remote_kernelspec": (str,), "allow_hosts": (list,),
    "secret_env": (list,),
    "mcp": (dict,), "sql": (dict,),
    "memory_mb": (int,), "disk_mb": (int,), "guard_imports": (list,), "max_operations": (int,),
    "approve": (str,), "approve_tools": (dict,), "untrusted_data": (bool,),
    "max_steps": (int,), "max_seconds": (int, float),
    "max_tokens": (int,), "max_cost": (int, float), "cell_seconds": (int, float),
    "observation_chars": (int,), "context_tokens": (int,),
    "max_depth": (int,), "max_agents": (int,), "agents_at_once": (int,),
}  # fmt: skip


def _checked(name: str, value: Any, where: str) -> Any:
    if name not in _TYPES:
        raise ConfigError(f"{where}: there is no setting {name!r}")
    kinds = _TYPES[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ConfigError(f"{where}: {name} must be {kinds[-1].__name__}, not {value!r}")
    return value


def _from_text(name: str, text: str, variable: str) -> Any:
    kind = _TYPES[name][-1]
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
