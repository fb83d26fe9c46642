"""The table of settings: each is a field of :class:`Config` with its description.

Everything else reads the description: settings files and the environment
(:mod:`kernel_agent.config.files`), the options of the commands (:mod:`kernel_agent.cli.options`),
those of ``%agent`` with their defaults (the extension), and what an evaluation hands to its runs.
So a new setting is a field here; ``make reference`` writes it into ``docs/reference``.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernel_agent.config.public import hide_keys, public_address
from kernel_agent.errors import ConfigError

T = TypeVar("T")

PREFIX = "KERNEL_AGENT_"
POSITIVE = (
    "request_timeout_s", "memory_mb", "disk_mb", "max_operations", "cell_seconds",
    "context_tokens",
)  # fmt: skip
"""Numbers that mean nothing at 0; the four caps of a run are :class:`~..records.Budget`'s."""

VARIABLES: Mapping[str, str] = {
    "OPENAI_BASE_URL": "the endpoint; `KERNEL_AGENT_BASE_URL` overrides it",
    "KERNEL_AGENT_CONFIG": "a settings file, instead of your own",
    "KERNEL_AGENT_PROGRAMS": "folders of programs of a [sandbox](../sandbox.md); colons between",
    "KERNEL_AGENT_SQL_URL": "the database of `--tools sql`",
    "KERNEL_AGENT_PANEL": "`off`: no panel in notebooks",
    "KERNEL_AGENT_DEBUG": "`1`: an error shows where it arose",
}
"""Variables that are no setting's: heeded before there are settings, or by one part alone."""


# --- what a row of the table says ----------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An option of the command line for a setting.

    Parameters
    ----------
    value
        What follows it, as the help shows it; empty for a flag.
    help
        Its help, by the command that has it.
    name
        The setting's, with hyphens, by default.
    repeated
        Whether it may be given again, for one more value.
    after
        The setting that it comes after in the help; the one before it in the table by default.
    """

    value: str
    help: Mapping[str, str]
    name: str = ""
    repeated: bool = False
    after: str = ""


@dataclass(frozen=True)
class Magic:
    """An option of ``%agent`` for a setting: the value's name, its help, an example."""

    value: str
    about: str
    example: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of the table.

    Parameters
    ----------
    name
        Of the field.
    hint
        Its type in :class:`Config`.
    default
        What holds when nobody says anything.
    about
        What it is.
    argument
        Whether :class:`~kernel_agent.Session` has it as an argument.
    between
        Whether a session may change it between two runs (``Session.change``).
    shared
        Whether an evaluation hands it to its runs, wherever they are carried out. Never a key.
    hidden
        Whether its values may hold a key: a trace has their names only.
    choices
        The words that it can be.
    option, magic
        Its options on the command line and in ``%agent``; None where it has none.
    trait
        The help of ``%config AgentMagics.NAME``; empty where it has none.
    """

    name: str
    hint: Any
    default: Any
    about: str
    argument: bool = False
    between: bool = False
    shared: bool = False
    hidden: bool = False
    choices: tuple[str, ...] = ()
    option: Option | None = None
    magic: Magic | None = None
    trait: str = ""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"{PREFIX}{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The option of the command line."""
        assert self.option is not None
        return f"--{self.option.name or self.name.replace('_', '-')}"

    @property
    def magic_name(self) -> str:
        """The option of ``%agent``, without its hyphens."""
        return (self.magic.name if self.magic else "") or self.name.replace("_", "-")

    @property
    def kind(self) -> type:
        """``bool``, ``int``, ``float``, ``str``, ``list`` or ``dict``: what a file says."""
        return _kind(self.hint)

    @property
    def written(self) -> str:
        """Its type in words, as in ``dict of str``."""
        return _written(self.hint)

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of the setting's type, as a file writes it."""
        return _fits(value, self.hint)


def setting(default: T, about: str, **row: Any) -> T:
    """Return the field of a setting; ``row`` is what :class:`Setting` says of it."""
    has = {"default_factory": dict} if isinstance(default, dict) else {"default": default}
    made: Any = field(**has, metadata={"about": about, **row})
    return typing.cast("T", made)


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings, with their defaults."""

    model: str | None = setting(
        None,
        "the model's name at the endpoint; `offline`; or `scripted:FILE`",
        argument=True,
        between=True,
        option=Option("NAME", {
            "run": "A model's name at your endpoint; 'offline' for the built-in rule-based "
            "analyst; 'scripted:FILE.jsonl' to play back replies."}),
        magic=Magic("NAME", "a model of your endpoint, or offline", "--model offline"),
        trait="The model; empty for the configured one.",
    )  # fmt: skip
    base_url: str | None = setting(
        None,
        "the OpenAI-compatible endpoint",
        argument=True,
        between=True,
        option=Option("URL", {
            "run": "Your OpenAI-compatible endpoint, as in http://localhost:8000/v1.",
            "eval": "Your OpenAI-compatible endpoint."}),
        magic=Magic("URL", "your OpenAI-compatible endpoint",
                    "--base-url http://localhost:8000/v1"),
        trait="The OpenAI-compatible endpoint.",
    )  # fmt: skip
    api_key_env: str = setting(
        "OPENAI_API_KEY", "the name of the variable that holds the key", shared=True
    )
    secret_env: tuple[str, ...] = setting(
        (), "names of further variables whose values are cut from what tools say (passwords)"
    )
    headers: Mapping[str, str] = setting(
        {}, "further HTTP headers; a value `$NAME` stands for the variable NAME", hidden=True
    )
    extra_body: Mapping[str, Any] = setting(
        {}, "further fields of each request, as the endpoint knows them (`temperature` …); "
        "`stream = false` asks for replies in one piece",
        shared=True,
    )  # fmt: skip
    accepts_images: bool | None = setting(
        None,
        "whether the model is sent pictures; None for what its name suggests",
    )
    request_timeout_s: float = setting(120.0, "seconds without a byte of a reply", shared=True)
    max_retries: int = setting(4, "how often one request is repeated", shared=True)
    prices: Mapping[str, Mapping[str, float]] = setting(
        {},
        "US dollars per million tokens, by model name: `prompt`, `completion` and perhaps "
        "`cached`; `max_cost` needs them: cost is never guessed",
        shared=True,
    )
    format: str = setting(
        "auto",
        "`auto`, `fenced`, `envelope`, `tool` or `json`",
        argument=True,
        between=True,
        option=Option("FORMAT", {
            "run": "How the model writes its actions: auto, fenced, envelope, tool or json."}),
        magic=Magic("FORMAT", "how the model writes code: auto, fenced, envelope, tool, json",
                    "--format fenced"),
        trait="How the model writes code.",
    )  # fmt: skip
    sandbox: str = setting(
        "auto",
        "`auto` or a level; with the kernelspec of remote kernels, `remote:NAME`",
        argument=True,
        option=Option("LEVEL", {
            "run": "How the kernel is confined: auto (the best of bubblewrap, namespaces and "
            "landlock that works here), or by name one of these, container, gvisor, microvm, "
            "interpreter, remote:KERNELSPEC or none. See kernel-agent doctor.",
            "pipeline": "How the kernel is confined; as of kernel-agent run."}),
        magic=Magic("LEVEL", "the sandbox level; auto takes the best that works",
                    "--sandbox bubblewrap"),
        trait="The sandbox level.",
    )  # fmt: skip
    allow_hosts: tuple[str, ...] = setting(
        (),
        "hosts that sandboxed code may reach, through a proxy that records it; none by default",
        argument=True,
        option=Option("HOST[:PORT]", {
            "run": "Let the code reach this host on the network, and no other. Repeat it."},
            name="allow-host", repeated=True, after="disk_mb"),
        magic=Magic("HOST[:PORT]", "a host that the code may reach, and no other; again for more",
                    "--allow-host example.org", name="allow-host"),
    )  # fmt: skip
    mcp: Mapping[str, Any] = setting(
        {}, "MCP servers by the names that `--mcp` connects them by; see `docs/mcp.md`", hidden=True
    )
    sql: Mapping[str, str] = setting(
        {},
        "database URLs by the names that `--tools sql=NAME` opens them by, or `$VARIABLE`",
        hidden=True,
    )
    memory_mb: int | None = setting(
        None,
        "memory of the kernel; three quarters of the machine's by default",
        option=Option("MB", {
            "run": "Memory of the kernel (default: 75 % of the machine's)."}),
    )  # fmt: skip
    disk_mb: int | None = setting(
        None,
        "what the kernel may write beyond what its folder held at the start; 2048 by default",
        option=Option("MB", {"run": "What the kernel may write (default: 2048)."}),
    )
    guard_imports: Sequence[str] | None = setting(
        None,
        "modules that cells may import; a guard against mistakes, and no boundary; "
        "None for no guard",
        argument=True,
        option=Option("MODULES", {
            "run": "Refuse cells that import anything else, as in pandas,numpy,matplotlib. A "
            "guard against mistakes, not a boundary."}),
    )  # fmt: skip
    max_operations: int | None = setting(
        None,
        "turns of loops and calls of functions that a cell may do; None for no limit",
        argument=True,
        option=Option("N", {
            "run": "End a cell after so many turns of loops and calls of its own functions. A "
            "guard against mistakes."}),
    )  # fmt: skip
    approve: str = setting(
        "risky",
        "when you are asked: `never`, `risky` (before calls of tools with effects) or `always` "
        "(also before cells); see `docs/approval.md`",
        argument=True,
        between=True,
        choices=("never", "risky", "always"),
        option=Option("MODE", {
            "run": "What you are asked about: never, risky (calls of tools that have effects "
            "outside; the default) or always (also each cell). Without a terminal: denied."}),
        magic=Magic("WHEN", "what you are asked about: never, risky (calls with effects), always",
                    "--approve risky"),
        trait="What you are asked about.",
    )  # fmt: skip
    approve_tools: Mapping[str, str] = setting(
        {},
        "what holds for single tools instead: `allow`, `ask` or `deny` by name",
        argument=True,
        option=Option("NAME=allow|ask|deny", {
            "run": "What holds for a single tool instead. Repeat it."},
            name="approve-tool", repeated=True),
    )  # fmt: skip
    data: tuple[str, ...] = setting((), "files and folders of a session that names none")
    untrusted_data: bool = setting(
        default=False,
        about="whether the inputs come from others, and may hold instructions of theirs",
        argument=True,
        option=Option("", {"run": "The data comes from others: mark it so for the model."}),
        magic=Magic("", "the data comes from others: mark it so for the model", "--untrusted-data"),
    )
    max_steps: int | None = setting(
        30,
        "after so many steps a run ends",
        shared=True,
        option=Option("N", {"run": "Stop after so many steps.", "eval": "Of one run."}),
        magic=Magic("N", "how many steps this question may take", "--max-steps 5"),
        trait="Steps that a question may take.",
    )
    max_seconds: float | None = setting(
        900.0,
        "after so many seconds a run ends",
        shared=True,
        option=Option("S", {
            "run": "Stop after so many seconds.", "pipeline": "Stop after so many seconds.",
            "eval": "Of one run."}),
        magic=Magic("SECONDS", "how long this question may take", "--max-seconds 60"),
        trait="Seconds that a question may take.",
    )  # fmt: skip
    max_tokens: int | None = setting(
        None,
        "after so many tokens a run ends",
        shared=True,
        option=Option("N", {"run": "Stop after so many tokens.", "eval": "Of one run."}),
        magic=Magic("N", "how many tokens this question may take", "--max-tokens 20000"),
        trait="Tokens that a question may take.",
    )
    max_cost: float | None = setting(
        None,
        "after so many US dollars a run ends",
        shared=True,
        option=Option("USD", {
            "run": "Stop after so many US dollars; needs configured prices.",
            "eval": "Of one run."}),
        magic=Magic("DOLLARS", "what this question may cost; needs configured prices",
                    "--max-cost 0.50"),
        trait="US dollars that a question may cost.",
    )  # fmt: skip
    cell_seconds: float = setting(
        120.0,
        "after so long a cell is interrupted; its variables are kept",
        shared=True,
        option=Option("S", dict.fromkeys(
            ("run", "pipeline"), "Interrupt a single cell after so many seconds.")),
    )  # fmt: skip
    context_tokens: int | None = setting(
        None,
        "the allowance for the whole conversation; None for half of the model's window, 64,000 at "
        "most, and 32,000 where the endpoint does not list it",
        shared=True,
    )

    def __post_init__(self) -> None:
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be greater than 0, not {value!r}")

    def merged(self, **arguments: Any) -> Config:
        """Return the settings with those arguments that are not None put over them."""
        return dataclasses.replace(self, **{k: v for k, v in arguments.items() if v is not None})

    @property
    def public(self) -> dict[str, Any]:
        """The settings as a trace may hold them: of what may hold a key, the names only."""
        values = dataclasses.asdict(self)
        return {
            **values,
            **{name: sorted(values[name]) for name, row in SETTINGS.items() if row.hidden},
            "base_url": None if self.base_url is None else public_address(self.base_url),
            "extra_body": {k: hide_keys(k, v) for k, v in self.extra_body.items()},
        }


def _rows() -> dict[str, Setting]:
    hints, defaults = typing.get_type_hints(Config), dataclasses.asdict(Config())
    return {
        each.name: Setting(
            name=each.name,
            hint=hints[each.name],
            default=defaults[each.name],
            **each.metadata,
        )
        for each in dataclasses.fields(Config)
    }


def _kind(hint: Any) -> type:
    """Return a setting's type in a file: a list for any sequence, a dict for a mapping.

    Examples
    --------
    >>> _kind(tuple[str, ...]), _kind(float | None)
    (<class 'list'>, <class 'float'>)
    """
    hint = _given(hint)
    plain: type = typing.get_origin(hint) or hint
    written: dict[type, type] = {tuple: list, Sequence: list, Mapping: dict}
    return written.get(plain, plain)


def _given(hint: Any) -> Any:
    """Return a type without its None, which no file can write."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    return hint


def _held(hint: Any) -> Any:
    """Return the type of what a list or a table holds; ``Any`` for what holds nothing."""
    inner = [each for each in typing.get_args(_given(hint)) if each is not ...]
    return inner[-1] if inner else Any


def _written(hint: Any) -> str:
    """Return a type in words.

    Examples
    --------
    >>> _written(Mapping[str, Mapping[str, float]])
    'dict of dict of float'
    """
    name, held = _kind(hint).__name__, _held(hint)
    return name if held is Any else f"{name} of {_written(held)}"


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    kind = _kind(hint)
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        return isinstance(value, bool) and kind is bool
    held: Iterable[Any] = ()
    if isinstance(value, dict | list):
        held = value.values() if isinstance(value, dict) else value
    return all(_fits(each, _held(hint)) for each in held)


SETTINGS: Mapping[str, Setting] = _rows()
"""Every setting by its name."""

Config.__doc__ = f"{Config.__doc__}\n\nParameters\n----------\n" + "\n".join(
    f"{row.name}\n    {row.about}" for row in SETTINGS.values()
)
